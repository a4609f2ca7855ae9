//! Archives that somebody else has packed: what can be known of them before a cluster unpacks them.
//!
//! A NodeManager unpacks what it is given. One that writes beside its own directory, or fills the disk, is found out about
//! here: names and lengths are read once and what was found to be fine is remembered.

use super::{
    cache::{Cache, failed},
    plan::unread,
    same::{Same, Stamp},
};
use crate::report::Report;
use flate2::read::MultiGzDecoder;
use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};
use tar::EntryType;

/// More than this fills the disk of most nodes.
const BYTES_MAX: u64 = 200_000_000_000;
/// No honest content becomes so many times smaller; below the second bound nobody is hurt.
const RATIO_MAX: u64 = 500;
const RATIO_FROM_BYTES: u64 = 1_000_000_000;
/// More than this takes a node longer to unpack than a job should wait.
const ENTRIES_MAX: usize = 2_000_000;
/// Longer than any name, and than what is said of any.
const NAME_BYTES_MAX: u64 = 1 << 20;
/// The longest table of a zip that is read.
const TABLE_BYTES_MAX: u64 = 512 << 20;
/// Where the table of a zip is told: at the end, before a comment of at most 64 KiB.
const ENDING_BYTES_MAX: u64 = 22 + 65_535;

/// What an archive should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// An environment: `bin` is in it, or in its one directory.
    Environment,
    /// Whatever the job's files are.
    Anything,
}

/// What was seen of an archive so far.
struct Seen {
    packed: u64,
    bytes: u64,
    entries: usize,
    /// Links: whatever is unpacked through one of them lands elsewhere.
    links: BTreeSet<PathBuf>,
    has_bin: bool,
}

/// Whether a cluster can unpack an archive, and whether it holds what it should.
pub fn check(path: &Path, holds: Holds, cache: &Cache) -> Result<(), Report> {
    let about = fs::metadata(path).map_err(|error| unread(path, &error))?;
    let was = Stamp::of(&about);
    let mark = cache.checked(&format!("{holds:?} {}", path.display()), &was);
    if mark.is_file() {
        return Ok(());
    }
    let mut seen = Seen {
        packed: was.bytes,
        bytes: 0,
        entries: 0,
        links: BTreeSet::new(),
        has_bin: holds == Holds::Anything,
    };
    let low = path.to_string_lossy().to_lowercase();
    let file = Same::open(path, was);
    let found = file.and_then(|file| {
        if low.ends_with(".zip") || low.ends_with(".jar") {
            drop(file);
            seen.zip(fs::File::open(path)?)
        } else if low.ends_with(".tar") {
            seen.tar(BufReader::new(file))
        } else {
            seen.tar(MultiGzDecoder::new(BufReader::with_capacity(1 << 20, file)))
        }
    });
    let refused = |why: String| {
        let what = format!("the archive `{}` cannot be used: {why}", path.display());
        let hint = "pack it anew, or name the directory itself: ydl packs it";
        Report::bad_input(what).hint(hint)
    };
    found.map_err(|error| refused(crate::os::reason(&error)))?;
    if !seen.has_bin {
        return Err(refused(
            "it has no `bin` in it, nor in its one directory".to_owned(),
        ));
    }
    if let Some(dir) = mark.parent() {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    // Where it cannot be remembered it is looked through again.
    let _ = fs::write(mark, "");
    Ok(())
}

impl Seen {
    fn tar(&mut self, from: impl Read) -> io::Result<()> {
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong("it is cut off"),
            _ => error,
        };
        let mut archive = tar::Archive::new(from);
        let mut longer = Longer::default();
        // As they are: whoever puts long names together reads them whole, however long they are.
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry.map_err(cut)?;
            let kind = entry.header().entry_type();
            if longer.take(kind, &mut entry).map_err(cut)? {
                continue;
            }
            if longer.unknown {
                self.has_bin = true;
                return Ok(());
            }
            let Longer { name, to, .. } = std::mem::take(&mut longer);
            let name = name.unwrap_or_else(|| path(&entry.path_bytes()));
            let to = to.or_else(|| Some(path(&entry.link_name_bytes()?)));
            match kind {
                EntryType::Symlink => self.see(&name, 0, true)?,
                EntryType::Link => {
                    inside(&to.unwrap_or_default()).ok_or_else(|| leads_out(&name))?;
                    self.see(&name, 0, false)?;
                }
                EntryType::Char | EntryType::Block | EntryType::Fifo => {
                    let what = format!("`{}` in it is a device", name.display());
                    return Err(wrong(what));
                }
                EntryType::XGlobalHeader => {}
                _ => self.see(&name, entry.header().entry_size()?, false)?,
            }
        }
        Ok(())
    }

    /// Names and lengths as the table at the end of a zip tells them.
    fn zip(&mut self, mut file: fs::File) -> io::Result<()> {
        let broken = || wrong("it is no zip, or cut off");
        let length = file.metadata()?.len();
        let from = length.saturating_sub(ENDING_BYTES_MAX);
        file.seek(SeekFrom::Start(from))?;
        let mut ending = Vec::new();
        file.by_ref()
            .take(ENDING_BYTES_MAX)
            .read_to_end(&mut ending)?;
        let mut starts = (0..ending.len().saturating_sub(21)).rev();
        let at = starts.find(|at| ending[*at..].starts_with(b"PK\x05\x06"));
        let at = at.ok_or_else(broken)?;
        let (bytes, table) = (word(&ending, at + 12), word(&ending, at + 16));
        if table == u64::from(u32::MAX) || bytes > TABLE_BYTES_MAX {
            // Of more than 4 GiB, which a tar says better; a node unpacks it or says why not.
            self.has_bin = true;
            return Ok(());
        }
        file.seek(SeekFrom::Start(table))?;
        let mut all = Vec::new();
        file.take(bytes).read_to_end(&mut all)?;
        let mut rest = all.as_slice();
        while rest.starts_with(b"PK\x01\x02") {
            let length = short(rest, 28);
            let name = rest.get(46..46 + length).ok_or_else(broken)?;
            let name = PathBuf::from(String::from_utf8_lossy(name).into_owned());
            // The upper half of the outer attributes is the mode where a Unix wrote it.
            let link = word(rest, 38) >> 16 & 0o170_000 == 0o120_000;
            self.see(&name, word(rest, 24), link)?;
            let next = 46 + length + short(rest, 30) + short(rest, 32);
            rest = rest.get(next..).ok_or_else(broken)?;
        }
        match self.entries {
            0 => Err(broken()),
            _ => Ok(()),
        }
    }

    fn see(&mut self, name: &Path, bytes: u64, link: bool) -> io::Result<()> {
        let inside = inside(name).ok_or_else(|| leads_out(name))?;
        let through = inside
            .ancestors()
            .skip(1)
            .any(|dir| self.links.contains(dir));
        if through {
            let what = format!("`{}` in it lies behind a link", name.display());
            return Err(wrong(what));
        }
        let parts: Vec<_> = inside.iter().take(3).collect();
        self.has_bin |= parts.first().is_some_and(|first| *first == "bin")
            || parts.get(1).is_some_and(|second| *second == "bin");
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if link {
            self.links.insert(inside);
        }
        let many = self.packed.saturating_mul(RATIO_MAX);
        if self.bytes > BYTES_MAX || (self.bytes > RATIO_FROM_BYTES && self.bytes > many) {
            let what = format!(
                "it would become more than {} GB of {} MB",
                self.bytes / 1_000_000_000,
                self.packed / 1_000_000
            );
            return Err(wrong(what));
        }
        if self.entries > ENTRIES_MAX {
            return Err(wrong(format!("it has more than {ENTRIES_MAX} entries")));
        }
        Ok(())
    }
}

