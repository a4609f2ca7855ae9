//! Assembles a packed environment on a node.
//!
//! Its layers lie in the node's cache, unpacked once for all containers and later jobs, and are read-only. A container
//! gets a small virtual environment of its own that consists of links into them.

use composition::Composition;
use rustix::system::uname;
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    thread,
};
use unpack::unpacked;
use ydl_core::spec::Environment;
use ydl_os::env::RUNTIME_TYPE;
use ydl_pack::manifest::{ENVIRONMENT, INTERPRETER, LOCAL, MANIFEST, Manifest, PACKAGES, Python};
use ydl_proto::files::{JobTarget, SubmittedJob};

mod composition;
mod unpack;

/// Maximum size of a manifest.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of a C library.
const LIBRARY_BYTES_MAX: u64 = 64 << 20;
/// Directories searched for interpreters in addition to `PATH`.
const SYSTEM_PATHS: [&str; 2] = ["/usr/bin", "/usr/local/bin"];

/// Settings that activate an environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// Directory of the environment.
    prefix: PathBuf,
    /// Additional library directories.
    libraries: Vec<PathBuf>,
}

impl Activation {
    /// Activates an existing environment in place.
    pub(crate) fn in_place(prefix: PathBuf) -> Activation {
        Activation { prefix, ..Activation::default() }
    }

    /// Sets the variables that an activation script would set.
    pub fn apply(&self, env: &mut BTreeMap<String, String>) {
        let mut before = |name: &str, path: &Path| {
            let old = env.get(name).filter(|old| !old.is_empty());
            let old = old.map(|old| format!(":{old}")).unwrap_or_default();
            let value = path.display().to_string() + &old;
            env.insert(name.to_owned(), value);
        };
        before("PATH", &self.prefix.join("bin"));
        for libraries in self.libraries.iter().rev() {
            before("LD_LIBRARY_PATH", libraries);
        }
        env.remove("PYTHONHOME");
        let prefix = self.prefix.display().to_string();
        if !self.prefix.join("conda-meta").is_dir() {
            env.insert("VIRTUAL_ENV".to_owned(), prefix);
            return;
        }
        env.insert("CONDA_PREFIX".to_owned(), prefix);
        // conda's OpenSSL looks for it where it was installed.
        let certificates = self.prefix.join("ssl/cacert.pem");
        if certificates.is_file() {
            let certificates = certificates.display().to_string();
            env.entry("SSL_CERT_FILE".to_owned()).or_insert(certificates);
        }
    }
}

/// Unpacks the shipped layers of a job's environment concurrently and in advance. `job` and `container` are their
/// directories. [`compose`] reports errors.
pub fn unpack(submitted: &SubmittedJob, job: &Path, container: &Path) {
    let packed = match &submitted.spec.environment {
        Environment::Directory(_) | Environment::Requirements(_) | Environment::Pex(_) => true,
        Environment::System | Environment::Archive(_) | Environment::Image(_) => false,
    };
    // Agents in images have no use for it.
    let in_image = env::var_os(RUNTIME_TYPE).is_some();
    if !packed || in_image || matches!(submitted.target, JobTarget::Local(_)) {
        return;
    }
    let own = own_layers(&prefix(container));
    let all = [INTERPRETER, PACKAGES, LOCAL].map(|name| shipped(job).join(name));
    thread::scope(|scope| {
        for layer in all.iter().filter(|layer| layer.exists()) {
            scope.spawn(|| unpacked(layer, &own));
        }
    });
}

/// Returns the directory of the shipped environment in a job's directory.
pub fn shipped(job: &Path) -> PathBuf {
    job.join(ENVIRONMENT)
}

/// Returns the directory of a container's environment.
pub fn prefix(container: &Path) -> PathBuf {
    container.join("venv")
}

/// Returns the directory for layers that a container cannot share.
fn own_layers(prefix: &Path) -> PathBuf {
    prefix.with_file_name("layers")
}

