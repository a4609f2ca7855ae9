//! Splits an environment into layers that change as rarely as possible.

use super::{
    archive,
    build::READY,
    bytecode::{self, Compiler},
    cache::{Cache, LayerInfo},
    elf,
    local::LocalCode,
    plan::{EntryKind, OutsideLinks, Plan, READABLE},
    prefix,
    python::{DetectedPython, EnvironmentKind, is_system},
    scripts,
    survey::{LARGE_BYTES, survey, too_large},
};
use crate::manifest::{INTERPRETER, LOCAL, MANIFEST, Manifest, PACKAGES, Python};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
};
use ydl_core::spec::{Environment, Interpreter};
use ydl_os::{reason, report::Report};

/// Part of the key: changes whenever the same files would be packed into other bytes.
const FORMAT: &str = "ydl pack 3";
/// Size from which packing a layer takes long enough for a message.
const NOTIFIED_BYTES_MIN: u64 = 64 << 20;
/// Hint for files that change while they are packed.
const RETRY_HINT: &str = "retry when no other process installs or builds there";

/// Packed environment.
#[derive(Clone, Debug)]
pub struct PackedEnvironment {
    /// Layers, the most stable first.
    pub layers: Vec<Layer>,
    /// Description included in the layer `local`.
    pub manifest: Manifest,
    /// Warnings for the user.
    pub notes: Vec<String>,
}

impl PackedEnvironment {
    /// Returns the `count` largest packages.
    pub fn largest(&self, count: usize) -> Vec<&(String, u64)> {
        largest(&self.layers, count)
    }
}

/// Returns the `count` largest packages of some layers.
pub(super) fn largest(layers: &[Layer], count: usize) -> Vec<&(String, u64)> {
    let all = layers.iter().flat_map(|layer| &layer.info.largest);
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    all.truncate(count);
    all
}

/// Archive of a packed environment.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Name of the layer.
    pub name: &'static str,
    /// Path of the archive.
    pub file: PathBuf,
    /// Description of its content.
    #[serde(flatten)]
    pub info: LayerInfo,
    /// The layer was in the cache.
    pub cached: bool,
}

/// Packs an environment; see [`super::build`] for those that must be built first.
pub fn pack(environment: &Environment, cache: &Cache) -> Result<PackedEnvironment, Report> {
    match environment {
        Environment::Directory(from) => {
            pack_directory(Path::new(&from.path), from.interpreter, cache)
        }
        Environment::Requirements(_)
        | Environment::Pex(_)
        | Environment::System
        | Environment::Archive(_)
        | Environment::Image(_) => Err(Report::bad_input("there is no environment to pack")),
    }
}

/// Packs a directory with `bin` in it.
fn pack_directory(
    root: &Path,
    interpreter: Interpreter,
    cache: &Cache,
) -> Result<PackedEnvironment, Report> {
    if root.canonicalize().is_ok_and(|real| is_system(&real)) {
        let what = format!(
            "the environment `{}` cannot be packed: it is the system installation",
            root.display()
        );
        let hint = "use `environment: system` for the nodes' installation, or create an environment with `python3 -m venv venv`";
        return Err(Report::bad_input(what).hint(hint));
    }
    let python = DetectedPython::of(root)?;
    let mut job = Packer {
        root,
        cache,
        python: python.as_ref(),
        paths: paths(root),
        key_prefix: FORMAT.to_owned(),
        layers: Vec::new(),
        notes: Vec::new(),
    };
    let Some(python) = &python else {
        job.layer(PACKAGES, Plan::of(root)?)?;
        return job.finish(None, Plan::default());
    };
    let interpreter_key = (python.tag(), python.stamp.fingerprint(), &job.paths);
    job.key_prefix += &format!(" {interpreter_key:?}");
    let bundled = match (&python.kind, interpreter) {
        (EnvironmentKind::Prefix, Interpreter::Node) => {
            let what = format!(
                "the environment `{}` cannot be packed without its interpreter: its packages depend on the whole installation",
                root.display()
            );
            let hint =
                "remove `interpreter`, or create a virtual environment with `python3 -m venv`";
            return Err(Report::bad_input(what).hint(hint));
        }
        (EnvironmentKind::Prefix, Interpreter::Auto) | (_, Interpreter::Bundle) => true,
        (EnvironmentKind::Venv, Interpreter::Auto) => !python.is_system(),
        (EnvironmentKind::Venv, Interpreter::Node) => false,
    };
    let mut all = Plan::default();
    all.add_tree(root, Path::new(""), OutsideLinks::Refuse, &|below, path| {
        is_excluded(python, below, path)
    })?;
    let local = LocalCode::of(root, &python.site(), &all)?;
    let mut own = local.split(&mut all)?;
    let mut installation = Plan::default();
    match python.kind {
        EnvironmentKind::Venv if bundled => {
            let libraries = python.libraries();
            let unused = |below: &Path, _: &Path| python.is_unused(below, &libraries);
            installation.add_tree(&python.base, Path::new(""), OutsideLinks::Skip, &unused)?;
            installation.notes.clear();
        }
        EnvironmentKind::Venv => {}
        EnvironmentKind::Prefix => {
            installation = prefix::split_installation(&mut all, root, &python.site());
            scripts::rewrite(&mut installation, &job.paths);
        }
    }
    scripts::rewrite(&mut all, &job.paths);
    scripts::rewrite(&mut own, &job.paths);
    if bundled {
        job.layer(INTERPRETER, installation)?;
    }
    job.layer(PACKAGES, all)?;
    if python.system_packages {
        job.notes.push(format!(
            "the environment also uses the packages of `{}`, which are not packed",
            python.base.display()
        ));
    }
    let infos = || job.layers.iter().map(|layer| &layer.info);
    let binaries: Vec<String> = infos().flat_map(|info| info.binaries_with_path.clone()).collect();
    let notes = infos().flat_map(|info| &info.foreign_libraries).map(|(file, dir)| {
        format!("`{file}` looks for libraries in `{dir}`, which must exist on the nodes too")
    });
    let notes: Vec<String> = notes.collect();
    let packages_need_library_path = infos().any(|info| info.needs_library_path);
    job.notes.extend(notes);
    if python.kind == EnvironmentKind::Prefix {
        job.notes.extend(prefix::notes(root, &binaries));
    }
    let python = Python {
        minor: python.minor.clone(),
        version: python.version.clone(),
        executable: python.executable.to_string_lossy().into_owned(),
        bundled,
        needs_library_path: bundled && python.needs_library_path(),
        packages_need_library_path,
        whole: python.kind == EnvironmentKind::Prefix,
        system_packages: python.system_packages,
    };
    job.finish(Some(python), own)
}

