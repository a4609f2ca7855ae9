//! Plan of an archive: its content in order. The same content always gives the same archive.

use super::{
    bytecode,
    local::source_of,
    stable_file::{FileStamp, StableFile},
};
use ring::digest::{Context, SHA256};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Component, Path, PathBuf},
};
use tar::{Builder, EntryType, Header};
use ydl_core::spec::is_ignored;
use ydl_os::{reason, report::Report};

/// Maximum depth of a directory.
const DEPTH_MAX: usize = 100;
/// Maximum number of entries: a larger archive takes a node too long to unpack.
const ENTRIES_MAX: usize = 500_000;
/// Modification time of all entries: start of 1980, the earliest that every format supports.
pub(super) const MTIME: u32 = 315_532_800;

/// Content of an archive, by name.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(super) entries: BTreeMap<PathBuf, PlanEntry>,
    /// Messages about skipped files.
    pub(super) notes: Vec<String>,
    /// Dangling links.
    dangling_links: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct PlanEntry {
    pub mode: u32,
    pub kind: EntryKind,
}

#[derive(Clone, Debug)]
pub(super) enum EntryKind {
    Directory,
    File {
        from: PathBuf,
        stamp: FileStamp,
    },
    /// Byte code that records the modification time of its source: in the archive that is [`MTIME`].
    ByteCode {
        from: PathBuf,
        stamp: FileStamp,
    },
    Bytes(Vec<u8>),
    Link {
        to: PathBuf,
    },
}

/// Handling of a link to a directory outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutsideLinks {
    Refuse,
    /// Skipped with a note.
    Skip,
}

impl Plan {
    /// Scans a directory. Links inside it stay links; links to files outside become copies of those files, which do not exist on
    /// the nodes. Sockets, pipes and devices are skipped.
    pub fn of(root: &Path) -> Result<Plan, Report> {
        Plan::without(root, &[])
    }

    /// Scans a directory, except for files and directories that a pattern matches.
    pub fn without(root: &Path, ignore: &[String]) -> Result<Plan, Report> {
        let mut plan = Plan::default();
        let skip = |below: &Path, path: &Path| {
            !ignore.is_empty() && is_ignored(ignore, &below.to_string_lossy(), path.is_dir())
        };
        plan.add_tree(root, Path::new(""), OutsideLinks::Refuse, &skip)?;
        Ok(plan)
    }

    /// Adds the content of a directory under a name. `skip` receives the path relative to the root and the full path.
    pub(super) fn add_tree(
        &mut self,
        root: &Path,
        name: &Path,
        outside: OutsideLinks,
        skip: &dyn Fn(&Path, &Path) -> bool,
    ) -> Result<(), Report> {
        let real = root.canonicalize().map_err(|error| read_error(root, &error))?;
        let walk = DirWalk { root: &real, name, outside, skip };
        let added = self.add_directory(&walk, &real, Path::new(""), 0);
        self.notes.extend(dangling(&std::mem::take(&mut self.dangling_links)));
        added
    }

