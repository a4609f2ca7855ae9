//! Validates archives made by other tools before a cluster unpacks them.
//!
//! A NodeManager unpacks any archive. One that would write outside its directory or fill the disk is rejected here: names and
//! lengths are read once, and a valid archive is remembered.

use super::{
    cache::{Cache, failed},
    plan::unread,
    same::{FileStamp, StableFile},
};
use flate2::read::MultiGzDecoder;
use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufReader},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};
use ydl_os::report::Report;

mod tape;
mod zip;

/// More than this fills the disk of most nodes.
const BYTES_MAX: u64 = 200_000_000_000;
/// Maximum compression ratio of real content; applies only to archives that unpack to more than the second bound.
const RATIO_MAX: u64 = 500;
const RATIO_FROM_BYTES: u64 = 1_000_000_000;
/// Maximum number of entries: a larger archive takes a node too long to unpack.
const ENTRIES_MAX: usize = 2_000_000;

/// Expected content of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// An environment: `bin` at the top, or in the only top-level directory.
    Environment,
    /// Any files.
    Anything,
}

/// Scan of an archive.
struct ArchiveScan {
    packed: u64,
    bytes: u64,
    entries: usize,
    /// Links: an entry below one of them would be unpacked elsewhere.
    links: BTreeSet<PathBuf>,
    has_bin: bool,
}

/// Checks that a cluster can unpack an archive, and that it has the expected content.
pub fn validate(path: &Path, holds: Expected, cache: &Cache) -> Result<(), Report> {
    let about = fs::metadata(path).map_err(|error| unread(path, &error))?;
    let was = FileStamp::of(&about);
    let mark = cache.checked(&format!("{holds:?} {}", path.display()), &was);
    if mark.is_file() {
        return Ok(());
    }
    let mut seen = ArchiveScan {
        packed: was.bytes,
        bytes: 0,
        entries: 0,
        links: BTreeSet::new(),
        has_bin: holds == Expected::Anything,
    };
    let low = path.to_string_lossy().to_lowercase();
    let file = StableFile::open(path, was);
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
        let hint = "recreate it, or name the directory itself: ydl packs it";
        Report::bad_input(what).hint(hint)
    };
    found.map_err(|error| refused(ydl_os::reason(&error)))?;
    if !seen.has_bin {
        return Err(refused("it has no `bin` in it, nor in its one directory".to_owned()));
    }
    if let Some(dir) = mark.parent() {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    // If the result cannot be stored, the archive is scanned again next time.
    let _ = fs::write(mark, "");
    Ok(())
}

impl ArchiveScan {
    fn add(&mut self, name: &Path, bytes: u64, link: bool) -> io::Result<()> {
        let inside = inside(name).ok_or_else(|| leads_out(name))?;
        self.before_links(&inside, name)?;
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
                "it would become more than {} GB of {}",
                self.bytes / 1_000_000_000,
                small(self.packed)
            );
            return Err(wrong(what));
        }
        if self.entries > ENTRIES_MAX {
            return Err(wrong(format!("it has more than {ENTRIES_MAX} entries")));
        }
        Ok(())
    }
}

/// Formats the length of a compressed archive.
fn small(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} KB", bytes.div_ceil(1000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

impl ArchiveScan {
    /// Checks that no parent directory of an entry is a link.
    fn before_links(&self, inside: &Path, name: &Path) -> io::Result<()> {
        let mut above = inside.ancestors().skip(1);
        match above.any(|dir| self.links.contains(dir)) {
            true => {
                let what = format!("`{}` in it lies behind a link", name.display());
                Err(wrong(what))
            }
            false => Ok(()),
        }
    }
}

/// Name up to its terminating zero.
fn path(bytes: &[u8]) -> PathBuf {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}

/// Normalizes a name; `None` if it leads out of the archive's directory.
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

#[cfg(test)]
mod tests;
