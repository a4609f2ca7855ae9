//! Cache of packed layers: an unchanged layer is not read again.
//!
//! A layer is stored under a key derived from the metadata of its files. It is written to a temporary name and renamed, first
//! the archive and then its description. Of two concurrent packers of one layer, one waits for the other; a stored archive is
//! never modified, because another process may be uploading it.

use super::same::FileStamp;
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
    pub naming: Vec<String>,
    /// Binaries that contain it, as recorded by conda.
    pub written_into: Vec<String>,
    /// Libraries are looked up in the environment's own `lib` by its original path.
    pub told: bool,
    /// Files that look up libraries in another place of this machine, with that place.
    pub searched: Vec<(String, String)>,
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
        let about = fs::read(self.about(key)).ok()?;
        let known: LayerInfo = serde_json::from_slice(&about).ok()?;
        let archive = self.archive(key);
        if fs::metadata(&archive).ok()?.len() != known.bytes {
            return None;
        }
        // The modification time of the description records the last use. If it cannot be set, the layer only expires sooner.
        let _ = File::open(self.about(key)).and_then(|file| file.set_modified(SystemTime::now()));
        Some((archive, known))
    }

    /// Waits until no other process packs that layer.
    pub(super) fn lock(&self, key: &str) -> Result<File, Report> {
        lock(&self.dir.join(format!("{key}.lock")), &|| {
            (self.notify)("waiting for another process that packs this layer".to_owned());
        })
    }

    /// Marker of a ready-made archive that was validated in its present state.
    pub(super) fn checked(&self, what: &str, was: &FileStamp) -> PathBuf {
        let mut about = was.to_bytes().to_vec();
        about.extend(what.as_bytes());
        let key = hex::encode(digest(&SHA256, &about).as_ref());
        self.dir.with_file_name("checked").join(key)
    }

    /// Directory of cached byte code of the user's own code.
    pub(super) fn code(&self) -> PathBuf {
        self.dir.with_file_name("code")
    }

    /// Creates a temporary directory in the cache, removed on drop.
    pub(super) fn aside(&self) -> Result<TempDir, Report> {
        let failed = |error: &io::Error| failed(&self.dir, error);
        fs::create_dir_all(&self.dir).map_err(|error| failed(&error))?;
        let mut random = [0; 8];
        let made = SystemRandom::new().fill(&mut random);
        made.map_err(|_| Report::internal("no random bytes available"))?;
        let dir = self.dir.join(format!("aside-{}", hex::encode(random)));
        fs::create_dir(&dir).map_err(|error| failed(&error))?;
        Ok(TempDir { dir })
    }

    /// Moves a finished archive into the cache.
    pub(super) fn keep(
        &self,
        key: &str,
        archive: &Path,
        known: &LayerInfo,
    ) -> Result<PathBuf, Report> {
        let about = archive.with_extension("json");
        let kept = serde_json::to_vec(known)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&about, bytes))
            .and_then(|()| fs::rename(archive, self.archive(key)))
            .and_then(|()| fs::rename(&about, self.about(key)));
        kept.map_err(|error| failed(&self.dir, &error))?;
        self.clean(SystemTime::now(), BYTES_MAX);
        Ok(self.archive(key))
    }

    /// Removes old layers, then the oldest until the size is within the limit.
    fn clean(&self, now: SystemTime, bytes_max: u64) {
        let mut kept = Vec::new();
        let mut bytes = 0;
        let age = |about: &fs::Metadata| {
            let then = about.modified().ok();
            let age = then.and_then(|then| now.duration_since(then).ok());
            age.unwrap_or_default()
        };
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            let ends = |with: &str| path.extension().is_some_and(|ending| ending == with);
            if about.is_dir() {
                if age(&about) > AGE_MIN {
                    // Left behind by a crashed process. Entries that cannot be removed stay.
                    let _ = fs::remove_dir_all(path);
                }
            } else if ends("gz") {
                let name = path.to_string_lossy().replace(".tar.gz", ".json");
                let used = fs::metadata(name).as_ref().map_or(age(&about), age);
                bytes += about.len();
                kept.push((used, about.len(), path));
            } else if ends("lock") && age(&about) > AGE_MAX {
                // A lock held this long belongs to a stuck process.
                let _ = fs::remove_file(path);
            }
        }
        for entry in fs::read_dir(self.code()).into_iter().flatten().flatten() {
            if entry.metadata().is_ok_and(|about| age(&about) > AGE_MAX) {
                let _ = fs::remove_file(entry.path());
            }
        }
        kept.sort();
        while let Some((age, length, path)) = kept.pop() {
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

    fn about(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.json"))
    }
}

/// Temporary directory, removed on drop.
#[derive(Debug)]
pub(super) struct TempDir {
    dir: PathBuf,
}

impl TempDir {
    pub fn path(&self) -> &Path {
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
    let mut told = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                if !told {
                    waiting();
                    told = true;
                }
                std::thread::sleep(PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what =
                    format!("another process has held the lock `{}` for an hour", path.display());
                return Err(Report::internal(what).hint("find that process and end it"));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Root of ydl's caches.
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
    let what = format!("cannot pack into `{}`: {}", dir.display(), reason(error));
    Report::internal(what).hint("set `XDG_CACHE_HOME` to a directory with enough space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache, key: &str, bytes: usize) -> PathBuf {
        let aside = cache.aside().expect("a directory");
        let archive = aside.path().join("layer.tar.gz");
        fs::write(&archive, vec![1; bytes]).expect("a file");
        let known = LayerInfo { bytes: bytes as u64, ..LayerInfo::default() };
        cache.keep(key, &archive, &known).expect("kept")
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
        assert_eq!(cache.find("a"), None, "half of it is none of it");
    }

    #[test]
    fn waiting_for_another_packer_is_reported() {
        static HEARD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(dir.path().join("packed"));
        let cache = cache.with_progress(|said| HEARD.lock().expect("a list").push(said));
        let first = cache.lock("a").expect("a lock");
        let heard = || HEARD.lock().expect("a list").clone();
        assert_eq!(heard(), Vec::<String>::new());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| cache.lock("a").map(drop));
            let until = Instant::now() + Duration::from_secs(60);
            while heard().is_empty() && Instant::now() < until {
                std::thread::park_timeout(PAUSE);
            }
            drop(first);
            second.join().expect("no panic").expect("a lock");
        });
        assert_eq!(heard(), ["waiting for another process that packs this layer"]);
    }

    #[test]
    fn old_layers_and_those_over_the_limit_are_removed_oldest_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(dir.path().join("packed"));
        let now = SystemTime::now();
        for (key, hours) in [("new", 1), ("middle", 30), ("old", 40), ("ancient", 24 * 31)] {
            put(&cache, key, 100);
            let then = now - Duration::from_secs(hours * 3600);
            File::open(cache.about(key)).expect("a file").set_modified(then).expect("a time");
        }
        cache.clean(now, 250);
        let there = |key: &str| dir.path().join(format!("packed/{key}.tar.gz")).exists();
        assert!(!there("ancient") && !there("old") && there("middle") && there("new"));
        cache.clean(now, 10);
        assert!(!there("middle") && there("new"), "what is in use stays");
    }
}
