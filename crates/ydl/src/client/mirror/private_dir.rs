//! A directory of this process alone, gone with it.
//!
//! A process that is killed cannot remove its directory. So each holds a lock on a file in its own, and the next
//! process removes the unlocked ones.

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use ydl_os::{reason, report::Report};

/// Prefix of the directories' names.
const NAME: &str = "ydl-";
/// Locked while the process lives.
const LOCK: &str = "lock";
/// A directory without a lock is one that is just being made, or was broken off at that: after so long the latter.
const UNLOCKED_MAX: Duration = Duration::from_secs(60 * 60);
/// Directories of the dead that are removed at once; the rest waits for the next time.
const REMOVED_MAX: usize = 32;

/// A private directory below the system's place for temporary files; removed when this is dropped.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    _lock: File,
}

impl PrivateDir {
    pub fn new(id: &str) -> Result<PrivateDir, Report> {
        let below = std::env::temp_dir();
        remove_abandoned(&below);
        PrivateDir::below(&below, id)
    }

    fn below(dir: &Path, id: &str) -> Result<PrivateDir, Report> {
        let mut random = [0; 8];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Report::internal("the system gives no random bytes"))?;
        let random = hex::encode(random);
        // The last part is the job's id, as it is of every job's directory.
        let above = dir.join(format!("{NAME}{random}"));
        let path = above.join(id);
        let lock = make(&above, &path).map_err(|error| {
            let what = format!("cannot make `{}`: {}", path.display(), reason(&error));
            Report::internal(what).hint("set `TMPDIR` to a directory that can be written")
        })?;
        Ok(PrivateDir { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // The system cleans up what cannot be removed here.
        let _ = fs::remove_dir_all(self.path.parent().unwrap_or(&self.path));
    }
}

fn make(above: &Path, path: &Path) -> io::Result<File> {
    let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    make(above)?;
    // It gets its name only once locked, so that another process never finds it unlocked.
    let temporary = above.join("aside");
    let lock = File::create_new(&temporary)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(&temporary, above.join(LOCK))?;
    make(path)?;
    Ok(lock)
}

/// Removes the directories of processes that are no more.
fn remove_abandoned(below: &Path) {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    let abandoned = entries.filter(|entry| {
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(NAME));
        random.is_some_and(|it| it.len() == 16 && it.bytes().all(|c| c.is_ascii_hexdigit()))
            && is_abandoned(&entry.path())
    });
    for entry in abandoned.take(REMOVED_MAX) {
        // Another may be at it, too.
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Returns whether a directory is ours and unlocked.
fn is_abandoned(dir: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(dir) else {
        return false;
    };
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return false;
    }
    match File::open(dir.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let age = about.modified().ok();
            let age = age.and_then(|at| SystemTime::now().duration_since(at).ok());
            age.is_some_and(|age| age > UNLOCKED_MAX)
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;

    #[test]
    fn only_directories_of_killed_processes_are_removed() {
        let below = tempfile::tempdir().unwrap();
        let alive = PrivateDir::below(below.path(), "application_1_0001").unwrap();
        let dead = below.path().join("ydl-00112233aabbccdd");
        fs::create_dir_all(dead.join("application_1_0002")).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let new = below.path().join("ydl-0000000000000001");
        let old = below.path().join("ydl-0000000000000002");
        let others = below.path().join("ydl-something-else");
        for dir in [&new, &old, &others] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(others.join(LOCK), "").unwrap();
        let long_ago = SystemTime::now() - 2 * UNLOCKED_MAX;
        let times = FileTimes::new().set_modified(long_ago);
        File::open(&old).unwrap().set_times(times).unwrap();
        remove_abandoned(below.path());
        assert!(alive.path().is_dir());
        assert!(!dead.exists() && !old.exists());
        assert!(new.exists() && others.exists());
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.parent().unwrap().exists());
    }
}
