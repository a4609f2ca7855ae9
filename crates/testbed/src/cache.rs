//! Things fetched once and kept: named by the recipe that made them, complete or absent.
//!
//! An entry is a directory `NAME` with a file `files` that lists what it holds, each with its size.
//! It is made under another name and renamed, under a lock, so that nobody ever sees half of it;
//! and it is checked against its list whenever it is used, so that a file somebody deleted is
//! noticed here rather than by a JVM.

use crate::{
    failure::{Failure, Kind},
    scratch,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// How long to wait for another process that makes the same entry.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// `${XDG_CACHE_HOME:-~/.cache}/ydl`.
pub(crate) fn root() -> Result<PathBuf, Failure> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("ydl")).ok_or_else(|| {
        Failure::new(Kind::Missing, "there is no place for a cache: HOME is not set")
            .hint("set XDG_CACHE_HOME to a directory that can be written")
    })
}

/// A name for a recipe: FNV-1a, which is enough to tell two recipes apart and stays the same.
pub(crate) fn hash(recipe: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = recipe.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}

/// The entry, made by `make` in an empty directory if it is not there or not whole.
pub(crate) fn entry(
    shelf: &Path,
    name: &str,
    progress: &mut dyn FnMut(&str),
    make: impl FnOnce(&Path, &mut dyn FnMut(&str)) -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    let entry = shelf.join(name);
    if is_whole(&entry) {
        return Ok(entry);
    }
    fs::create_dir_all(shelf).map_err(|error| {
        Failure::at("make the directory", shelf)(error)
            .hint("set XDG_CACHE_HOME to a directory that can be written")
    })?;
    let _lock = lock(&shelf.join(format!("{name}.lock")), progress)?;
    if is_whole(&entry) {
        return Ok(entry);
    }
    for leftover in fs::read_dir(shelf).map_err(Failure::at("read", shelf))?.flatten() {
        let found = leftover.file_name();
        let partial = |found: &str| found.starts_with(&format!("{name}.partial-"));
        if found == *name || found.to_str().is_some_and(partial) {
            let path = leftover.path();
            fs::remove_dir_all(&path).map_err(Failure::at("remove", &path))?;
        }
    }
    // Another name each time: what an earlier making has left running writes elsewhere.
    let partial = shelf.join(format!("{name}.partial-{}", scratch::random_id()?));
    fs::create_dir(&partial).map_err(Failure::at("make the directory", &partial))?;
    make(&partial, progress).inspect_err(|_| {
        // What stays is removed by the next making.
        let _ = fs::remove_dir_all(&partial);
    })?;
    let list = partial.join("files");
    fs::write(&list, listing(&partial)?).map_err(Failure::at("write", &list))?;
    fs::rename(&partial, &entry).map_err(Failure::at("put in place", &entry))?;
    Ok(entry)
}

/// Held until it is dropped, or its process ends.
fn lock(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<fs::File, Failure> {
    let file = fs::File::create(path).map_err(Failure::at("write", path))?;
    let deadline = Instant::now() + PATIENCE;
    let mut told = false;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            let what = format!("another process has held `{}` for too long", path.display());
            return Err(Failure::new(Kind::Late, what));
        }
        if !told {
            progress("waiting for another process that fetches the same");
            told = true;
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(file)
}

/// One line per file: size and path, sorted.
fn listing(directory: &Path) -> Result<String, Failure> {
    let mut lines = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(folder) = open.pop() {
        for child in fs::read_dir(&folder).map_err(Failure::at("read", &folder))? {
            let child = child.map_err(Failure::at("read", &folder))?.path();
            let meta = child.symlink_metadata().map_err(Failure::at("read", &child))?;
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

/// Whether the entry has its list and everything on it, in the sizes it had.
pub(crate) fn is_whole(entry: &Path) -> bool {
    let Ok(list) = fs::read_to_string(entry.join("files")) else {
        return false;
    };
    !list.is_empty()
        && list.lines().all(|line| {
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

    fn quiet(_: &str) {}

    fn make(place: &Path) -> Result<(), Failure> {
        fs::create_dir(place.join("lib")).unwrap();
        fs::write(place.join("lib/a.jar"), "abc").unwrap();
        Ok(())
    }

    #[test]
    fn an_entry_is_made_once_and_again_when_a_file_of_it_is_gone() {
        let place = Scratch::new().unwrap();
        let shelf = place.path().join("shelf");
        let made = entry(&shelf, "one", &mut quiet, |p, _| make(p)).unwrap();
        assert_eq!(fs::read_to_string(made.join("files")).unwrap(), "3 lib/a.jar\n");
        entry(&shelf, "one", &mut quiet, |_, _| panic!("it is there already")).unwrap();

        fs::write(made.join("lib/a.jar"), "").unwrap();
        entry(&shelf, "one", &mut quiet, |p, _| make(p)).unwrap();
        assert_eq!(fs::read_to_string(made.join("lib/a.jar")).unwrap(), "abc");
    }

    #[test]
    fn a_failed_making_leaves_no_entry_and_does_not_disturb_the_next() {
        let place = Scratch::new().unwrap();
        let shelf = place.path().join("shelf");
        let failed = entry(&shelf, "one", &mut quiet, |p, _| {
            make(p)?;
            Err(Failure::new(Kind::Unreachable, "no network"))
        });
        assert_eq!(failed.unwrap_err().kind, Kind::Unreachable);
        let left: Vec<_> = fs::read_dir(&shelf).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["one.lock"]);
        entry(&shelf, "one", &mut quiet, |p, _| make(p)).unwrap();
    }

    #[test]
    fn of_two_at_once_one_makes_it_and_both_have_it() {
        let place = Scratch::new().unwrap();
        let shelf = &place.path().join("shelf");
        let made = &std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    entry(shelf, "one", &mut quiet, |p, _| {
                        made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        make(p)
                    })
                    .unwrap()
                });
            }
        });
        assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