/// Composes the layers below `layers` at `prefix`. Keeps an existing result.
pub fn compose(layers: &Path, prefix: &Path) -> Result<Activation, String> {
    let fallback = own_layers(prefix);
    let layer = |name: &str| unpacked(&layers.join(name), &fallback);
    let local = layer(LOCAL)?;
    let manifest = manifest(&local.join(MANIFEST))?;
    let machine = uname();
    let machine = machine.machine().to_string_lossy();
    check_node(&manifest, &machine, glibc())?;
    let packages = layer(PACKAGES)?;
    let Some(python) = &manifest.python else {
        return Ok(Activation::in_place(packages));
    };
    let installation = match python.bundled {
        true => Some(layer(INTERPRETER)?),
        false => None,
    };
    let executable = match &installation {
        Some(dir) => bundled(dir, python)?,
        None => find_interpreter(python, env::var_os("PATH").unwrap_or_default())?,
    };
    let whole = installation.clone().filter(|_| python.whole);
    let sources: Vec<PathBuf> = whole.into_iter().chain([packages, local]).collect();
    Composition::new(&manifest, python, prefix, &sources)
        .build(&executable)
        .map_err(|e| format!("cannot put the environment together: {e}"))?;
    let prefix_libraries =
        python.packages_need_library_path || (python.needs_library_path && python.whole);
    let prefix_libraries = prefix_libraries.then(|| prefix.to_path_buf());
    let base = installation.filter(|_| python.needs_library_path && !python.whole);
    let libraries = |dir: PathBuf| match dir.join("lib64").is_dir() {
        true => dir.join("lib64"),
        false => dir.join("lib"),
    };
    let libraries =
        prefix_libraries.map(|dir| dir.join("lib")).into_iter().chain(base.map(libraries));
    Ok(Activation { prefix: prefix.to_path_buf(), libraries: libraries.collect() })
}

fn manifest(path: &Path) -> Result<Manifest, String> {
    let cannot = |e: &dyn std::fmt::Display| format!("cannot read `{}`: {e}", path.display());
    let mut text = Vec::new();
    let file = File::open(path).map_err(|e| cannot(&e))?;
    let mut file = file.take(MANIFEST_BYTES_MAX);
    file.read_to_end(&mut text).map_err(|e| cannot(&e))?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| cannot(&e))?;
    match manifest.format {
        Manifest::FORMAT => Ok(manifest),
        other => Err(cannot(&format!("unknown format {other}"))),
    }
}

/// Checks that this node can run the environment.
fn check_node(manifest: &Manifest, machine: &str, glibc: Option<(u32, u32)>) -> Result<(), String> {
    if let Some(required) = manifest.machine.as_ref().filter(|required| *required != machine) {
        return Err(format!(
            "the environment was built for {required}, but this node is {machine}; build it on a machine like the nodes"
        ));
    }
    if let (Some(required), Some(available)) = (manifest.glibc, glibc)
        && required > available
    {
        let file = manifest.glibc_file.as_deref().unwrap_or("something in it");
        return Err(format!(
            "the environment needs glibc {}.{} (`{file}`), but this node has {}.{}; install wheels for an older Linux, \
             or use nodes with a newer one",
            required.0, required.1, available.0, available.1
        ));
    }
    Ok(())
}

/// Returns the version of the C library that this process has loaded.
fn glibc() -> Option<(u32, u32)> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with("/libc.so.6") || path.contains("/libc-2."))?;
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LIBRARY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let marker = b"GNU C Library ";
    let at = bytes.windows(marker.len()).position(|part| part == marker)?;
    let banner = String::from_utf8_lossy(bytes.get(at..at + 200)?).into_owned();
    let version = banner.split("release version ").nth(1)?;
    let version = version.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the shipped interpreter.
fn bundled(dir: &Path, python: &Python) -> Result<PathBuf, String> {
    let name = Path::new(&python.executable).file_name().unwrap_or_default();
    let path = dir.join("bin").join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("the environment has no interpreter `{}`", path.display())),
    }
}

/// Finds an interpreter on this node: first at its original path, then in `PATH` and the usual directories.
fn find_interpreter(python: &Python, path: OsString) -> Result<PathBuf, String> {
    let name = format!("python{}", python.minor);
    let mut candidates = vec![PathBuf::from(&python.executable)];
    candidates.extend(env::split_paths(&path).map(|dir| dir.join(&name)));
    candidates.extend(SYSTEM_PATHS.map(|dir| Path::new(dir).join(&name)));
    let mut seen = Vec::new();
    for candidate in candidates {
        let text = candidate.display().to_string();
        if seen.contains(&text) {
            continue;
        }
        if let Some(found) = interpreter(&candidate, python) {
            return Ok(found);
        }
        seen.push(text);
    }
    Err(format!(
        "this node has no Python {}: tried `{}`; set `interpreter: bundle` below `environment` to ship one",
        python.minor,
        seen.join("`, `")
    ))
}

/// Resolves the program of that name, with its standard library next to it. Rejects wrapper scripts.
fn interpreter(path: &Path, python: &Python) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let mut head = [0; 4];
    File::open(&real).ok()?.read_exact(&mut head).ok()?;
    let base = real.parent()?.parent()?;
    let library = |lib: &str| base.join(lib).join(format!("python{}/os.py", python.minor));
    let whole = library("lib").is_file() || library("lib64").is_file();
    (&head == b"\x7fELF" && whole).then_some(real)
}

#[cfg(test)]
mod tests;