    /// Returns messages about skipped files.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn add_directory(
        &mut self,
        walk: &DirWalk<'_>,
        dir: &Path,
        below: &Path,
        depth: usize,
    ) -> Result<(), Report> {
        if depth > DEPTH_MAX {
            let what = format!(
                "cannot pack `{}`: directories are nested more than {DEPTH_MAX} levels deep",
                dir.display()
            );
            return Err(Report::bad_input(what).hint("list the needed files in `files` instead"));
        }
        let listing = fs::read_dir(dir).map_err(|error| read_error(dir, &error))?;
        for entry in listing {
            let entry = entry.map_err(|error| read_error(dir, &error))?;
            if self.entries.len() >= ENTRIES_MAX {
                let what = format!(
                    "cannot pack `{}`: it has more than {ENTRIES_MAX} files",
                    walk.root.display()
                );
                let hint = "leave out files that the job does not need, or list the needed ones";
                return Err(Report::bad_input(what).hint(hint));
            }
            let below = below.join(entry.file_name());
            let path = entry.path();
            if (walk.skip)(&below, &path) {
                continue;
            }
            let metadata = entry.metadata().map_err(|error| read_error(&path, &error))?;
            self.add_entry(walk, &path, &below, &metadata, depth)?;
        }
        Ok(())
    }

    fn add_entry(
        &mut self,
        walk: &DirWalk<'_>,
        path: &Path,
        below: &Path,
        metadata: &fs::Metadata,
        depth: usize,
    ) -> Result<(), Report> {
        let mut mode = metadata.permissions().mode() & 0o777;
        let name = walk.name.join(below);
        if metadata.is_dir() {
            // Directories must be writable for the user who unpacks them.
            self.put(name, mode | 0o700, EntryKind::Directory);
            return self.add_directory(walk, path, below, depth + 1);
        }
        let kind = if metadata.is_symlink() {
            match self.resolve_link(walk, path)? {
                Some(kind @ EntryKind::Link { .. }) => {
                    mode = 0o777;
                    kind
                }
                Some(kind) => {
                    let target = fs::metadata(path).map_err(|error| read_error(path, &error))?;
                    mode = target.permissions().mode() & 0o777;
                    kind
                }
                None => return Ok(()),
            }
        } else if metadata.is_file() {
            let from = path.to_path_buf();
            let stamp = FileStamp::of(metadata);
            EntryKind::File { from, stamp }
        } else {
            return Ok(());
        };
        self.put(name, mode, kind);
        Ok(())
    }

    /// Resolves a link. Returns `None` if it dangles.
    fn resolve_link(
        &mut self,
        walk: &DirWalk<'_>,
        path: &Path,
    ) -> Result<Option<EntryKind>, Report> {
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && walk.outside == OutsideLinks::Refuse =>
            {
                return Err(read_error(path, &error));
            }
            // Missing targets and link cycles.
            Err(_) => {
                self.dangling_links.push(path.to_path_buf());
                return Ok(None);
            }
        };
        if let Ok(inside) = target.strip_prefix(walk.root) {
            let from = path.parent().and_then(|dir| dir.strip_prefix(walk.root).ok());
            let to = relative(from.unwrap_or(Path::new("")), inside);
            return Ok(Some(EntryKind::Link { to }));
        }
        let metadata = fs::metadata(&target).map_err(|error| read_error(path, &error))?;
        if metadata.is_dir() {
            let description = format!("a link to the outside directory `{}`", target.display());
            if walk.outside == OutsideLinks::Skip {
                self.notes.push(format!("`{}` is {description}: skipped", path.display()));
                return Ok(None);
            }
            let what = format!("cannot pack `{}`: it is {description}", path.display());
            let hint = "replace the link by the directory itself, or list the directory in `files`";
            return Err(Report::bad_input(what).hint(hint));
        }
        let stamp = FileStamp::of(&metadata);
        Ok(metadata.is_file().then_some(EntryKind::File { from: target, stamp }))
    }

    /// Adds one entry and its parent directories.
    pub(super) fn put(&mut self, name: PathBuf, mode: u32, kind: EntryKind) {
        let mut parent = name.parent();
        while let Some(dir) = parent.filter(|dir| !dir.as_os_str().is_empty()) {
            if self.entries.contains_key(dir) {
                break;
            }
            let kind = EntryKind::Directory;
            self.entries.insert(dir.to_path_buf(), PlanEntry { mode: 0o755, kind });
            parent = dir.parent();
        }
        self.entries.insert(name, PlanEntry { mode, kind });
    }

    /// Returns the total length of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.kind.bytes()).sum()
    }

    /// Returns a key of `prefix` and the content: names and file metadata. Byte code with a source is ignored, because Python
    /// writes it whenever a program runs.
    pub(super) fn key(&self, prefix: &str) -> String {
        let mut context = Context::new(&SHA256);
        let mut update = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        update(prefix.as_bytes());
        let is_byte_code = |name: &Path| {
            let source = source_of(name);
            name.ends_with("__pycache__")
                || source.is_some_and(|source| self.entries.contains_key(&source))
        };
        for (name, entry) in &self.entries {
            if is_byte_code(name) {
                continue;
            }
            update(name.as_os_str().as_bytes());
            update(&entry.mode.to_le_bytes());
            match &entry.kind {
                EntryKind::Directory => update(b"d"),
                EntryKind::File { stamp, .. } => update(&stamp.fingerprint()),
                EntryKind::ByteCode { stamp, .. } => {
                    update(b"c");
                    update(&stamp.fingerprint());
                }
                EntryKind::Bytes(bytes) => update(bytes),
                EntryKind::Link { to } => update(to.as_os_str().as_bytes()),
            }
        }
        hex::encode(context.finish().as_ref())
    }

    /// Writes the archive. Fails if a file changed since the plan was made.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for (name, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(MTIME.into());
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(entry.kind.bytes());
            match &entry.kind {
                EntryKind::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    archive.append_data(&mut header, name, io::empty())?;
                }
                EntryKind::Link { to } => {
                    header.set_entry_type(EntryType::Symlink);
                    archive.append_link(&mut header, name, to)?;
                }
                EntryKind::File { from, stamp } => {
                    header.set_entry_type(EntryType::Regular);
                    archive.append_data(&mut header, name, StableFile::open(from, *stamp)?)?;
                }
                EntryKind::ByteCode { from, stamp } => {
                    header.set_entry_type(EntryType::Regular);
                    let mut bytes = Vec::with_capacity(stamp.bytes as usize);
                    StableFile::open(from, *stamp)?.read_to_end(&mut bytes)?;
                    bytecode::set_time(&mut bytes, MTIME);
                    archive.append_data(&mut header, name, bytes.as_slice())?;
                }
                EntryKind::Bytes(bytes) => {
                    header.set_entry_type(EntryType::Regular);
                    archive.append_data(&mut header, name, bytes.as_slice())?;
                }
            }
        }
        archive.finish()
    }
}

