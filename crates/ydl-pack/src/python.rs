//! Detects the Python of an environment without running it.

use super::{elf, plan, stable_file::FileStamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};
use ydl_os::report::Report;

/// Installations that every node is expected to have in the same place.
const SYSTEM: [&str; 3] = ["/usr", "/usr/local", "/"];

/// Returns whether a path is a system installation.
pub(super) fn is_system(dir: &Path) -> bool {
    SYSTEM.iter().any(|own| dir == Path::new(own))
}

/// Modules of the standard library that jobs do not need.
const UNUSED: [&str; 6] =
    ["test", "idlelib", "turtledemo", "ensurepip", "site-packages", "dist-packages"];

/// Kind of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EnvironmentKind {
    /// Virtual environment: packages for an interpreter that is installed separately.
    Venv,
    /// Interpreter with its whole installation, as created by conda.
    Prefix,
}

/// Python of an environment.
#[derive(Clone, Debug)]
pub(super) struct DetectedPython {
    pub kind: EnvironmentKind,
    /// Minor version, such as `3.11`.
    pub minor: String,
    pub version: String,
    /// The interpreter itself, with all links resolved.
    pub executable: PathBuf,
    /// Stamp of the interpreter.
    pub stamp: FileStamp,
    /// Installation of the interpreter.
    pub base: PathBuf,
    pub system_packages: bool,
}

impl DetectedPython {
    /// Inspects an environment. Returns `None` if it has no Python.
    pub(crate) fn of(root: &Path) -> Result<Option<DetectedPython>, Report> {
        let link = root.join("bin/python");
        let link = match link.symlink_metadata() {
            Ok(_) => link,
            Err(_) => root.join("bin/python3"),
        };
        match link.symlink_metadata() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(plan::read_error(&link, &error));
            }
            Err(_) => return Ok(None),
        }
        let text = fs::read_to_string(root.join("pyvenv.cfg")).unwrap_or_default();
        let settings: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        let incomplete = |what: String| {
            let hint = "recreate the environment with an installed interpreter";
            Report::bad_input(what).hint(hint)
        };
        let executable = link.canonicalize().map_err(|error| {
            let target = fs::read_link(&link).unwrap_or_default();
            let what = format!(
                "the environment `{}` cannot be packed: its interpreter `{}`",
                root.display(),
                target.display()
            );
            match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    Report::bad_input(format!("{what} is not readable")).hint(plan::READABLE)
                }
                _ => incomplete(format!("{what} does not exist")),
            }
        })?;
        // A copy in the environment needs the installation that it was copied from.
        let is_inside = root.canonicalize().is_ok_and(|real| executable.starts_with(real));
        let home = settings.get("home").filter(|_| is_inside).map(Path::new);
        let original = home.and_then(|home| home.join(executable.file_name()?).canonicalize().ok());
        let executable = original.unwrap_or(executable);
        let metadata =
            fs::metadata(&executable).map_err(|error| plan::read_error(&executable, &error))?;
        let version = settings.get("version_info").or(settings.get("version")).copied();
        let Some(minor) = minor(root, version) else {
            let what = format!(
                "the environment `{}` cannot be packed: it has no `lib/python3.…/site-packages`",
                root.display()
            );
            return Err(incomplete(what));
        };
        let is_prefix = settings.is_empty()
            && root.canonicalize().is_ok_and(|real| executable.starts_with(real));
        let kind = match is_prefix {
            true => EnvironmentKind::Prefix,
            false => EnvironmentKind::Venv,
        };
        let base = executable.parent().and_then(Path::parent).unwrap_or(root);
        // Fedora and related distributions use `lib64`.
        let has_library = |lib| base.join(format!("{lib}/python{minor}/os.py")).is_file();
        if !["lib", "lib64"].into_iter().any(has_library) {
            return Err(incomplete(format!(
                "the environment `{}` cannot be packed: the interpreter `{}` has no standard library next to it",
                root.display(),
                executable.display()
            )));
        }
        let version = version.map(str::to_owned);
        let version = version.or_else(|| version_of(base, &minor));
        Ok(Some(DetectedPython {
            kind,
            version: version.unwrap_or_else(|| minor.clone()),
            stamp: FileStamp::of(&metadata),
            base: base.to_path_buf(),
            executable: executable.clone(),
            system_packages: settings
                .get("include-system-site-packages")
                .is_some_and(|value| value.eq_ignore_ascii_case("true")),
            minor,
        }))
    }

    /// Returns the interpreter's tag in names of byte code.
    pub(crate) fn tag(&self) -> String {
        format!("cpython-{}", self.minor.replace('.', ""))
    }

    /// Returns the directory of the packages, relative to the environment.
    pub(crate) fn site(&self) -> PathBuf {
        format!("lib/python{}/site-packages", self.minor).into()
    }

    /// Returns whether every node is expected to have the interpreter.
    pub(crate) fn is_system(&self) -> bool {
        is_system(&self.base)
    }

    /// Returns whether the interpreter finds its library only through `LD_LIBRARY_PATH`.
    pub(crate) fn needs_library_path(&self) -> bool {
        let elf = elf::read(&self.executable).unwrap_or_default();
        let is_shared = elf.needs.iter().any(|name| name.starts_with("libpython"));
        is_shared && !elf.paths.iter().any(|path| path.starts_with("$ORIGIN"))
    }

    /// Returns the names in `lib` of the libraries that the interpreter and its modules load, as with conda. Empty for a system
    /// installation, whose libraries are not packed.
    pub(crate) fn libraries(&self) -> BTreeSet<OsString> {
        let mut found = BTreeSet::new();
        if self.is_system() {
            return found;
        }
        let lib = self.base.join(self.lib());
        let modules = lib.join(format!("python{}/lib-dynload", self.minor));
        let modules = fs::read_dir(modules).into_iter().flatten().flatten();
        let mut left: Vec<PathBuf> = modules.map(|entry| entry.path()).collect();
        left.push(self.executable.clone());
        while let Some(path) = left.pop() {
            for name in elf::read(&path).unwrap_or_default().needs {
                let library = lib.join(&name);
                // Paths are skipped.
                if name.contains('/') || !library.is_file() || !found.insert(name.into()) {
                    continue;
                }
                if let Ok(real) = library.canonicalize()
                    && real.parent() == Some(&lib)
                {
                    found.extend(real.file_name().map(OsString::from));
                }
                left.push(library);
            }
        }
        found
    }

    /// Returns whether a file of the installation is not needed on a node. `libraries` are the needed ones in `lib`.
    pub(crate) fn is_unused(&self, below: &Path, libraries: &BTreeSet<OsString>) -> bool {
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        let lib = self.lib();
        match parts.as_slice() {
            ["bin" | "include"] => false,
            ["bin", name] => self.executable.file_name().is_none_or(|own| own != *name),
            ["include", name, ..] => !name.starts_with(&self.library()),
            [first] => *first != lib,
            [first, inside @ ..] if *first == lib => self.is_unused_library(inside, libraries),
            _ => true,
        }
    }

    /// Returns whether a file below `lib` is not needed on a node.
    fn is_unused_library(&self, parts: &[&str], libraries: &BTreeSet<OsString>) -> bool {
        let library = self.library();
        match parts {
            [name] if *name == library => false,
            [name] if name.starts_with("libpython") => !name.contains(".so"),
            [name] => !libraries.contains(OsStr::new(name)),
            [name, inside, rest @ ..] if *name == library => {
                let tests = rest.iter().any(|part| matches!(*part, "test" | "tests"));
                tests || UNUSED.contains(inside) || inside.starts_with("config-")
            }
            _ => true,
        }
    }

    /// Returns the name of the standard library's directory.
    fn library(&self) -> String {
        format!("python{}", self.minor)
    }

    /// Returns the parent of the standard library's directory. Fedora and related distributions use `lib64`.
    fn lib(&self) -> &'static str {
        let mut all = ["lib", "lib64"].into_iter();
        let has_library = |lib: &&str| {
            let dir = self.base.join(lib).join(self.library());
            dir.join("os.py").is_file()
        };
        all.find(has_library).unwrap_or("lib")
    }
}

