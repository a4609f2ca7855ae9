//! Archives that somebody else has packed: what can be known of them before a cluster unpacks them.
//!
//! A NodeManager unpacks what it is given. One that writes beside its own directory, or fills the disk, is found out about
//! here: names and lengths are read once and what was found to be fine is remembered.

use super::{
    cache::{Cache, failed},
    plan::unread,
    same::{Same, Stamp},
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
/// No honest content becomes so many times smaller; below the second bound nobody is hurt.
const RATIO_MAX: u64 = 500;
const RATIO_FROM_BYTES: u64 = 1_000_000_000;
/// More than this takes a node longer to unpack than a job should wait.
const ENTRIES_MAX: usize = 2_000_000;

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
    found.map_err(|error| refused(ydl_os::reason(&error)))?;
    if !seen.has_bin {
        return Err(refused("it has no `bin` in it, nor in its one directory".to_owned()));
    }
    if let Some(dir) = mark.parent() {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    // Where it cannot be remembered it is looked through again.
    let _ = fs::write(mark, "");
    Ok(())
}

impl Seen {
    fn see(&mut self, name: &Path, bytes: u64, link: bool) -> io::Result<()> {
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

/// The length of an archive that is smaller than it seems.
fn small(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} KB", bytes.div_ceil(1000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

impl Seen {
    /// Whether nothing on the way to that place is a link.
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

#[cfg(test)]
mod tests;
