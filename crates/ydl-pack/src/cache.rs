//! Cache of packed layers: an unchanged layer is not read again.
//!
//! A layer is stored under a key derived from the metadata of its files. It is written to a temporary name and renamed, first
//! the archive and then its description. Of two concurrent packers of one layer, one waits for the other; a stored archive is
//! never modified, because another process may be uploading it.

use super::stable_file::FileStamp;
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use ydl_os::{env, reason, report::Report};

/// Age after which an unused layer is removed.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Minimum age of removal: a recent layer may be in use by an upload.
const AGE_MIN: Duration = Duration::from_secs(6 * 60 * 60);
/// Maximum size of the cache.
const BYTES_MAX: u64 = 40 << 30;
/// Timeout of building an entry, and of waiting for another builder.
pub(super) const BUILD_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Poll interval while another builder runs.
const PAUSE: Duration = Duration::from_millis(50);

/// Cache of packed layers.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
    /// Receives progress messages.
    notify: fn(String),
}

/// Description of a packed layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerInfo {
    /// SHA-256 of the archive in hexadecimal.
    pub hash: String,
    /// Length of the archive.
    pub bytes: u64,
    /// Length of its content.
    pub unpacked: u64,
    /// Number of files in it.
    pub files: u64,
    /// Highest C library version required, and the file that requires it.
    pub glibc: Option<((u32, u32), String)>,
    /// Machine types of its binaries, each with a file.
    pub machines: Vec<(String, String)>,
    /// Largest packages, in descending order.
    pub largest: Vec<(String, u64)>,
    /// Text files that contain the path of the environment.
    pub texts_with_path: Vec<String>,
    /// Binaries that contain it, as recorded by conda.
    pub binaries_with_path: Vec<String>,
    /// Libraries are looked up in the environment's own `lib` by its original path.
    pub needs_library_path: bool,
    /// Files that look up libraries in other directories of this machine, with the directory.
    pub foreign_libraries: Vec<(String, String)>,
}

impl Cache {
    /// Opens the user's cache.
    pub fn of_user() -> Result<Cache, Report> {
        Ok(Cache::at(root()?.join("packed")))
    }

    /// Opens a cache in another directory.
    pub fn at(dir: PathBuf) -> Cache {
        Cache { dir, notify: drop }
    }

    /// Sets the receiver of progress messages.
    #[must_use]
    pub fn with_progress(self, notify: fn(String)) -> Cache {
        Cache { notify, ..self }
    }

    /// Returns the archive of a key, if it is complete.
    pub(super) fn find(&self, key: &str) -> Option<(PathBuf, LayerInfo)> {
        let description = fs::read(self.description(key)).ok()?;
        let info: LayerInfo = serde_json::from_slice(&description).ok()?;
        let archive = self.archive(key);
        if fs::metadata(&archive).ok()?.len() != info.bytes {
            return None;
        }
        // The modification time of the description records the last use. If it cannot be set, the layer only expires sooner.
        let _ =
            File::open(self.description(key)).and_then(|file| file.set_modified(SystemTime::now()));
        Some((archive, info))
    }

    /// Sends a progress message.
    pub(super) fn notify(&self, message: String) {
        (self.notify)(message);
    }

    /// Waits until no other process packs the layer of a key.
    pub(super) fn lock(&self, key: &str) -> Result<File, Report> {
        lock(&self.dir.join(format!("{key}.lock")), &|| {
            self.notify("waiting for another process that packs the same files".to_owned());
        })
    }

    /// Returns the path of the marker that an archive was validated in its present state.
    pub(super) fn validation_marker(&self, name: &str, stamp: &FileStamp) -> PathBuf {
        let mut key = stamp.to_bytes().to_vec();
        key.extend(name.as_bytes());
        let key = hex::encode(digest(&SHA256, &key).as_ref());
        self.dir.with_file_name("checked").join(key)
    }

    /// Returns the directory of cached byte code of the user's own code.
    pub(super) fn byte_code_dir(&self) -> PathBuf {
        self.dir.with_file_name("code")
    }