/// What entries of their own say of the one that follows them.
#[derive(Default)]
struct Longer {
    name: Option<PathBuf>,
    to: Option<PathBuf>,
    /// Files of more than 8 GiB have their length there; what follows cannot be looked through.
    unknown: bool,
}

impl Longer {
    /// Whether that is such an entry.
    fn take(&mut self, kind: EntryType, entry: &mut impl Read) -> io::Result<bool> {
        if !matches!(
            kind,
            EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader
        ) {
            return Ok(false);
        }
        let mut said = Vec::new();
        entry.take(NAME_BYTES_MAX + 1).read_to_end(&mut said)?;
        if said.len() as u64 > NAME_BYTES_MAX {
            return Err(wrong(format!(
                "a name in it is longer than {NAME_BYTES_MAX} bytes"
            )));
        }
        match kind {
            EntryType::GNULongName => self.name = Some(path(&said)),
            EntryType::GNULongLink => self.to = Some(path(&said)),
            _ => {
                for line in said.split(|byte| *byte == b'\n') {
                    let words = line.splitn(2, |byte| *byte == b' ').nth(1);
                    let words = words.unwrap_or_default();
                    if let Some(name) = words.strip_prefix(b"path=") {
                        self.name = Some(path(name));
                    } else if let Some(to) = words.strip_prefix(b"linkpath=") {
                        self.to = Some(path(to));
                    }
                    self.unknown |= words.starts_with(b"size=");
                }
            }
        }
        Ok(true)
    }
}

/// A name as it is written, up to the zero that ends it.
fn path(bytes: &[u8]) -> PathBuf {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}

/// A name that stays in the directory it is unpacked to, without `.` in it.
fn inside(name: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => inside.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(inside)
}

fn leads_out(name: &Path) -> io::Error {
    wrong(format!("`{}` in it leads out of it", name.display()))
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

fn short(bytes: &[u8], at: usize) -> usize {
    let part = bytes.get(at..at + 2).unwrap_or(&[0, 0]);
    usize::from(u16::from_le_bytes([part[0], part[1]]))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at + 4).unwrap_or(&[0; 4]);
    u64::from(u32::from_le_bytes([part[0], part[1], part[2], part[3]]))
}

#[cfg(test)]
mod tests;
