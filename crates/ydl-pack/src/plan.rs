//! What goes into an archive, in its order: the same content is always the same archive, whoever packs it when.

use super::{
    bytecode,
    local::source_of,
    same::{Same, Stamp},
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
use ydl_os::{reason, report::Report};

/// Deeper than any sensible directory.
const DEPTH_MAX: usize = 100;
/// An archive of more entries than this takes a node longer to unpack than a job should wait.
const ENTRIES_MAX: usize = 500_000;
/// When everything in an archive was last written: the first moment of 1980, which every format can say.
pub(super) const WHEN: u32 = 315_532_800;

/// What goes into an archive, by the name it has there.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(super) entries: BTreeMap<PathBuf, Entry>,
    /// What was left out, in sentences.
    pub(super) notes: Vec<String>,
    /// Links that lead nowhere.
    lost: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub mode: u32,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Directory,
    File {
        from: PathBuf,
        was: Stamp,
    },
    /// Byte code that remembers when its source was written: in the archive that is [`WHEN`].
    ByteCode {
        from: PathBuf,
        was: Stamp,
    },
    Bytes(Vec<u8>),
    Link {
        to: PathBuf,
    },
}

/// What to do about a link that leads to a directory elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    Refuse,
    /// It is left out, and noted.
    Leave,
}

impl Plan {
    /// Looks through a directory. Links inside it stay links; links that lead out of it to files become those files,
    /// because what they lead to is not on the nodes. What is neither file, directory nor link is nobody's data.
    pub fn of(root: &Path) -> Result<Plan, Report> {
        let mut plan = Plan::default();
        plan.add_tree(root, Path::new(""), Outside::Refuse, &|_, _| false)?;
        Ok(plan)
    }

    /// Adds what is below a directory under that name. `skip` is asked with the path below the root and the whole one.
    pub(super) fn add_tree(
        &mut self,
        root: &Path,
        name: &Path,
        outside: Outside,
        skip: &dyn Fn(&Path, &Path) -> bool,
    ) -> Result<(), Report> {
        let real = root.canonicalize().map_err(|error| unread(root, &error))?;
        let walk = Walk { root: &real, name, outside, skip };
        let added = self.add_directory(&walk, &real, Path::new(""), 0);
        self.notes.extend(lost(&std::mem::take(&mut self.lost)));
        added
    }

