//! From an environment to layers that change as seldom as possible.

use super::{
    archive,
    build::READY,
    bytecode,
    cache::{Cache, Known},
    elf,
    local::Local,
    plan::{Outside, Plan, What, ends},
    python::{Found, Kind},
    scripts,
};
use crate::{
    jobs::{INTERPRETER, LOCAL, MANIFEST, Manifest, PACKAGES, Python},
    os::reason,
    report::Report,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};
use ydl_core::spec::{Environment, Interpreter};

/// Changes whenever the same files would be packed into other bytes.
const FORMAT: &str = "ydl pack 1";
/// More than this takes a cluster minutes, every node of it.
const LARGE_BYTES: u64 = 5_000_000_000;
/// How many of the largest packages are named.
const LARGEST: usize = 5;
/// What people do about files that change.
const STILL: &str = "pack when nothing installs or builds there any more";

/// A packed environment.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Its layers, the most stable first.
    pub layers: Vec<Layer>,
    /// What it says of itself.
    pub manifest: Manifest,
    /// What a person should know of it.
    pub notes: Vec<String>,
}

/// One archive of a packed environment.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Which one.
    pub name: &'static str,
    /// Where it lies.
    pub file: PathBuf,
    /// What is known of it.
    #[serde(flatten)]
    pub known: Known,
    /// Whether it was there already.
    pub cached: bool,
}

/// Packs what an environment is made of; see [`super::make`] for what must be made first.
pub fn pack(environment: &Environment, cache: &Cache) -> Result<Packed, Report> {
    match environment {
        Environment::Directory(from) => {
            pack_directory(Path::new(&from.path), from.interpreter, cache)
        }
        Environment::Requirements(_)
        | Environment::Pex(_)
        | Environment::System
        | Environment::Archive(_)
        | Environment::Image(_) => Err(Report::bad_input("there is no environment to be packed")),
    }
}

/// Packs a directory with `bin` in it.
fn pack_directory(root: &Path, interpreter: Interpreter, cache: &Cache) -> Result<Packed, Report> {
    let python = Found::of(root)?;
    let mut job = Packing {
        root,
        cache,
        python: python.as_ref(),
        about: FORMAT.to_owned(),
        layers: Vec::new(),
        notes: Vec::new(),
    };
    let Some(python) = &python else {
        job.layer(PACKAGES, Plan::of(root)?)?;
        return job.finish(None, Plan::default());
    };
    job.about += &format!(" {} {:?}", python.tag(), python.was.to_bytes());
    let carried = match interpreter {
        Interpreter::Auto => python.kind == Kind::Prefix || !python.is_system(),
        Interpreter::Carry => true,
        Interpreter::Node => false,
    };
    let mut all = Plan::default();
    all.add_tree(root, Path::new(""), Outside::Refuse, &|below, path| {
        left_out(python, below, path)
    })?;
    let local = Local::of(root, &python.site(), &all)?;
    let mut own = local.split(&mut all)?;
    let mut installation = Plan::default();
    match python.kind {
        Kind::Venv if carried => {
            let unused = |below: &Path, _: &Path| python.is_unused(below);
            installation.add_tree(&python.base, Path::new(""), Outside::Leave, &unused)?;
            installation.notes.clear();
        }
        Kind::Venv => {}
        Kind::Prefix => installation = part(&mut all, python),
    }
    scripts::rewrite(&mut all);
    scripts::rewrite(&mut own);
    if carried {
        job.layer(INTERPRETER, installation)?;
    }
    job.layer(PACKAGES, all)?;
    if python.system_packages {
        job.notes.push(format!(
            "the environment also sees the packages of `{}`, which do not travel with it",
            python.base.display()
        ));
    }
    let python = Python {
        minor: python.minor.clone(),
        version: python.version.clone(),
        executable: python.executable.to_string_lossy().into_owned(),
        carried,
        told_libraries: carried && python.told_libraries(),
        tools: python.kind == Kind::Prefix,
        system_packages: python.system_packages,
    };
    job.finish(Some(python), own)
}