/// Returns whether a file is recreated on the node or not needed there.
fn is_excluded(python: &DetectedPython, below: &Path, path: &Path) -> bool {
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let versioned = |name: &str| {
        let rest = name.strip_prefix("python");
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 'w'))
    };
    match (&python.kind, parts.as_slice()) {
        (
            EnvironmentKind::Venv,
            ["pyvenv.cfg" | ".lock" | ".gitignore" | "CACHEDIR.TAG" | READY],
        ) => true,
        (EnvironmentKind::Venv, ["lib64"]) => path.is_symlink(),
        (EnvironmentKind::Venv, ["bin", name]) => {
            versioned(name)
                || name.to_lowercase().starts_with("activate")
                || name.starts_with("deactivate")
        }
        (EnvironmentKind::Prefix, ["pkgs" | "envs" | ".condarc"]) => true,
        // The file marks a conda environment; conda's own records are useless without conda.
        (EnvironmentKind::Prefix, ["conda-meta", name]) => *name != "history",
        (EnvironmentKind::Prefix, ["lib", library, inside]) => {
            library.starts_with("python3") && (*inside == "test" || inside.starts_with("config-"))
        }
        _ => false,
    }
}

/// Returns whether the disk was full.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Returns the absolute paths of an environment, the longest first since one may contain another. Excludes links to the
/// environment and directories directly below `/`.
fn paths(root: &Path) -> Vec<String> {
    let given = std::path::absolute(root).ok();
    let given = given.filter(|path| !path.is_symlink());
    let real = root.canonicalize().ok();
    let mut paths: Vec<String> = [given, real]
        .into_iter()
        .flatten()
        .filter(|path| path.components().count() > 2)
        .filter_map(|path| Some(path.to_str()?.trim_end_matches('/').to_owned()))
        .collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.len()));
    paths.dedup();
    paths
}

struct Packer<'a> {
    root: &'a Path,
    cache: &'a Cache,
    python: Option<&'a DetectedPython>,
    /// Absolute paths of the environment.
    paths: Vec<String>,
    /// Part of the key of every layer.
    key_prefix: String,
    layers: Vec<Layer>,
    notes: Vec<String>,
}

