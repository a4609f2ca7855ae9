//! Size and machine requirements of a layer.

use super::{
    cache::LayerInfo,
    elf::{self, Elf},
    layers::{Layer, largest},
    plan::{EntryKind, Plan, ends},
    python::DetectedPython,
};
use std::{collections::BTreeMap, path::Path};

/// Size above which nodes take minutes to download an environment.
pub(super) const LARGE_BYTES: u64 = 5_000_000_000;
/// Number of largest packages named in a message.
const LARGEST: usize = 5;
/// Maximum number of recorded files with foreign library paths.
const FOREIGN_LIBRARIES_MAX: usize = 5;

/// Returns a warning about a large environment.
pub(super) fn too_large(layers: &[Layer], limit: u64) -> Option<String> {
    let bytes: u64 = layers.iter().map(|layer| layer.info.unpacked).sum();
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

/// Inspects the content of a layer.
pub(super) fn survey(plan: &Plan, python: Option<&DetectedPython>, paths: &[String]) -> LayerInfo {
    let site = python.map(DetectedPython::site).unwrap_or_default();
    let mut info = LayerInfo { unpacked: plan.bytes(), ..LayerInfo::default() };
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    let mut machines: BTreeMap<String, String> = BTreeMap::new();
    for (name, entry) in &plan.entries {
        let (from, bytes) = match &entry.kind {
            EntryKind::File { from, stamp } => (Some(from), stamp.bytes),
            EntryKind::ByteCode { stamp, .. } => (None, stamp.bytes),
            EntryKind::Bytes(bytes) => (None, bytes.len() as u64),
            EntryKind::Directory | EntryKind::Link { .. } => continue,
        };
        info.files += 1;
        let below = name.strip_prefix(&site).unwrap_or(name);
        if let Some(top) = below.iter().next() {
            *sizes.entry(top.to_string_lossy().into_owned()).or_default() += bytes;
        }
        let is_binary = ends(name, ".so")
            || name.to_string_lossy().contains(".so.")
            || (name.starts_with("bin") && entry.mode & 0o100 != 0);
        if let Some(elf) = from.filter(|_| is_binary).and_then(|from| elf::read(from)) {
            let file = name.to_string_lossy().into_owned();
            if let Some(version) = elf.glibc
                && info.glibc.as_ref().is_none_or(|(newest, _)| *newest < version)
            {
                info.glibc = Some((version, file.clone()));
            }
            check_library_paths(&elf, &file, python, paths, &mut info);
            machines.entry(elf.machine).or_insert(file);
        }
    }
    info.machines = machines.into_iter().collect();
    info.largest = sizes.into_iter().collect();
    info.largest.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), name.clone()));
    info.largest.truncate(LARGEST);
    info
}

/// Records a binary that looks up a library by an absolute path, which differs on a node. Paths without the library are ignored:
/// most are leftovers of the build machine.
fn check_library_paths(
    elf: &Elf,
    file: &str,
    python: Option<&DetectedPython>,
    paths: &[String],
    info: &mut LayerInfo,
) {
    for path in elf.paths.iter().filter(|path| path.starts_with('/')) {
        let dir = Path::new(path);
        let is_system = ["/usr", "/lib", "/lib64"].iter().any(|system| dir.starts_with(system));
        let is_interpreters = python.is_some_and(|python| dir.starts_with(python.base.join("lib")));
        let found = elf.needs.iter().find(|name| dir.join(name).is_file());
        let Some(name) = found.filter(|_| !is_system) else {
            continue;
        };
        let mut lib_dirs = paths.iter().map(|path| Path::new(path).join("lib"));
        if lib_dirs.any(|lib| lib.join(name).is_file()) {
            info.needs_library_path = true;
        } else if !is_interpreters && info.foreign_libraries.len() < FOREIGN_LIBRARIES_MAX {
            info.foreign_libraries.push((file.to_owned(), path.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::PACKAGES;
    use std::path::PathBuf;

    #[test]
    fn the_warning_about_a_large_environment_names_its_largest_packages() {
        let layer = |largest: &[(&str, u64)]| Layer {
            name: PACKAGES,
            file: PathBuf::new(),
            cached: false,
            info: LayerInfo {
                unpacked: largest.iter().map(|(_, bytes)| bytes).sum(),
                largest: largest.iter().map(|(name, bytes)| ((*name).into(), *bytes)).collect(),
                ..LayerInfo::default()
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
