//! Putting a packed environment together where a task runs.
//!
//! Its layers lie in the node's cache, unpacked once for all containers and later jobs, and nobody writes to them. A
//! container gets a small virtual environment of its own that consists of links into them.

use crate::jobs::{INTERPRETER, LOCAL, MANIFEST, Manifest, PACKAGES, Python};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Longer than any description.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Longer than any C library.
const LIBRARY_BYTES_MAX: u64 = 64 << 20;
/// Where interpreters lie, whatever `PATH` says.
const PLACES: [&str; 2] = ["/usr/bin", "/usr/local/bin"];

/// What makes an environment the active one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// The environment itself.
    prefix: PathBuf,
    /// What comes after its own `bin` in `PATH`.
    tools: Option<PathBuf>,
    /// Where the interpreter's own library is, if it does not know.
    libraries: Option<PathBuf>,
}

impl Activation {
    /// Of an environment that is there as it is.
    pub fn of(prefix: PathBuf) -> Activation {
        Activation {
            prefix,
            ..Activation::default()
        }
    }

    /// What a person gets by activating it.
    pub fn apply(&self, env: &mut BTreeMap<String, String>) {
        let mut before = |name: &str, path: &Path| {
            let old = env.get(name).filter(|old| !old.is_empty());
            let old = old.map(|old| format!(":{old}")).unwrap_or_default();
            let value = path.display().to_string() + &old;
            env.insert(name.to_owned(), value);
        };
        if let Some(tools) = &self.tools {
            before("PATH", &tools.join("bin"));
        }
        before("PATH", &self.prefix.join("bin"));
        if let Some(libraries) = &self.libraries {
            before("LD_LIBRARY_PATH", libraries);
        }
        let prefix = self.prefix.display().to_string();
        if let Some(tools) = &self.tools {
            env.insert("CONDA_PREFIX".to_owned(), tools.display().to_string());
        }
        env.insert("VIRTUAL_ENV".to_owned(), prefix);
        env.remove("PYTHONHOME");
    }
}

/// Puts together at `prefix` what lies below `layers`; what was put together before is taken as it is.
pub fn compose(layers: &Path, prefix: &Path) -> Result<Activation, String> {
    let manifest = manifest(&layers.join(LOCAL).join(MANIFEST))?;
    fits(&manifest, env::consts::ARCH, glibc())?;
    let layer = |name: &str| {
        let dir = layers.join(name);
        let real = dir.canonicalize();
        real.map_err(|e| format!("the environment has no layer `{}`: {e}", dir.display()))
    };
    let packages = layer(PACKAGES)?;
    let Some(python) = &manifest.python else {
        return Ok(Activation::of(packages));
    };
    let installation = match python.carried {
        true => Some(layer(INTERPRETER)?),
        false => None,
    };
    let executable = match &installation {
        Some(dir) => carried(dir, python)?,
        None => look_for(python, env::var_os("PATH").unwrap_or_default())?,
    };
    let sources = [packages, layer(LOCAL)?];
    build(prefix, &sources, python, &executable)
        .map_err(|e| format!("cannot put the environment together: {e}"))?;
    Ok(Activation {
        prefix: prefix.to_path_buf(),
        tools: installation.clone().filter(|_| python.tools),
        libraries: installation
            .filter(|_| python.told_libraries)
            .map(|dir| dir.join("lib")),
    })
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
        other => Err(cannot(&format!("its format {other} is not known"))),
    }
}

/// Whether this node can run what is in it.
fn fits(manifest: &Manifest, machine: &str, glibc: Option<(u32, u32)>) -> Result<(), String> {
    if let Some(wanted) = manifest.machine.as_ref().filter(|it| *it != machine) {
        return Err(format!(
            "the environment is made for {wanted}, and this node is a {machine}; make it on a machine like the nodes"
        ));
    }
    if let (Some(wanted), Some(here)) = (manifest.glibc, glibc)
        && wanted > here
    {
        let file = manifest.glibc_file.as_deref().unwrap_or("something in it");
        return Err(format!(
            "the environment needs glibc {}.{} (`{file}`), and this node has {}.{}; install wheels for an older Linux, \
             or use nodes with a newer one",
            wanted.0, wanted.1, here.0, here.1
        ));
    }
    Ok(())
}

