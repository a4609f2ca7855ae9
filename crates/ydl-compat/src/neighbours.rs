//! Python modules and packages beside a script, which it may import.
//!
//! On a cluster a script runs in another directory than its own, so they are shipped with it. Packages are shipped whole,
//! except for hidden files, caches and keys. Other files beside the script are not: a program often writes files there, and
//! shipped ones are read-only.

use super::{JobFileBuilder, text::file_name};
use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};
use ydl_core::spec::is_ignored;
use ydl_jobfile::{Location, Node};

/// File with patterns of what is not shipped.
const IGNORE_FILE: &str = ".ydlignore";
/// Patterns that always apply, in any case of letters: hidden files, caches, keys and other secrets.
const NEVER_SHIPPED: [&str; 16] = [
    ".*",
    "__pycache__",
    "*.pyc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keytab",
    "*.tfstate*",
    "*credentials*",
    "*secret*",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
];
/// Limits of what is shipped.
const BYTES_MAX: u64 = 128 << 20;
const FILES_MAX: usize = 5_000;
const DEPTH_MAX: usize = 32;
/// Names in a note.
const NAMES_MAX: usize = 8;

/// Ships the neighbours of a script in `dir`. `script` is its name in notes, `home` the user's home directory.
pub(crate) fn ship(builder: &mut JobFileBuilder, script: &str, dir: &Path, home: Option<&str>) {
    let patterns = match patterns(dir) {
        Ok(patterns) => patterns,
        Err(error) => {
            builder.notes.push(format!(
                "modules beside `{script}` are not shipped, because `{}` cannot be used: {}",
                dir.join(IGNORE_FILE).display(),
                ydl_os::reason(&error)
            ));
            return;
        }
    };
    let mut survey = Survey { patterns, files: 0, bytes: 0 };
    let mut found = Vec::new();
    for name in names(dir) {
        if builder.has_file(&name) || file_name(script) == name {
            continue;
        }
        let before = survey.bytes;
        let neighbour = match survey.neighbour(dir, &name, is_shared(dir, home)) {
            Ok(Some(neighbour)) => neighbour,
            Ok(None) => continue,
            Err(TooLarge) => {
                found.push((survey.bytes - before, Neighbour::file(&name)));
                let largest = found.iter().max_by_key(|(bytes, _)| *bytes);
                let largest = largest.map_or("", |(_, neighbour)| neighbour.name.as_str());
                builder.notes.push(format!(
                    "modules beside `{script}` are not shipped: they have more than {} MB or {FILES_MAX} files, mostly in \
                     `{largest}`; list what the job does not need in `{IGNORE_FILE}`, or name what it needs with `--files`",
                    BYTES_MAX >> 20
                ));
                return;
            }
        };
        found.push((survey.bytes - before, neighbour));
    }
    if found.is_empty() {
        return;
    }
    let mut labels: Vec<_> = found.iter().map(|(_, neighbour)| neighbour.label()).collect();
    let more = labels.len().saturating_sub(NAMES_MAX);
    labels.truncate(NAMES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let files = if survey.files == 1 { "file" } else { "files" };
    builder.notes.push(format!(
        "modules beside `{script}` are shipped: {}{more} ({} {files}, {}); keys and what `{IGNORE_FILE}` lists are \
         not",
        labels.join(", "),
        survey.files,
        size(survey.bytes)
    ));
    for (_, neighbour) in found {
        neighbour.add_to(builder, dir);
    }
}

/// Reads the patterns of a directory; there are none without a file.
fn patterns(dir: &Path) -> io::Result<Vec<String>> {
    let own = match fs::read_to_string(dir.join(IGNORE_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let lines = own.lines().map(str::trim);
    let own = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    if own.clone().any(|line| line.starts_with('!')) {
        let what = "patterns with `!` are not supported";
        return Err(io::Error::other(what));
    }
    Ok(NEVER_SHIPPED.into_iter().chain(own).map(str::to_owned).collect())
}

/// Returns the first pattern that matches a path below the directory.
fn matching<'a>(patterns: &'a [String], path: &str, is_dir: bool) -> Option<&'a String> {
    patterns.iter().find(|pattern| is_ignored([*pattern], path, is_dir))
}

/// Returns true for paths that are never shipped.
fn is_secret(path: &str, is_dir: bool) -> bool {
    is_ignored(NEVER_SHIPPED, &path.to_lowercase(), is_dir)
}

/// Returns the names in a directory, sorted. Those that a job file cannot contain are left out.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.contains("://") && !name.contains(char::is_control)).collect()
}

/// Returns true for directories with much that does not belong to a script: the user's home and a directory for all users.
fn is_shared(dir: &Path, home: Option<&str>) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let shared = [home.map(PathBuf::from), Some("/".into()), Some(env::temp_dir())];
    let mut shared = shared.into_iter().flatten();
    let Some(dir) = real(dir) else {
        return true;
    };
    shared.any(|other| real(&other).as_ref() == Some(&dir))
}

fn is_module(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "py" || it == "so")
}

