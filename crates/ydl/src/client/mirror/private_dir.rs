//! Private directory of this process, removed at its end.
//!
//! A killed process cannot remove its directory. Therefore each process locks a file in its directory, and later
//! processes remove the directories that are not locked.

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
/// Name of the file that is locked while the process lives.
const LOCK: &str = "lock";
/// Age above which a directory without a lock file counts as abandoned. A younger one may just be being created.
const UNLOCKED_MAX: Duration = Duration::from_secs(60 * 60);
/// Maximum number of abandoned directories removed at once.
const REMOVED_MAX: usize = 32;

/// Private directory below the system's temporary directory, removed on drop.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    path: PathBuf,
    _lock: File,
}

impl PrivateDir {
    pub(crate) fn new(id: &str) -> Result<PrivateDir, Report> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        PrivateDir::below(&parent, id)
    }

    fn below(dir: &Path, id: &str) -> Result<PrivateDir, Report> {
        let mut random = [0; 8];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Report::internal("the system has no random number generator"))?;
        let random = hex::encode(random);
        // The last component is the job's id, as in every job directory.
        let parent = dir.join(format!("{NAME}{random}"));
        let path = parent.join(id);
        let lock = create(&parent, &path).map_err(|error| {
            let what = format!("cannot create `{}`: {}", path.display(), reason(&error));
            Report::internal(what).hint("set `TMPDIR` to a writable directory")
        })?;
        Ok(PrivateDir { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // If this fails, the system cleans up its temporary directory.
        let _ = fs::remove_dir_all(self.path.parent().unwrap_or(&self.path));
    }
}

fn create(parent: &Path, path: &Path) -> io::Result<File> {
    let create = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    create(parent)?;
    // The file gets its name only after it is locked, so that no other process finds it unlocked.
    let temporary = parent.join("lock.part");
    let lock = File::create_new(&temporary)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(&temporary, parent.join(LOCK))?;
    create(path)?;
    Ok(lock)
}

/// Removes the directories of processes that have ended.
fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let abandoned = entries.filter(|entry| {
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(NAME));
        random.is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|c| c.is_ascii_hexdigit()))
            && is_abandoned(&entry.path())
    });
    for entry in abandoned.take(REMOVED_MAX) {
        // Another process may remove it concurrently.
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Returns whether a directory belongs to this user and is unlocked.
fn is_abandoned(dir: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(dir) else {
        return false;
    };
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return false;
    }
    match File::open(dir.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let age = metadata.modified().ok();
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
        let parent = tempfile::tempdir().unwrap();
        let alive = PrivateDir::below(parent.path(), "application_1_0001").unwrap();
        let dead = parent.path().join("ydl-00112233aabbccdd");
        fs::create_dir_all(dead.join("application_1_0002")).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let new = parent.path().join("ydl-0000000000000001");
        let old = parent.path().join("ydl-0000000000000002");
        let unrelated = parent.path().join("ydl-something-else");
        for dir in [&new, &old, &unrelated] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(unrelated.join(LOCK), "").unwrap();
        let long_ago = SystemTime::now() - 2 * UNLOCKED_MAX;
        let times = FileTimes::new().set_modified(long_ago);
        File::open(&old).unwrap().set_times(times).unwrap();
        remove_abandoned(parent.path());
        assert!(alive.path().is_dir());
        assert!(!dead.exists() && !old.exists());
        assert!(new.exists() && unrelated.exists());
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.parent().unwrap().exists());
    }
}