/// What is made anew where the environment arrives, or belongs to nobody.
fn left_out(python: &Found, below: &Path, path: &Path) -> bool {
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let versioned = |name: &str| {
        let rest = name.strip_prefix("python");
        rest.is_some_and(|rest| {
            rest.chars()
                .all(|c| c.is_ascii_digit() || c == '.' || c == 'w')
        })
    };
    match (&python.kind, parts.as_slice()) {
        (Kind::Venv, ["pyvenv.cfg" | ".lock" | ".gitignore" | "CACHEDIR.TAG" | READY]) => true,
        (Kind::Venv, ["lib64"]) => path.is_symlink(),
        (Kind::Venv, ["bin", name]) => {
            versioned(name)
                || name.to_lowercase().starts_with("activate")
                || name.starts_with("deactivate")
        }
        (Kind::Prefix, ["pkgs" | "envs" | "conda-meta" | ".condarc"]) => true,
        (Kind::Prefix, ["lib", library, inside]) => {
            library.starts_with("python3") && (*inside == "test" || inside.starts_with("config-"))
        }
        _ => false,
    }
}

/// Of an interpreter with everything around it, what is not Python's packages.
fn part(all: &mut Plan, python: &Found) -> Plan {
    let site = python.site();
    let mut installation = Plan::default();
    let names: Vec<PathBuf> = all.entries.keys().cloned().collect();
    for name in names {
        let script =
            |what: &What| matches!(what, What::File { from, .. } if scripts::is_python(from));
        let stays = match all.entries.get(&name) {
            Some(entry) => {
                name.starts_with(&site) || (name.starts_with("bin") && script(&entry.what))
            }
            None => true,
        };
        if !stays
            && !site.starts_with(&name)
            && name != Path::new("bin")
            && let Some(entry) = all.entries.remove(&name)
        {
            installation.put(name, entry.mode, entry.what);
        }
    }
    installation
}

struct Packing<'a> {
    root: &'a Path,
    cache: &'a Cache,
    python: Option<&'a Found>,
    about: String,
    layers: Vec<Layer>,
    notes: Vec<String>,
}

impl Packing<'_> {
    /// Packs one layer, unless that was done before.
    fn layer(&mut self, name: &'static str, mut plan: Plan) -> Result<(), Report> {
        self.notes.append(&mut plan.notes);
        let key = plan.key(&self.about);
        let (file, known, cached) = match self.cache.find(&key) {
            Some((file, known)) => (file, known, true),
            None => {
                let (file, known) = self.write(&key, plan)?;
                (file, known, false)
            }
        };
        self.layers.push(Layer {
            name,
            file,
            known,
            cached,
        });
        Ok(())
    }

    fn write(&self, key: &str, mut plan: Plan) -> Result<(PathBuf, Known), Report> {
        let aside = self.cache.aside()?;
        let archive = aside.path().join("layer.tar.gz");
        let failed = |error: std::io::Error| super::cache::failed(aside.path(), &error);
        if let Some(python) = self.python {
            let missing = bytecode::sort_out(&mut plan, &python.tag());
            bytecode::compile(&mut plan, &missing, &python.executable, aside.path())
                .map_err(failed)?;
        }
        let mut known = survey(&plan, self.python);
        let file = File::create(&archive).map_err(failed)?;
        let mut out = BufWriter::new(file);
        let written = archive::write(&plan, &mut out).map_err(|error| {
            let what = format!("cannot pack `{}`: {}", self.root.display(), reason(&error));
            Report::bad_input(what).hint(STILL)
        })?;
        known.hash = written.hash;
        known.bytes = written.bytes;
        let kept = self.cache.keep(key, &archive, &known)?;
        Ok((kept, known))
    }

    /// Packs the user's own, with the description of it all.
    fn finish(mut self, python: Option<Python>, mut own: Plan) -> Result<Packed, Report> {
        let newest = |known: &Known| known.glibc.clone();
        let here = self.python.and_then(|python| elf::read(&python.executable));
        let here = here.map(|elf| elf.machine);
        let surveyed = survey(&own, self.python);
        let known: Vec<&Known> = self.layers.iter().map(|layer| &layer.known).collect();
        let glibc = known
            .iter()
            .copied()
            .chain([&surveyed])
            .filter_map(newest)
            .max();
        let machines = known
            .iter()
            .copied()
            .chain([&surveyed])
            .flat_map(|known| &known.machines);
        for (machine, file) in machines {
            if let Some(here) = here.as_ref().filter(|here| *here != machine) {
                self.notes.push(format!(
                    "`{file}` is for another machine: it is made for {machine}, the interpreter for {here}"
                ));
            }
        }
        let manifest = Manifest {
            format: Manifest::FORMAT,
            machine: here,
            glibc: glibc.as_ref().map(|(version, _)| *version),
            glibc_file: glibc.map(|(_, file)| file),
            python,
        };
        let mut bytes = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| Report::trouble(format!("cannot write JSON: {error}")))?;
        bytes.push(b'\n');
        own.put(MANIFEST.into(), 0o644, What::Bytes(bytes));
        self.layer(LOCAL, own)?;
        self.notes.extend(too_large(&self.layers, LARGE_BYTES));
        Ok(Packed {
            layers: self.layers,
            manifest,
            notes: self.notes,
        })
    }
}