fn size(bytes: u64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Module or directory to ship.
struct Neighbour {
    name: String,
    is_dir: bool,
    /// Patterns of files that are left out, of those that match any.
    ignore: BTreeSet<String>,
}

impl Neighbour {
    fn file(name: &str) -> Neighbour {
        Neighbour { name: name.to_owned(), is_dir: false, ignore: BTreeSet::new() }
    }

    fn label(&self) -> String {
        format!("`{}{}`", self.name, if self.is_dir { "/" } else { "" })
    }

    fn add_to(self, builder: &mut JobFileBuilder, dir: &Path) {
        let path = dir.join(&self.name);
        let path = path.to_string_lossy();
        let path = path.strip_prefix("./").unwrap_or(&path);
        if self.ignore.is_empty() {
            return builder.file(path, None, Location::Whole);
        }
        let patterns = self.ignore.iter().map(|it| Node::text(Location::Whole, it.as_str()));
        builder.directory(&self.name, path, patterns.collect());
    }
}

/// The limits were exceeded.
struct TooLarge;

/// Counts what is shipped.
struct Survey {
    patterns: Vec<String>,
    files: usize,
    bytes: u64,
}

impl Survey {
    /// Returns an entry of a directory if it is to be shipped. `files_only` excludes directories.
    fn neighbour(
        &mut self,
        dir: &Path,
        name: &str,
        files_only: bool,
    ) -> Result<Option<Neighbour>, TooLarge> {
        let path = dir.join(name);
        let Ok(metadata) = fs::metadata(&path) else {
            return Ok(None);
        };
        let is_dir = metadata.is_dir();
        if matching(&self.patterns, name, is_dir).is_some() || is_secret(name, is_dir) {
            return Ok(None);
        }
        if metadata.is_file() {
            let is_wanted = is_module(&path) && fs::File::open(&path).is_ok();
            if is_wanted {
                self.count(metadata.len())?;
            }
            return Ok(is_wanted.then(|| Neighbour::file(name)));
        }
        if files_only || !metadata.is_dir() || path.join("pyvenv.cfg").exists() {
            return Ok(None);
        }
        let Ok(root) = path.canonicalize() else {
            return Ok(None);
        };
        let patterns = self.patterns.iter().filter_map(|pattern| below(pattern, name)).collect();
        let mut walk = DirWalk { root, patterns, used: BTreeSet::new(), has_module: false };
        walk.visit(self, Path::new(""), 0)?;
        let neighbour = Neighbour { name: name.to_owned(), is_dir: true, ignore: walk.used };
        Ok(walk.has_module.then_some(neighbour))
    }

    fn count(&mut self, bytes: u64) -> Result<(), TooLarge> {
        self.files += 1;
        self.bytes += bytes;
        match self.files > FILES_MAX || self.bytes > BYTES_MAX {
            true => Err(TooLarge),
            false => Ok(()),
        }
    }
}

/// Translates a pattern of a directory into one of its entry `name`, if it can match there.
fn below(pattern: &str, name: &str) -> Option<String> {
    let plain = pattern.trim_end_matches('/');
    if !plain.contains('/') {
        return Some(pattern.to_owned());
    }
    let (first, rest) = pattern.trim_start_matches('/').split_once('/')?;
    match first {
        "**" => Some(pattern.to_owned()),
        _ if rest.is_empty() => None,
        _ => is_ignored([first], name, true).then(|| format!("/{rest}")),
    }
}

/// Walk through a directory to ship.
struct DirWalk {
    root: PathBuf,
    patterns: Vec<String>,
    /// Patterns that matched, and paths that cannot be shipped.
    used: BTreeSet<String>,
    /// True if a module lies directly in the directory: others are not importable.
    has_module: bool,
}

impl DirWalk {
    fn visit(&mut self, survey: &mut Survey, at: &Path, depth: usize) -> Result<(), TooLarge> {
        let entries = match fs::read_dir(self.root.join(at)) {
            Ok(entries) if depth < DEPTH_MAX => entries.flatten(),
            _ => {
                self.leave_out(at);
                return Ok(());
            }
        };
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        // Modules first: without one, nothing else is counted.
        let dir = self.root.join(at);
        let is_other = |name: &OsString| !is_module(Path::new(name)) || !dir.join(name).is_file();
        names.sort_by_key(|name| (is_other(name), name.clone()));
        for name in names {
            if !self.has_module && is_other(&name) {
                return Ok(());
            }
            let below = at.join(name);
            let path = self.root.join(&below);
            let text = below.to_string_lossy();
            if let Some(pattern) = matching(&self.patterns, &text, path.is_dir()) {
                self.used.insert(pattern.clone());
                continue;
            }
            if is_secret(&text, path.is_dir()) {
                self.leave_out(&below);
                continue;
            }
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if metadata.is_dir() && path.is_symlink() {
                let target = path.canonicalize();
                if !target.is_ok_and(|target| target.starts_with(&self.root)) {
                    self.leave_out(&below);
                }
            } else if metadata.is_dir() {
                match path.join("pyvenv.cfg").exists() {
                    true => self.leave_out(&below),
                    false => self.visit(survey, &below, depth + 1)?,
                }
            } else if metadata.is_file() {
                match fs::File::open(&path) {
                    Ok(_) => {
                        self.has_module |= is_module(&path);
                        survey.count(metadata.len())?;
                    }
                    Err(_) => self.leave_out(&below),
                }
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Path) {
        self.used.insert(format!("/{}", path.display()));
    }
}

#[cfg(test)]
mod tests;
