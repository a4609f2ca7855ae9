//! `ydl python-package`: writes the Python package, which also takes the name of skein, into a directory of a task.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process,
};
use ydl_os::report::{Exit, Report};

/// Modules of the package with their paths.
const MODULES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/python_package.rs"));
/// Package `skein`.
const SKEIN: &str =
    "from ydl.compat.alias import alias\n\nalias(\"skein\", \"ydl.compat.skein\")\n";
/// Program `skein`.
const SKEIN_PROGRAM: &str = "#!/bin/sh\nexec python3 -m skein \"$@\"\n";

/// Writes the package, unless it is there.
pub(crate) fn run(dir: &Path) -> Result<Exit, Report> {
    write(dir).map_err(|error| {
        let what = format!("cannot write the Python package to `{}`: {error}", dir.display());
        Report::new(Exit::JobFailed, what)
    })?;
    Ok(Exit::Success)
}

fn write(dir: &Path) -> io::Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let mut partial = dir.as_os_str().to_owned();
    partial.push(format!(".{}", process::id()));
    let partial = PathBuf::from(partial);
    for (name, content) in MODULES {
        write_file(&partial.join(name), content)?;
    }
    write_file(&partial.join("skein/__init__.py"), SKEIN.as_bytes())?;
    let program = partial.join("bin/skein");
    write_file(&program, SKEIN_PROGRAM.as_bytes())?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    match fs::rename(&partial, dir) {
        // Another process of the task was faster.
        Err(_) if dir.exists() => fs::remove_dir_all(&partial),
        renamed => renamed,
    }
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_has_skein_and_is_written_once() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("package");
        write(&dir).expect("written");
        assert!(dir.join("ydl/compat/skein/core.py").exists());
        assert!(dir.join("skein/__init__.py").exists());
        fs::write(dir.join("ydl/__init__.py"), "changed").expect("written");
        write(&dir).expect("left as it is");
        assert_eq!(fs::read_to_string(dir.join("ydl/__init__.py")).expect("read"), "changed");
    }
}