    /// Creates a temporary directory in the cache, removed on drop.
    pub(super) fn temporary_dir(&self) -> Result<TempDir, Report> {
        let failed = |error: &io::Error| failed(&self.dir, error);
        fs::create_dir_all(&self.dir).map_err(|error| failed(&error))?;
        let mut random = [0; 8];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| Report::internal("the system has no random number generator"))?;
        let dir = self.dir.join(format!("tmp-{}", hex::encode(random)));
        fs::create_dir(&dir).map_err(|error| failed(&error))?;
        Ok(TempDir { dir })
    }

    /// Moves a finished archive into the cache.
    pub(super) fn insert(
        &self,
        key: &str,
        archive: &Path,
        info: &LayerInfo,
    ) -> Result<PathBuf, Report> {
        let description = archive.with_extension("json");
        let result = serde_json::to_vec(info)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&description, bytes))
            .and_then(|()| fs::rename(archive, self.archive(key)))
            .and_then(|()| fs::rename(&description, self.description(key)));
        result.map_err(|error| failed(&self.dir, &error))?;
        self.clean(SystemTime::now(), BYTES_MAX);
        Ok(self.archive(key))
    }

    /// Removes old layers, then the oldest until the size is within the limit.
    fn clean(&self, now: SystemTime, bytes_max: u64) {
        let mut layers = Vec::new();
        let mut bytes = 0;
        let age = |metadata: &fs::Metadata| {
            let then = metadata.modified().ok();
            let age = then.and_then(|then| now.duration_since(then).ok());
            age.unwrap_or_default()
        };
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            let has_extension = |wanted: &str| path.extension().is_some_and(|own| own == wanted);
            if metadata.is_dir() {
                if age(&metadata) > AGE_MIN {
                    // Left behind by a crashed process. Entries that cannot be removed stay.
                    let _ = fs::remove_dir_all(path);
                }
            } else if has_extension("gz") {
                let name = path.to_string_lossy().replace(".tar.gz", ".json");
                let unused = fs::metadata(name).as_ref().map_or(age(&metadata), age);
                bytes += metadata.len();
                layers.push((unused, metadata.len(), path));
            } else if has_extension("lock") && age(&metadata) > AGE_MAX {
                // A lock held this long belongs to a stuck process.
                let _ = fs::remove_file(path);
            }
        }
        for entry in fs::read_dir(self.byte_code_dir()).into_iter().flatten().flatten() {
            if entry.metadata().is_ok_and(|metadata| age(&metadata) > AGE_MAX) {
                let _ = fs::remove_file(entry.path());
            }
        }
        layers.sort();
        while let Some((age, length, path)) = layers.pop() {
            if age < AGE_MAX && (bytes <= bytes_max || age < AGE_MIN) {
                break;
            }
            bytes -= length;
            let name = path.to_string_lossy().replace(".tar.gz", ".json");
            let _ = fs::remove_file(name);
            let _ = fs::remove_file(path);
        }
    }

    fn archive(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.tar.gz"))
    }

    fn description(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.json"))
    }
}

/// Temporary directory, removed on drop.
#[derive(Debug)]
pub(super) struct TempDir {
    dir: PathBuf,
}

impl TempDir {
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover is removed by age.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits for an exclusive lock, released on drop. `waiting` is called if another process holds it.
pub(super) fn lock(path: &Path, waiting: &dyn Fn()) -> Result<File, Report> {
    let failed = |error: io::Error| failed(path, &error);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed)?;
    let until = Instant::now() + BUILD_TIMEOUT;
    let mut notified = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                if !notified {
                    waiting();
                    notified = true;
                }
                std::thread::sleep(PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what =
                    format!("another process has held the lock `{}` for an hour", path.display());
                return Err(Report::internal(what).hint("find and stop that process"));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Returns the root of ydl's caches.
pub fn root() -> Result<PathBuf, Report> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable(env::XDG_CACHE_HOME)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".cache")));
    match cache {
        Some(cache) if cache.is_absolute() => Ok(cache.join("ydl")),
        _ => {
            let what = "no cache directory for packed environments: neither `XDG_CACHE_HOME` nor `HOME` is set";
            Err(Report::internal(what).hint("set `XDG_CACHE_HOME` to a writable directory"))
        }
    }
}

pub(super) fn failed(dir: &Path, error: &io::Error) -> Report {
    let what = format!("cannot write to the cache `{}`: {}", dir.display(), reason(error));
    Report::internal(what).hint("set `XDG_CACHE_HOME` to a directory with enough space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache, key: &str, bytes: usize) -> PathBuf {
        let temporary = cache.temporary_dir().expect("a directory");
        let archive = temporary.path().join("layer.tar.gz");
        fs::write(&archive, vec![1; bytes]).expect("a file");
        let info = LayerInfo { bytes: bytes as u64, ..LayerInfo::default() };
        cache.insert(key, &archive, &info).expect("a cached layer")
    }

    #[test]
    fn complete_layers_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(dir.path().join("packed"));
        assert_eq!(cache.find("a"), None);
        let path = put(&cache, "a", 100);
        assert!(cache.find("a").is_some());
        assert_eq!(fs::read_dir(dir.path().join("packed")).expect("a list").count(), 2);
        fs::write(&path, "short").expect("a file");
        assert_eq!(cache.find("a"), None, "a truncated archive is not used");
    }

    #[test]
    fn waiting_for_another_packer_is_reported() {
        static MESSAGES: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(dir.path().join("packed"));
        let cache = cache.with_progress(|message| MESSAGES.lock().expect("a list").push(message));
        let first = cache.lock("a").expect("a lock");
        let messages = || MESSAGES.lock().expect("a list").clone();
        assert_eq!(messages(), Vec::<String>::new());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| cache.lock("a").map(drop));
            let until = Instant::now() + Duration::from_secs(60);
            while messages().is_empty() && Instant::now() < until {
                std::thread::park_timeout(PAUSE);
            }
            drop(first);
            second.join().expect("no panic").expect("a lock");
        });
        assert_eq!(messages(), ["waiting for another process that packs the same files"]);
    }

    #[test]
    fn old_layers_and_those_over_the_limit_are_removed_oldest_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(dir.path().join("packed"));
        let now = SystemTime::now();
        for (key, hours) in [("new", 1), ("middle", 30), ("old", 40), ("ancient", 24 * 31)] {
            put(&cache, key, 100);
            let then = now - Duration::from_secs(hours * 3600);
            let description = File::open(cache.description(key)).expect("a file");
            description.set_modified(then).expect("a time");
        }
        cache.clean(now, 250);
        let exists = |key: &str| dir.path().join(format!("packed/{key}.tar.gz")).exists();
        assert!(!exists("ancient") && !exists("old") && exists("middle") && exists("new"));
        cache.clean(now, 10);
        assert!(!exists("middle") && exists("new"), "a recently used layer stays");
    }
}