    /// What was left out, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn add_directory(
        &mut self,
        walk: &Walk<'_>,
        dir: &Path,
        below: &Path,
        depth: usize,
    ) -> Result<(), Report> {
        if depth > DEPTH_MAX {
            let what = format!("cannot pack `{}`: it is nested too deep", dir.display());
            return Err(Report::bad_input(what));
        }
        let listing = fs::read_dir(dir).map_err(|error| unread(dir, &error))?;
        for entry in listing {
            let entry = entry.map_err(|error| unread(dir, &error))?;
            if self.entries.len() >= ENTRIES_MAX {
                let what = format!(
                    "cannot pack `{}`: it has more than {ENTRIES_MAX} files",
                    walk.root.display()
                );
                let hint = "leave out what the job does not need, or name what it needs one by one";
                return Err(Report::bad_input(what).hint(hint));
            }
            let below = below.join(entry.file_name());
            let path = entry.path();
            if (walk.skip)(&below, &path) {
                continue;
            }
            let about = entry.metadata().map_err(|error| unread(&path, &error))?;
            self.add_one(walk, &path, &below, &about, depth)?;
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        walk: &Walk<'_>,
        path: &Path,
        below: &Path,
        about: &fs::Metadata,
        depth: usize,
    ) -> Result<(), Report> {
        let mut mode = about.permissions().mode() & 0o777;
        let name = walk.name.join(below);
        if about.is_dir() {
            // Whoever unpacks it must be able to write into it.
            self.put(name, mode | 0o700, What::Directory);
            return self.add_directory(walk, path, below, depth + 1);
        }
        let what = if about.is_symlink() {
            match self.led_to(walk, path)? {
                Some(what @ What::Link { .. }) => {
                    mode = 0o777;
                    what
                }
                Some(what) => {
                    let target = fs::metadata(path).map_err(|error| unread(path, &error))?;
                    mode = target.permissions().mode() & 0o777;
                    what
                }
                None => return Ok(()),
            }
        } else if about.is_file() {
            let from = path.to_path_buf();
            let was = Stamp::of(about);
            What::File { from, was }
        } else {
            return Ok(());
        };
        self.put(name, mode, what);
        Ok(())
    }

    /// What a link stands for; nothing if it leads nowhere.
    fn led_to(&mut self, walk: &Walk<'_>, path: &Path) -> Result<Option<What>, Report> {
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && walk.outside == Outside::Refuse =>
            {
                return Err(unread(path, &error));
            }
            // What is not there, and links that lead to each other.
            Err(_) => {
                self.lost.push(path.to_path_buf());
                return Ok(None);
            }
        };
        if let Ok(inside) = target.strip_prefix(walk.root) {
            let from = path.parent().and_then(|dir| dir.strip_prefix(walk.root).ok());
            let to = relative(from.unwrap_or(Path::new("")), inside);
            return Ok(Some(What::Link { to }));
        }
        let about = fs::metadata(&target).map_err(|error| unread(path, &error))?;
        if about.is_dir() {
            let leads = format!("leads out of the directory to `{}`", target.display());
            if walk.outside == Outside::Leave {
                self.notes.push(format!("`{}` {leads}: it is left out", path.display()));
                return Ok(None);
            }
            let what = format!("cannot pack `{}`: it {leads}", path.display());
            let hint = "put the directory itself there, or name it as a file of its own";
            return Err(Report::bad_input(what).hint(hint));
        }
        let was = Stamp::of(&about);
        Ok(about.is_file().then_some(What::File { from: target, was }))
    }

    /// Adds one entry, and the directories above it.
    pub(super) fn put(&mut self, name: PathBuf, mode: u32, what: What) {
        let mut above = name.parent();
        while let Some(dir) = above.filter(|dir| !dir.as_os_str().is_empty()) {
            if self.entries.contains_key(dir) {
                break;
            }
            let what = What::Directory;
            self.entries.insert(dir.to_path_buf(), Entry { mode: 0o755, what });
            above = dir.parent();
        }
        self.entries.insert(name, Entry { mode, what });
    }

    /// The length of all files together.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.what.bytes()).sum()
    }

    /// By which it is known that nothing has changed: names, and how files look from outside. Byte code beside its source
    /// is what Python leaves behind when a program runs, and no change.
    pub(super) fn key(&self, about: &str) -> String {
        let mut context = Context::new(&SHA256);
        let mut see = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        see(about.as_bytes());
        let is_left_behind = |name: &Path| {
            let source = source_of(name);
            name.ends_with("__pycache__")
                || source.is_some_and(|source| self.entries.contains_key(&source))
        };
        for (name, entry) in &self.entries {
            if is_left_behind(name) {
                continue;
            }
            see(name.as_os_str().as_bytes());
            see(&entry.mode.to_le_bytes());
            match &entry.what {
                What::Directory => see(b"d"),
                What::File { was, .. } => see(&was.known_by()),
                What::ByteCode { was, .. } => {
                    see(b"c");
                    see(&was.known_by());
                }
                What::Bytes(bytes) => see(bytes),
                What::Link { to } => see(to.as_os_str().as_bytes()),
            }
        }
        hex::encode(context.finish().as_ref())
    }

    /// Writes the archive. A file that is not what it was when the plan was made is an error.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for (name, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(WHEN.into());
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(entry.what.bytes());
            match &entry.what {
                What::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    archive.append_data(&mut header, name, io::empty())?;
                }
                What::Link { to } => {
                    header.set_entry_type(EntryType::Symlink);
                    archive.append_link(&mut header, name, to)?;
                }
                What::File { from, was } => {
                    header.set_entry_type(EntryType::Regular);
                    archive.append_data(&mut header, name, Same::open(from, *was)?)?;
                }
                What::ByteCode { from, was } => {
                    header.set_entry_type(EntryType::Regular);
                    let mut bytes = Vec::with_capacity(was.bytes as usize);
                    Same::open(from, *was)?.read_to_end(&mut bytes)?;
                    bytecode::set_time(&mut bytes, WHEN);
                    archive.append_data(&mut header, name, bytes.as_slice())?;
                }
                What::Bytes(bytes) => {
                    header.set_entry_type(EntryType::Regular);
                    archive.append_data(&mut header, name, bytes.as_slice())?;
                }
            }
        }
        archive.finish()
    }
}

impl What {
    fn bytes(&self) -> u64 {
        match self {
            What::Directory | What::Link { .. } => 0,
            What::File { was, .. } | What::ByteCode { was, .. } => was.bytes,
            What::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

struct Walk<'a> {
    root: &'a Path,
    name: &'a Path,
    outside: Outside,
    skip: &'a dyn Fn(&Path, &Path) -> bool,
}

/// The way from one directory below a root to something else below it.
pub(super) fn relative(from: &Path, to: &Path) -> PathBuf {
    let parts = |path: &'_ Path| -> Vec<PathBuf> {
        let normal = path.components().filter(|one| matches!(one, Component::Normal(_)));
        normal.map(|one| PathBuf::from(one.as_os_str())).collect()
    };
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut way: PathBuf = from[common..].iter().map(|_| "..").collect();
    way.extend(&to[common..]);
    match way.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => way,
    }
}

/// A sentence about links that lead nowhere; some environments have hundreds.
fn lost(links: &[PathBuf]) -> Option<String> {
    let first = links.iter().min()?.display();
    Some(match links.len() {
        1 => format!("the link `{first}` leads nowhere: it is left out"),
        2 => format!("the link `{first}` and another lead nowhere: they are left out"),
        n => format!("the link `{first}` and {} others lead nowhere: they are left out", n - 1),
    })
}

/// How a name ends.
pub(super) fn ends(name: &Path, with: &str) -> bool {
    let bytes = name.file_name().map(OsStr::as_bytes).unwrap_or_default();
    bytes.ends_with(with.as_bytes())
}

/// What people do about files that they may not read.
pub(super) const READABLE: &str =
    "make it readable for yourself, or take it out: everything in it is packed";

pub(super) fn unread(path: &Path, error: &io::Error) -> Report {
    let what = format!("cannot read `{}`: {}", path.display(), reason(error));
    let report = Report::bad_input(what);
    match error.kind() {
        io::ErrorKind::PermissionDenied => report.hint(READABLE),
        _ => report,
    }
}

#[cfg(test)]
mod tests;
