//! On-disk cache of downloads. Entries are keyed by a hash of their recipe and replaced atomically.
//!
//! An entry is a directory `NAME` with a manifest `files` that lists its files and their sizes. It is
//! created under a temporary name and renamed under a lock, so that readers never see a partial
//! entry. Each use checks the entry against its manifest: a deleted file is found here and not by a
//! JVM.

use crate::{
    error::{Error, ErrorKind},
    scratch,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Timeout of the wait for another process that creates the same entry.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Returns `${XDG_CACHE_HOME:-~/.cache}/ydl`.
pub(crate) fn root() -> Result<PathBuf, Error> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("ydl")).ok_or_else(|| {
        Error::new(ErrorKind::Missing, "no cache directory: HOME is not set")
            .hint("set XDG_CACHE_HOME to a writable directory")
    })
}

/// Hashes a recipe with FNV-1a, which is stable across builds.
pub(crate) fn hash(recipe: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = recipe.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}

/// Returns the entry. If it is missing or incomplete, `create` fills an empty directory first.
pub(crate) fn entry(
    folder: &Path,
    name: &str,
    progress: &mut dyn FnMut(&str),
    create: impl FnOnce(&Path, &mut dyn FnMut(&str)) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let entry = folder.join(name);
    if is_complete(&entry) {
        return Ok(entry);
    }
    fs::create_dir_all(folder).map_err(|error| {
        Error::at("make the directory", folder)(error)
            .hint("set XDG_CACHE_HOME to a writable directory")
    })?;
    let _lock = lock(&folder.join(format!("{name}.lock")), progress)?;
    if is_complete(&entry) {
        return Ok(entry);
    }
    for leftover in fs::read_dir(folder).map_err(Error::at("read", folder))?.flatten() {
        let found = leftover.file_name();
        let partial = |found: &str| found.starts_with(&format!("{name}.partial-"));
        if found == *name || found.to_str().is_some_and(partial) {
            let path = leftover.path();
            fs::remove_dir_all(&path).map_err(Error::at("remove", &path))?;
        }
    }
    // A unique name: processes left over from an earlier attempt write to another directory.
    let partial = folder.join(format!("{name}.partial-{}", scratch::random_id()?));
    fs::create_dir(&partial).map_err(Error::at("make the directory", &partial))?;
    create(&partial, progress).inspect_err(|_| {
        // Leftovers are removed by the next attempt.
        let _ = fs::remove_dir_all(&partial);
    })?;
    let manifest = partial.join("files");
    fs::write(&manifest, list_files(&partial)?).map_err(Error::at("write", &manifest))?;
    fs::rename(&partial, &entry).map_err(Error::at("rename a directory to", &entry))?;
    Ok(entry)
}

/// Acquires the lock. It is released on drop and when the process exits.
fn lock(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<fs::File, Error> {
    let file = fs::File::create(path).map_err(Error::at("write", path))?;
    let deadline = Instant::now() + TIMEOUT;
    let mut announced = false;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            let message = format!("timed out waiting for the lock on `{}`", path.display());
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        if !announced {
            progress("waiting for another process that downloads the same files");
            announced = true;
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(file)
}

/// Lists all files, one per line, as size and path, sorted.
fn list_files(directory: &Path) -> Result<String, Error> {
    let mut lines = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(folder) = open.pop() {
        for child in fs::read_dir(&folder).map_err(Error::at("read", &folder))? {
            let child = child.map_err(Error::at("read", &folder))?.path();
            let meta = child.symlink_metadata().map_err(Error::at("read", &child))?;
            let name = child.strip_prefix(directory).unwrap_or(&child).display();
            match meta.is_dir() {
                true => open.push(child),
                false => lines.push(format!("{} {name}\n", meta.len())),
            }
        }
    }
    lines.sort();
    Ok(lines.concat())
}

/// Returns true if the manifest exists and every listed file has the listed size.
pub(crate) fn is_complete(entry: &Path) -> bool {
    let Ok(manifest) = fs::read_to_string(entry.join("files")) else {
        return false;
    };
    !manifest.is_empty()
        && manifest.lines().all(|line| {
            let Some((size, name)) = line.split_once(' ') else {
                return false;
            };
            let meta = entry.join(name).symlink_metadata();
            meta.is_ok_and(|meta| size.parse() == Ok(meta.len()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn ignore(_: &str) {}

    fn create(directory: &Path) -> Result<(), Error> {
        fs::create_dir(directory.join("lib")).unwrap();
        fs::write(directory.join("lib/a.jar"), "abc").unwrap();
        Ok(())
    }

    #[test]
    fn an_entry_is_created_once_and_recreated_when_a_file_is_damaged() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.path().join("folder");
        let created = entry(&folder, "one", &mut ignore, |p, _| create(p)).unwrap();
        assert_eq!(fs::read_to_string(created.join("files")).unwrap(), "3 lib/a.jar\n");
        entry(&folder, "one", &mut ignore, |_, _| panic!("the entry exists")).unwrap();

        fs::write(created.join("lib/a.jar"), "").unwrap();
        entry(&folder, "one", &mut ignore, |p, _| create(p)).unwrap();
        assert_eq!(fs::read_to_string(created.join("lib/a.jar")).unwrap(), "abc");
    }

    #[test]
    fn a_failed_creation_leaves_no_entry_and_can_be_retried() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.path().join("folder");
        let failed = entry(&folder, "one", &mut ignore, |p, _| {
            create(p)?;
            Err(Error::new(ErrorKind::Unreachable, "no network"))
        });
        assert_eq!(failed.unwrap_err().kind, ErrorKind::Unreachable);
        let left: Vec<_> =
            fs::read_dir(&folder).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["one.lock"]);
        entry(&folder, "one", &mut ignore, |p, _| create(p)).unwrap();
    }

    #[test]
    fn concurrent_callers_create_an_entry_once() {
        let scratch = Scratch::new().unwrap();
        let folder = &scratch.path().join("folder");
        let calls = &std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    entry(folder, "one", &mut ignore, |p, _| {
                        calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        create(p)
                    })
                    .unwrap()
                });
            }
        });
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
