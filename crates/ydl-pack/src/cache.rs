//! Layers that were packed before: what has not changed since is not read again.
//!
//! A layer lies under a key made of how its files look from outside. It is written aside and renamed, first the archive
//! and then what is known of it. Of two who pack the same at once, one waits for the other; an archive that is there is
//! never touched again, because somebody may be sending it.

use super::same::Stamp;
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

/// What nobody used for so long goes.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What was used a moment ago may be on its way to a cluster.
const AGE_MIN: Duration = Duration::from_secs(6 * 60 * 60);
/// The most that is kept.
const BYTES_MAX: u64 = 40 << 30;
/// The longest that making something may take; whoever wants the same waits so long.
pub(super) const MAKING_MAX: Duration = Duration::from_secs(60 * 60);
/// How often it is looked whether another maker has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Where layers are kept.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
    /// Hears what takes long.
    tell: fn(String),
}

/// What is known of a packed layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Of the archive, SHA-256 in hexadecimal.
    pub hash: String,
    /// The length of the archive.
    pub bytes: u64,
    /// The length of what is in it.
    pub unpacked: u64,
    /// How many files are in it.
    pub files: u64,
    /// What asks most of the C library: version and file.
    pub glibc: Option<((u32, u32), String)>,
    /// For which machines there is something in it, each with a file.
    pub machines: Vec<(String, String)>,
    /// The largest packages, largest first.
    pub largest: Vec<(String, u64)>,
    /// Texts in it that name the place where it was.
    pub naming: Vec<String>,
    /// Programs and libraries that name it, as conda says.
    pub written_into: Vec<String>,
    /// Whether something looks for libraries in the environment's own `lib` by the path that this had.
    pub told: bool,
    /// What looks for libraries at a place of this machine, and at which.
    pub searched: Vec<(String, String)>,
}

impl Cache {
    /// The user's own.
    pub fn of_user() -> Result<Cache, Report> {
        Ok(Cache::at(root()?.join("packed")))
    }

    /// Another place.
    pub fn at(dir: PathBuf) -> Cache {
        Cache { dir, tell: drop }
    }

    /// The same, for somebody who wants to know what takes long.
    #[must_use]
    pub fn telling(self, tell: fn(String)) -> Cache {
        Cache { tell, ..self }
    }

    /// The archive under that key, if it is there whole.
    pub(super) fn find(&self, key: &str) -> Option<(PathBuf, Known)> {
        let about = fs::read(self.about(key)).ok()?;
        let known: Known = serde_json::from_slice(&about).ok()?;
        let archive = self.archive(key);
        if fs::metadata(&archive).ok()?.len() != known.bytes {
            return None;
        }
        // That it is in use is remembered as the time of what is known of it. Where that cannot be done it only goes sooner.
        let _ = File::open(self.about(key)).and_then(|file| file.set_modified(SystemTime::now()));
        Some((archive, known))
    }

    /// Waits until nobody else packs that.
    pub(super) fn lock(&self, key: &str) -> Result<File, Report> {
        lock(&self.dir.join(format!("{key}.lock")), &|| {
            (self.tell)("waiting for another process that packs the same".to_owned());
        })
    }

    /// The file that says that an archive of somebody else's was looked through, as it is now.
    pub(super) fn checked(&self, what: &str, was: &Stamp) -> PathBuf {
        let mut about = was.to_bytes().to_vec();
        about.extend(what.as_bytes());
        let key = hex::encode(digest(&SHA256, &about).as_ref());
        self.dir.with_file_name("checked").join(key)
    }

    /// Where byte code of what the user wrote is kept.
    pub(super) fn code(&self) -> PathBuf {
        self.dir.with_file_name("code")
    }

    /// A directory of its own for whoever fills the cache; it goes with the value.
    pub(super) fn aside(&self) -> Result<Aside, Report> {
        let failed = |error: &io::Error| failed(&self.dir, error);
        fs::create_dir_all(&self.dir).map_err(|error| failed(&error))?;
        let mut random = [0; 8];
        let made = SystemRandom::new().fill(&mut random);
        made.map_err(|_| Report::trouble("this machine gives no random numbers"))?;
        let dir = self.dir.join(format!("aside-{}", hex::encode(&random)));
        fs::create_dir(&dir).map_err(|error| failed(&error))?;
        Ok(Aside { dir })
    }

    /// Takes over an archive that was written aside.
    pub(super) fn keep(&self, key: &str, archive: &Path, known: &Known) -> Result<PathBuf, Report> {
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

    /// What is old goes, and what is too much, oldest first.
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
                    // Left behind by somebody who died. What cannot be removed stays.
                    let _ = fs::remove_dir_all(path);
                }
            } else if ends("gz") {
                let name = path.to_string_lossy().replace(".tar.gz", ".json");
                let used = fs::metadata(name).as_ref().map_or(age(&about), age);
                bytes += about.len();
                kept.push((used, about.len(), path));
            } else if ends("lock") && age(&about) > AGE_MAX {
                // Whoever holds it has held it for a month.
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

/// A directory that goes with this value.
#[derive(Debug)]
pub(super) struct Aside {
    dir: PathBuf,
}

impl Aside {
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // What is left behind goes by its age.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits until nobody else has that lock; it is given back with the value. `waiting` hears that somebody has it.
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
    let until = Instant::now() + MAKING_MAX;
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
                let what = format!("another process has had `{}` for an hour", path.display());
                return Err(Report::trouble(what).hint("look what it does, and end it"));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Where ydl keeps what it can make again.
pub fn root() -> Result<PathBuf, Report> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable(env::XDG_CACHE_HOME)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".cache")));
    match cache {
        Some(cache) if cache.is_absolute() => Ok(cache.join("ydl")),
        _ => {
            let what = "there is no place for packed environments: neither `XDG_CACHE_HOME` nor `HOME` is set";
            Err(Report::trouble(what).hint("set `XDG_CACHE_HOME` to a directory of yours"))
        }
    }
}

pub(super) fn failed(dir: &Path, error: &io::Error) -> Report {
    let what = format!("cannot pack into `{}`: {}", dir.display(), reason(error));
    Report::trouble(what).hint("set `XDG_CACHE_HOME` to a directory with enough space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache, key: &str, bytes: usize) -> PathBuf {
        let aside = cache.aside().expect("a directory");
        let archive = aside.path().join("layer.tar.gz");
        fs::write(&archive, vec![1; bytes]).expect("a file");
        let known = Known { bytes: bytes as u64, ..Known::default() };
        cache.keep(key, &archive, &known).expect("kept")
    }

    #[test]
    fn what_is_there_whole_is_found() {
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
    fn whoever_waits_for_another_who_packs_the_same_hears_of_it() {
        static HEARD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(dir.path().join("packed"));
        let cache = cache.telling(|said| HEARD.lock().expect("a list").push(said));
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
        assert_eq!(heard(), ["waiting for another process that packs the same"]);
    }

    #[test]
    fn what_is_old_or_too_much_goes_oldest_first() {
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