/// Returns the full version, from the installation's headers.
fn version_of(base: &Path, minor: &str) -> Option<String> {
    let header = base.join(format!("include/python{minor}/patchlevel.h"));
    let text = fs::read_to_string(header).ok()?;
    let line = text.lines().find(|line| line.contains(" PY_VERSION "))?;
    Some(line.split('"').nth(1)?.to_owned())
}

/// Returns the minor version of `lib/python3.…`. If there are several, the one in `pyvenv.cfg` has precedence.
fn minor(root: &Path, version: Option<&str>) -> Option<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root.join("lib")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(minor) = name.strip_prefix("python")
            && minor.starts_with("3.")
            && entry.path().join("site-packages").is_dir()
        {
            all.push(minor.to_owned());
        }
    }
    all.sort();
    let is_configured = |minor: &&String| {
        version.is_some_and(|version| {
            version == minor.as_str() || version.starts_with(&format!("{minor}."))
        })
    };
    all.iter().find(is_configured).or(all.last()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_library_is_bundled_from_any_place() {
        for lib in ["lib", "lib64"] {
            let dir = tempfile::tempdir().expect("a directory");
            let library = dir.path().join(lib).join("python3.12");
            fs::create_dir_all(&library).expect("a directory");
            fs::write(library.join("os.py"), "").expect("a file");
            let found = DetectedPython {
                kind: EnvironmentKind::Venv,
                minor: "3.12".into(),
                version: "3.12.1".into(),
                executable: dir.path().join("bin/python3.12"),
                stamp: FileStamp::of(&fs::metadata(dir.path()).expect("a directory")),
                base: dir.path().to_owned(),
                system_packages: false,
            };
            let is_packed = |name: &str| !found.is_unused(Path::new(name), &BTreeSet::new());
            for name in ["", "/python3.12", "/python3.12/os.py", "/libpython3.12.so.1.0"] {
                assert!(is_packed(&format!("{lib}{name}")), "{lib}{name}");
            }
            for name in ["/python3.12/test/x.py", "/python3.11", "/libssl.so"] {
                assert!(!is_packed(&format!("{lib}{name}")), "{lib}{name}");
            }
            let other = if lib == "lib" { "lib64" } else { "lib" };
            assert!(!is_packed(&format!("{other}/python3.12/os.py")));
            assert!(is_packed("bin/python3.12") && !is_packed("bin/perl"));
            assert!(!is_packed("share") && is_packed("include/python3.12/Python.h"));
        }
    }
}
