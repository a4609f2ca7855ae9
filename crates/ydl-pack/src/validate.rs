//! Validates archives made by other tools before a cluster unpacks them.
//!
//! A NodeManager unpacks any archive. One that would write outside its directory or fill the disk is rejected: names and lengths
//! are scanned, and the result for a valid archive is cached.

use super::{
    cache::{Cache, failed},
    plan::read_error,
    stable_file::{FileStamp, StableFile},
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

mod tar_headers;
mod zip_directory;

/// Maximum unpacked size; more would fill the disk of most nodes.
const BYTES_MAX: u64 = 200_000_000_000;
/// Maximum compression ratio of real content; applies only to archives that unpack to more than the second bound.
const RATIO_MAX: u64 = 500;
const RATIO_FROM_BYTES: u64 = 1_000_000_000;
/// Maximum number of entries: a larger archive takes a node too long to unpack.
const ENTRIES_MAX: usize = 2_000_000;

/// ExpectedContent content of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedContent {
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
    /// Links. An entry below one of them would be unpacked outside of the directory.
    links: BTreeSet<PathBuf>,
    has_bin: bool,
}

/// Checks that a cluster can unpack an archive, and that it has the expected content.
pub fn validate(path: &Path, content: ExpectedContent, cache: &Cache) -> Result<(), Report> {
    let metadata = fs::metadata(path).map_err(|error| read_error(path, &error))?;
    let stamp = FileStamp::of(&metadata);
    let marker = cache.validation_marker(&format!("{content:?} {}", path.display()), &stamp);
    if marker.is_file() {
        return Ok(());
    }
    let mut scan = ArchiveScan {
        packed: stamp.bytes,
        bytes: 0,
        entries: 0,
        links: BTreeSet::new(),
        has_bin: content == ExpectedContent::Anything,
    };
    let lower = path.to_string_lossy().to_lowercase();
    let file = StableFile::open(path, stamp);
    let result = file.and_then(|file| {
        if lower.ends_with(".zip") || lower.ends_with(".jar") {
            drop(file);
            scan.zip(fs::File::open(path)?)
        } else if lower.ends_with(".tar") {
            scan.tar(BufReader::new(file))
        } else {
            scan.tar(MultiGzDecoder::new(BufReader::with_capacity(1 << 20, file)))
        }
    });
    let rejected = |why: String| {
        let what = format!("invalid archive `{}`: {why}", path.display());
        let hint = "recreate it, or name the directory itself: ydl packs it";
        Report::bad_input(what).hint(hint)
    };
    result.map_err(|error| rejected(ydl_os::reason(&error)))?;
    if !scan.has_bin {
        let why = "it has no `bin` at the top or in its only directory";
        return Err(rejected(why.to_owned()));
    }
    if let Some(dir) = marker.parent() {
        fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    // If the result cannot be stored, the archive is scanned again next time.
    let _ = fs::write(marker, "");
    Ok(())
}

impl ArchiveScan {
    fn add(&mut self, name: &Path, bytes: u64, link: bool) -> io::Result<()> {
        let normal = normalize(name).ok_or_else(|| escape_error(name))?;
        self.check_links(&normal, name)?;
        let parts: Vec<_> = normal.iter().take(3).collect();
        self.has_bin |= parts.first().is_some_and(|first| *first == "bin")
            || parts.get(1).is_some_and(|second| *second == "bin");
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if link {
            self.links.insert(normal);
        }
        let plausible = self.packed.saturating_mul(RATIO_MAX);
        if self.bytes > BYTES_MAX || (self.bytes > RATIO_FROM_BYTES && self.bytes > plausible) {
            let what = format!(
                "it unpacks to more than {} GB, from {}",
                self.bytes / 1_000_000_000,
                format_size(self.packed)
            );
            return Err(invalid(what));
        }
        if self.entries > ENTRIES_MAX {
            return Err(invalid(format!("it has more than {ENTRIES_MAX} entries")));
        }
        Ok(())
    }
}

/// Formats the length of a compressed archive.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} KB", bytes.div_ceil(1000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

impl ArchiveScan {
    /// Checks that no parent directory of an entry is a link.
    fn check_links(&self, normal: &Path, name: &Path) -> io::Result<()> {
        let mut parents = normal.ancestors().skip(1);
        match parents.any(|dir| self.links.contains(dir)) {
            true => {
                let what =
                    format!("a parent directory of its entry `{}` is a link", name.display());
                Err(invalid(what))
            }
            false => Ok(()),
        }
    }
}

/// Returns the name up to its terminating zero.
fn path(bytes: &[u8]) -> PathBuf {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}

/// Normalizes a name. Returns `None` if it escapes the archive's directory.
fn normalize(name: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => normal.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

fn escape_error(name: &Path) -> io::Error {
    invalid(format!("its entry `{}` escapes the directory", name.display()))
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

#[cfg(test)]
mod tests;