impl Packer<'_> {
    /// Packs one layer unless it is cached.
    fn layer(&mut self, name: &'static str, mut plan: Plan) -> Result<(), Report> {
        self.notes.append(&mut plan.notes);
        let key = plan.key(&self.key_prefix);
        let (file, info, cached) = match self.cache.find(&key) {
            Some((file, info)) => (file, info, true),
            None => {
                let _lock = self.cache.lock(&key)?;
                // Another process may have packed it meanwhile.
                match self.cache.find(&key) {
                    Some((file, info)) => (file, info, true),
                    None => {
                        let (file, info) = self.write(name, &key, plan)?;
                        (file, info, false)
                    }
                }
            }
        };
        self.layers.push(Layer { name, file, info, cached });
        Ok(())
    }

    fn write(&self, name: &str, key: &str, mut plan: Plan) -> Result<(PathBuf, LayerInfo), Report> {
        let bytes = plan.bytes();
        if bytes >= NOTIFIED_BYTES_MIN {
            let mib = bytes >> 20;
            self.cache.notify(format!("packing the layer `{name}`: {mib} MiB"));
        }
        let temporary = self.cache.temporary_dir()?;
        let archive = temporary.path().join("layer.tar.gz");
        let failed = |error: std::io::Error| super::cache::failed(temporary.path(), &error);
        if let Some(python) = self.python {
            let missing = bytecode::match_sources(&mut plan, &python.tag());
            let cache_dir = self.cache.byte_code_dir();
            let compiler = Compiler {
                python: &python.executable,
                python_stamp: python.stamp,
                work_dir: temporary.path(),
                cache_dir: Some(cache_dir.as_path()).filter(|_| name == LOCAL),
            };
            compiler.compile(&mut plan, &missing).map_err(failed)?;
        }
        let mut info = survey(&plan, self.python, &self.paths);
        if let Some(python) = self.python {
            self.find_embedded_paths(name, &plan, python, &mut info);
        }
        let file = File::create(&archive).map_err(failed)?;
        let mut out = BufWriter::new(file);
        let written = archive::write(&plan, &mut out).map_err(|error| {
            if is_full(&error) {
                return failed(error);
            }
            let what = format!("cannot pack `{}`: {}", self.root.display(), reason(&error));
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => READABLE,
                _ => RETRY_HINT,
            };
            Report::bad_input(what).hint(hint)
        })?;
        info.hash = written.hash;
        info.bytes = written.bytes;
        let cached = self.cache.insert(key, &archive, &info)?;
        Ok((cached, info))
    }

    /// Finds the files of a layer that contain the path of the environment.
    fn find_embedded_paths(
        &self,
        name: &str,
        plan: &Plan,
        python: &DetectedPython,
        info: &mut LayerInfo,
    ) {
        let site = python.site();
        match (&python.kind, name) {
            (_, LOCAL) | (EnvironmentKind::Venv, INTERPRETER) => {}
            (EnvironmentKind::Venv, _) => {
                info.texts_with_path = prefix::texts_with_path(plan, &self.paths, Some(&site))
            }
            (EnvironmentKind::Prefix, _) => {
                info.texts_with_path = prefix::texts_with_path(plan, &self.paths, None)
            }
        }
        if (&python.kind, name) == (&EnvironmentKind::Prefix, INTERPRETER) {
            info.binaries_with_path = prefix::binaries_with_path(self.root);
        }
    }

    /// Packs the user's own code with the description of all layers.
    fn finish(
        mut self,
        python: Option<Python>,
        mut own: Plan,
    ) -> Result<PackedEnvironment, Report> {
        let newest = |info: &LayerInfo| info.glibc.clone();
        let interpreter = self.python.and_then(|python| elf::read(&python.executable));
        let interpreter_machine = interpreter.map(|elf| elf.machine);
        let own_info = survey(&own, self.python, &self.paths);
        let infos: Vec<&LayerInfo> = self.layers.iter().map(|layer| &layer.info).collect();
        let glibc = infos.iter().copied().chain([&own_info]).filter_map(newest).max();
        let machines = infos.iter().copied().chain([&own_info]).flat_map(|info| &info.machines);
        for (machine, file) in machines {
            if let Some(expected) = interpreter_machine.as_ref().filter(|own| *own != machine) {
                self.notes.push(format!(
                    "`{file}` is built for {machine}, and the interpreter for {expected}"
                ));
            }
        }
        let texts = infos.iter().flat_map(|info| info.texts_with_path.clone());
        let texts_with_path: Vec<String> = texts.collect();
        let manifest = Manifest {
            original_paths: match texts_with_path.is_empty() {
                true => Vec::new(),
                false => self.paths.clone(),
            },
            texts_with_path,
            format: Manifest::FORMAT,
            machine: interpreter_machine,
            glibc: glibc.as_ref().map(|(version, _)| *version),
            glibc_file: glibc.map(|(_, file)| file),
            python,
        };
        let mut bytes = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| Report::internal(format!("cannot write JSON: {error}")))?;
        bytes.push(b'\n');
        own.put(MANIFEST.into(), 0o644, EntryKind::Bytes(bytes));
        self.layer(LOCAL, own)?;
        self.notes.extend(too_large(&self.layers, LARGE_BYTES));
        Ok(PackedEnvironment { layers: self.layers, manifest, notes: self.notes })
    }
}