/// Whether it is so large that somebody should think about it.
fn too_large(layers: &[Layer], limit: u64) -> Option<String> {
    let bytes: u64 = layers.iter().map(|layer| layer.known.unpacked).sum();
    if bytes < limit {
        return None;
    }
    let mut largest: Vec<_> = layers
        .iter()
        .flat_map(|layer| &layer.known.largest)
        .collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let largest: Vec<_> = largest
        .iter()
        .take(LARGEST)
        .map(|(name, bytes)| format!("`{name}` {} MB", bytes / 1_000_000))
        .collect();
    Some(format!(
        "the environment has {} MB, which every node must fetch and unpack; the largest: {}",
        bytes / 1_000_000,
        largest.join(", ")
    ))
}

/// What is in a layer.
fn survey(plan: &Plan, python: Option<&Found>) -> Known {
    let site = python.map(Found::site).unwrap_or_default();
    let mut known = Known {
        unpacked: plan.bytes(),
        ..Known::default()
    };
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
                && known
                    .glibc
                    .as_ref()
                    .is_none_or(|(known, _)| *known < version)
            {
                known.glibc = Some((version, file.clone()));
            }
            machines.entry(elf.machine).or_insert(file);
        }
    }
    known.machines = machines.into_iter().collect();
    known.largest = sizes.into_iter().collect();
    known
        .largest
        .sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), name.clone()));
    known.largest.truncate(LARGEST);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_names_its_largest_packages() {
        let layer = |largest: &[(&str, u64)]| Layer {
            name: PACKAGES,
            file: PathBuf::new(),
            cached: false,
            known: Known {
                unpacked: largest.iter().map(|(_, bytes)| bytes).sum(),
                largest: largest
                    .iter()
                    .map(|(name, bytes)| ((*name).into(), *bytes))
                    .collect(),
                ..Known::default()
            },
        };
        let layers = [
            layer(&[("torch", 4_000_000_000)]),
            layer(&[("mine", 5_000_000_000)]),
        ];
        assert_eq!(too_large(&layers, 10_000_000_000), None);
        assert_eq!(
            too_large(&layers, LARGE_BYTES).as_deref(),
            Some(
                "the environment has 9000 MB, which every node must fetch and unpack; the largest: `mine` 5000 MB, `torch` 4000 MB"
            )
        );
    }
}
