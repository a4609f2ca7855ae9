//! What is in a layer: how large it is, and what it asks of a machine.

use super::{
    cache::Known,
    elf::{self, Elf},
    layers::{Layer, largest},
    plan::{Plan, What, ends},
    python::Found,
};
use std::{collections::BTreeMap, path::Path};

/// More than this takes a cluster minutes, every node of it.
pub(super) const LARGE_BYTES: u64 = 5_000_000_000;
/// How many of the largest packages are named.
const LARGEST: usize = 5;
/// Of what looks for libraries at places of this machine, how many are named.
const SEARCHED_MAX: usize = 5;

/// Whether it is so large that somebody should think about it.
pub(super) fn too_large(layers: &[Layer], limit: u64) -> Option<String> {
    let bytes: u64 = layers.iter().map(|layer| layer.known.unpacked).sum();
    if bytes < limit {
        return None;
    }
    let largest: Vec<_> = largest(layers, LARGEST)
        .iter()
        .map(|(name, bytes)| format!("`{name}` {} MB", bytes / 1_000_000))
        .collect();
    Some(format!(
        "the environment has {} MB, which every node must fetch and unpack; the largest: {}",
        bytes / 1_000_000,
        largest.join(", ")
    ))
}

/// What is in a layer.
pub(super) fn survey(plan: &Plan, python: Option<&Found>, places: &[String]) -> Known {
    let site = python.map(Found::site).unwrap_or_default();
    let mut known = Known { unpacked: plan.bytes(), ..Known::default() };
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    let mut machines: BTreeMap<String, String> = BTreeMap::new();
    for (name, entry) in &plan.entries {
        let (from, bytes) = match &entry.what {
            What::File { from, was } => (Some(from), was.bytes),
            What::ByteCode { was, .. } => (None, was.bytes),
            What::Bytes(bytes) => (None, bytes.len() as u64),
            What::Directory | What::Link { .. } => continue,
        };
        known.files += 1;
        let below = name.strip_prefix(&site).unwrap_or(name);
        if let Some(top) = below.iter().next() {
            *sizes.entry(top.to_string_lossy().into_owned()).or_default() += bytes;
        }
        let program = ends(name, ".so")
            || name.to_string_lossy().contains(".so.")
            || (name.starts_with("bin") && entry.mode & 0o100 != 0);
        if let Some(elf) = from.filter(|_| program).and_then(|from| elf::read(from)) {
            let file = name.to_string_lossy().into_owned();
            if let Some(version) = elf.glibc
                && known.glibc.as_ref().is_none_or(|(known, _)| *known < version)
            {
                known.glibc = Some((version, file.clone()));
            }
            search(&elf, &file, python, places, &mut known);
            machines.entry(elf.machine).or_insert(file);
        }
    }
    known.machines = machines.into_iter().collect();
    known.largest = sizes.into_iter().collect();
    known.largest.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), name.clone()));
    known.largest.truncate(LARGEST);
    known
}

/// Where a program or library looks for others by whole paths, which are others on a node. Most such paths are of the machine
/// that built it, and lead nowhere.
fn search(elf: &Elf, file: &str, python: Option<&Found>, places: &[String], known: &mut Known) {
    for path in elf.paths.iter().filter(|path| path.starts_with('/')) {
        let dir = Path::new(path);
        let system = ["/usr", "/lib", "/lib64"].iter().any(|own| dir.starts_with(own));
        let own = python.is_some_and(|python| dir.starts_with(python.base.join("lib")));
        let found = elf.needs.iter().find(|name| dir.join(name).is_file());
        let Some(name) = found.filter(|_| !system) else {
            continue;
        };
        let mut lib = places.iter().map(|place| Path::new(place).join("lib"));
        if lib.any(|lib| lib.join(name).is_file()) {
            known.told = true;
        } else if !own && known.searched.len() < SEARCHED_MAX {
            known.searched.push((file.to_owned(), path.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::PACKAGES;
    use std::path::PathBuf;

    #[test]
    fn what_is_too_large_names_its_largest_packages() {
        let layer = |largest: &[(&str, u64)]| Layer {
            name: PACKAGES,
            file: PathBuf::new(),
            cached: false,
            known: Known {
                unpacked: largest.iter().map(|(_, bytes)| bytes).sum(),
                largest: largest.iter().map(|(name, bytes)| ((*name).into(), *bytes)).collect(),
                ..Known::default()
            },
        };
        let layers = [layer(&[("torch", 4_000_000_000)]), layer(&[("mine", 5_000_000_000)])];
        assert_eq!(too_large(&layers, 10_000_000_000), None);
        assert_eq!(
            too_large(&layers, LARGE_BYTES).as_deref(),
            Some(
                "the environment has 9000 MB, which every node must fetch and unpack; the largest: `mine` 5000 MB, `torch` 4000 MB"
            )
        );
    }
}