impl EntryKind {
    fn bytes(&self) -> u64 {
        match self {
            EntryKind::Directory | EntryKind::Link { .. } => 0,
            EntryKind::File { stamp, .. } | EntryKind::ByteCode { stamp, .. } => stamp.bytes,
            EntryKind::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

struct DirWalk<'a> {
    root: &'a Path,
    name: &'a Path,
    outside: OutsideLinks,
    skip: &'a dyn Fn(&Path, &Path) -> bool,
}

/// Returns the relative path from one directory below a root to another path below it.
pub(super) fn relative(from: &Path, to: &Path) -> PathBuf {
    let components = |path: &'_ Path| -> Vec<PathBuf> {
        let normal = path.components().filter(|part| matches!(part, Component::Normal(_)));
        normal.map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let (from, to) = (components(from), components(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut path: PathBuf = from[common..].iter().map(|_| "..").collect();
    path.extend(&to[common..]);
    match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path,
    }
}

/// Returns a message about skipped dangling links; some environments have hundreds.
fn dangling(links: &[PathBuf]) -> Option<String> {
    let first = links.iter().min()?.display();
    Some(match links.len() {
        1 => format!("skipping the dangling link `{first}`"),
        n => format!("skipping {n} dangling links, such as `{first}`"),
    })
}

/// Returns whether a file name has a suffix.
pub(super) fn ends(name: &Path, suffix: &str) -> bool {
    let bytes = name.file_name().map(OsStr::as_bytes).unwrap_or_default();
    bytes.ends_with(suffix.as_bytes())
}

/// Hint for unreadable files.
pub(super) const READABLE: &str = "make it readable, or remove it: the whole directory is packed";

pub(super) fn read_error(path: &Path, error: &io::Error) -> Report {
    let what = format!("cannot read `{}`: {}", path.display(), reason(error));
    let report = Report::bad_input(what);
    match error.kind() {
        io::ErrorKind::PermissionDenied => report.hint(READABLE),
        _ => report,
    }
}

#[cfg(test)]
mod tests;