/// Which C library this process has loaded, by what the library says of itself.
fn glibc() -> Option<(u32, u32)> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with("/libc.so.6") || path.contains("/libc-2."))?;
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LIBRARY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let mark = b"GNU C Library ";
    let at = bytes.windows(mark.len()).position(|part| part == mark)?;
    let said = String::from_utf8_lossy(bytes.get(at..at + 200)?).into_owned();
    let version = said.split("release version ").nth(1)?;
    let version = version
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()?;
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The interpreter that came along.
fn carried(dir: &Path, python: &Python) -> Result<PathBuf, String> {
    let name = Path::new(&python.executable)
        .file_name()
        .unwrap_or_default();
    let path = dir.join("bin").join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("there is no interpreter `{}`", path.display())),
    }
}

/// An interpreter of this node: the same place as where it was packed, then wherever such lie.
fn look_for(python: &Python, path: OsString) -> Result<PathBuf, String> {
    let name = format!("python{}", python.minor);
    let mut candidates = vec![PathBuf::from(&python.executable)];
    candidates.extend(env::split_paths(&path).map(|dir| dir.join(&name)));
    candidates.extend(PLACES.map(|dir| Path::new(dir).join(&name)));
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
        "this node has no Python {}: looked for `{}`; say `interpreter: carry` below `environment` to bring it along",
        python.minor,
        seen.join("`, `")
    ))
}

/// The program behind that name, with its standard library beside it. A script that starts one is none.
fn interpreter(path: &Path, python: &Python) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let mut head = [0; 4];
    File::open(&real).ok()?.read_exact(&mut head).ok()?;
    let base = real.parent()?.parent()?;
    let library = |lib: &str| base.join(lib).join(format!("python{}/os.py", python.minor));
    let whole = library("lib").is_file() || library("lib64").is_file();
    (&head == b"\x7fELF" && whole).then_some(real)
}

/// Makes the environment; its `pyvenv.cfg` comes last.
fn build(prefix: &Path, sources: &[PathBuf], python: &Python, executable: &Path) -> io::Result<()> {
    let ready = prefix.join("pyvenv.cfg");
    if ready.is_file() {
        return Ok(());
    }
    match fs::remove_dir_all(prefix) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let library = PathBuf::from(format!("lib/python{}", python.minor));
    let own = [
        PathBuf::from("bin"),
        PathBuf::from("lib"),
        library.clone(),
        library.join("site-packages"),
    ];
    for dir in &own {
        fs::create_dir_all(prefix.join(dir))?;
    }
    overlay(sources, prefix, Path::new(""), &own)?;
    let bin = prefix.join("bin");
    for (name, to) in [
        ("python", executable),
        ("python3", Path::new("python")),
        (&format!("python{}", python.minor), Path::new("python")),
    ] {
        let link = bin.join(name);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(to, link)?;
    }
    let home = executable.parent().unwrap_or(Path::new("/"));
    let said = format!(
        "home = {}\ninclude-system-site-packages = {}\nversion = {}\nexecutable = {}\n",
        home.display(),
        python.system_packages,
        python.version,
        executable.display()
    );
    fs::write(ready, said)
}

/// Links what the sources have into `to`. A directory that several have, or that must be the container's own, is made and filled
/// in the same way; of files of one name the last source's is taken.
fn overlay(sources: &[PathBuf], to: &Path, below: &Path, own: &[PathBuf]) -> io::Result<()> {
    let mut all: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
    for source in sources {
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            all.entry(entry.file_name()).or_default().push(entry.path());
        }
    }
    for (name, found) in all {
        let (below, to) = (below.join(&name), to.join(&name));
        let directories: Vec<PathBuf> = found.iter().filter(|it| it.is_dir()).cloned().collect();
        if directories.len() == found.len() && (found.len() > 1 || own.contains(&below)) {
            fs::create_dir_all(&to)?;
            overlay(&directories, &to, &below, own)?;
        } else if let Some(last) = found.last() {
            symlink(last, &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
