//! Cache of the hashes of large local files.
//!
//! Every submission needs the hash of the binary, which seldom changes, and reading it takes longer than all requests to a
//! cluster. A file counts as unchanged if its [`FileStamp`] is the same, which includes the time of its last status change:
//! programs cannot set it.

use super::source::ContentHash;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use ydl_pack::{self as pack, FileStamp};
use ydl_proto::version::{from_json, write_json};

/// Minimum size of a cached file; hashing a smaller one is as fast as reading its record.
const BYTES_MIN: u64 = 1 << 20;
/// Minimum age of a change: a file may change again within the resolution of its times.
const SETTLED: Duration = Duration::from_secs(2);
/// Maximum size of a record.
const RECORD_BYTES_MAX: u64 = 4096;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HashRecord {
    path: PathBuf,
    stamp: Vec<u8>,
    hash: String,
}

/// Returns the cache directory, if there is one.
pub(super) fn hashes() -> Option<PathBuf> {
    Some(pack::root().ok()?.join("hashes"))
}

/// Returns the cached hash of an unchanged file.
pub(super) fn lookup(dir: &Path, path: &Path, stamp: FileStamp) -> Option<ContentHash> {
    let record_path = record_path(dir, path, stamp)?;
    let metadata = fs::metadata(&record_path).ok()?;
    if metadata.len() > RECORD_BYTES_MAX {
        return None;
    }
    let record: HashRecord = from_json(&fs::read(&record_path).ok()?).ok()?;
    let is_hash = |hash: &str| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let fits = record.path == path && record.stamp == stamp.to_bytes() && is_hash(&record.hash);
    fits.then_some(ContentHash { hash: record.hash, bytes: stamp.bytes })
}

/// Stores a hash. Failures are ignored: the file is read again.
pub(super) fn store(dir: &Path, path: &Path, stamp: FileStamp, hashed: &ContentHash) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let age = now.unwrap_or_default().checked_sub(stamp.changed_at());
    if age.is_none_or(|age| age < SETTLED) {
        return;
    }
    if let Some(record_path) = record_path(dir, path, stamp) {
        let record = HashRecord {
            path: path.to_path_buf(),
            stamp: stamp.to_bytes().to_vec(),
            hash: hashed.hash.clone(),
        };
        let _ = fs::create_dir_all(dir).and_then(|()| write_json(&record_path, &record));
    }
}

/// Returns the path of a file's record. It depends only on the file's path, so that a change replaces the record.
fn record_path(dir: &Path, path: &Path, stamp: FileStamp) -> Option<PathBuf> {
    if stamp.bytes < BYTES_MIN || !path.is_absolute() {
        return None;
    }
    let hash = digest(&SHA256, path.as_os_str().as_bytes());
    Some(dir.join(hex::encode(&hash.as_ref()[..16])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp_of(path: &Path) -> FileStamp {
        FileStamp::of(&fs::metadata(path).unwrap())
    }

    /// Waits until the last change of a file is old enough to be cached.
    fn wait_until_settled(path: &Path) {
        while SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .saturating_sub(stamp_of(path).changed_at())
            < SETTLED
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn the_hash_of_an_unchanged_file_is_cached() {
        let record_path = tempfile::tempdir().unwrap();
        let (dir, path) = (record_path.path().join("hashes"), record_path.path().join("large"));
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let hashed = ContentHash { hash: "0a".repeat(32), bytes: 1 << 20 };
        store(&dir, &path, stamp_of(&path), &hashed);
        assert_eq!(lookup(&dir, &path, stamp_of(&path)), None, "too fresh");
        wait_until_settled(&path);
        store(&dir, &path, stamp_of(&path), &hashed);
        assert_eq!(lookup(&dir, &path, stamp_of(&path)), Some(hashed));
        let other = path.with_file_name("other");
        assert_eq!(lookup(&dir, &other, stamp_of(&path)), None);
        fs::write(&path, vec![2; 1 << 20]).unwrap();
        assert_eq!(lookup(&dir, &path, stamp_of(&path)), None, "of the same length");
        let record = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
        fs::write(record, "half").unwrap();
        assert_eq!(lookup(&dir, &path, stamp_of(&path)), None);
    }
}
