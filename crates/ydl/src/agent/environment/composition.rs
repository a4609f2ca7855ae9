//! A small environment of links into layers.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};
use ydl_pack::manifest::{Manifest, Python, replace_path};

/// Maximum size of a text file that contains a path.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Composition of an environment from layers.
#[derive(Debug)]
pub(super) struct Composition<'a> {
    python: &'a Python,
    prefix: &'a Path,
    sources: &'a [PathBuf],
    /// Directories that the container creates itself, because they contain a file of its own.
    own: BTreeSet<PathBuf>,
    /// Text files that contain the original path of the environment, to be relocated.
    texts: BTreeSet<PathBuf>,
    original_paths: &'a [String],
}

impl Composition<'_> {
    pub(super) fn new<'a>(
        manifest: &'a Manifest,
        python: &'a Python,
        prefix: &'a Path,
        sources: &'a [PathBuf],
    ) -> Composition<'a> {
        let site = PathBuf::from(format!("lib/python{}/site-packages", python.minor));
        let mut own: BTreeSet<PathBuf> = site.ancestors().map(Path::to_path_buf).collect();
        own.insert("bin".into());
        let texts = manifest.texts_with_path.iter().map(PathBuf::from);
        // Ignore paths outside the environment.
        let inside = |name: &PathBuf| {
            let mut parts = name.components();
            parts.all(|part| matches!(part, Component::Normal(_)))
        };
        let texts: BTreeSet<PathBuf> = texts.filter(inside).collect();
        for name in &texts {
            own.extend(name.ancestors().skip(1).map(Path::to_path_buf));
            // Byte code of a relocated source is stale, and Python would write its own next to it.
            if name.extension().is_some_and(|ending| ending == "py")
                && let Some(dir) = name.parent()
            {
                own.insert(dir.join("__pycache__"));
            }
        }
        Composition {
            python,
            prefix,
            sources,
            own,
            texts,
            original_paths: &manifest.original_paths,
        }
    }

    /// Creates the environment; `pyvenv.cfg` comes last.
    pub(super) fn build(&self, executable: &Path) -> io::Result<()> {
        let ready = self.prefix.join("pyvenv.cfg");
        if ready.is_file() {
            return Ok(());
        }
        match fs::remove_dir_all(self.prefix) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for dir in ["bin", &format!("lib/python{}/site-packages", self.python.minor)] {
            fs::create_dir_all(self.prefix.join(dir))?;
        }
        self.overlay(self.sources, self.prefix, Path::new(""))?;
        let bin = self.prefix.join("bin");
        for (name, to) in [
            ("python", executable),
            ("python3", Path::new("python")),
            (&format!("python{}", self.python.minor), Path::new("python")),
        ] {
            let link = bin.join(name);
            if link.symlink_metadata().is_ok() {
                fs::remove_file(&link)?;
            }
            symlink(to, link)?;
        }
        // A complete installation finds its standard library here, too, and is no virtual environment of another.
        let home = match self.python.whole {
            true => bin.as_path(),
            false => executable.parent().unwrap_or(Path::new("/")),
        };
        let config = format!(
            "home = {}\ninclude-system-site-packages = {}\nversion = {}\nexecutable = {}\n",
            home.display(),
            self.python.system_packages,
            self.python.version,
            executable.display()
        );
        fs::write(ready, config)
    }

    /// Links the entries of the sources into `to`. Merges a directory that several sources have, or that the container
    /// must own. Of files of one name the last source's wins.
    fn overlay(&self, sources: &[PathBuf], to: &Path, below: &Path) -> io::Result<()> {
        let mut all: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
        for source in sources {
            for entry in fs::read_dir(source)? {
                let entry = entry?;
                all.entry(entry.file_name()).or_default().push(entry.path());
            }
        }
        for (name, found) in all {
            let (below, to) = (below.join(&name), to.join(&name));
            let directories: Vec<PathBuf> =
                found.iter().filter(|it| it.is_dir()).cloned().collect();
            let several = found.len() > 1 || self.own.contains(&below);
            if directories.len() == found.len() && several {
                fs::create_dir_all(&to)?;
                self.overlay(&directories, &to, &below)?;
            } else if let Some(last) = found.last() {
                match self.texts.contains(&below) {
                    true => self.relocate(last, &to)?,
                    false if self.is_stale(&below) => {}
                    false => symlink(last, &to)?,
                }
            }
        }
        Ok(())
    }

    /// Writes a relocated copy of a text file.
    fn relocate(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut file = File::open(from)?;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        let mut text = String::new();
        file.by_ref().take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
        let prefix = self.prefix.display().to_string();
        for old_prefix in self.original_paths {
            if let Some(new) = replace_path(&text, old_prefix, &prefix) {
                text = new;
            }
        }
        fs::write(to, text)?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode | 0o600))
    }

    /// Returns true for byte code of a relocated source.
    fn is_stale(&self, below: &Path) -> bool {
        let of = || {
            let dir = below.parent().filter(|dir| dir.ends_with("__pycache__"))?;
            let stem = below.file_name()?.to_str()?.split(".cpython-").next()?;
            Some(dir.parent()?.join(format!("{stem}.py")))
        };
        of().is_some_and(|source| self.texts.contains(&source))
    }
}
