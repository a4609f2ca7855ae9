//! Files of this machine. Calls run on blocking threads.

use super::{
    FileEntry, FileStore, Pending,
    temporary::{ABANDONED_AGE, temporary_name, writer_has_exited},
};
use crate::data::{DataError, is_temporary};
use bytes::Bytes;
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};
use tokio::{task::spawn_blocking, time::Instant};
use ydl_os::reason;

/// Files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct LocalStore;

/// Runs `work` with a path on a blocking thread.
fn blocking<'a, T: Send + 'static>(
    verb: &'static str,
    path: &'a str,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Pending<'a, T> {
    let own = PathBuf::from(path);
    Box::pin(async move {
        let failed = |why: &str| DataError::of_this_node(format!("cannot {verb} `{path}`: {why}"));
        match spawn_blocking(move || work(&own)).await {
            Ok(done) => done.map_err(|error| failed(&reason(&error))),
            Err(_) => Err(failed("its thread failed")),
        }
    })
}

impl FileStore for LocalStore {
    fn stat<'a>(&'a self, path: &'a str, _: Instant) -> Pending<'a, Option<FileEntry>> {
        blocking("look at", path, |path| match entry_at(path) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn list<'a>(&'a self, dir: &'a str, _: Instant) -> Pending<'a, Vec<FileEntry>> {
        blocking("list", dir, |dir| {
            let names = match fs::read_dir(dir) {
                Err(error) if is_missing(&error) => return Ok(Vec::new()),
                names => names?,
            };
            // An entry that has gone meanwhile is skipped.
            let entries = names.flatten().filter_map(|name| entry_at(&name.path()).ok());
            Ok(entries.collect())
        })
    }

    fn make_dirs<'a>(&'a self, dir: &'a str, mode: Option<u32>, _: Instant) -> Pending<'a, ()> {
        blocking("make", dir, move |dir| {
            if dir.is_dir() {
                return Ok(());
            }
            if let Some(parent) = dir.parent() {
                fs::create_dir_all(parent)?;
            }
            match (DirBuilder::new().create(dir), mode) {
                (Err(error), _) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {
                    Ok(())
                }
                (Ok(()), Some(mode)) => fs::set_permissions(dir, Permissions::from_mode(mode)),
                (made, _) => made,
            }
        })
    }

    fn upload<'a>(
        &'a self,
        source: Arc<File>,
        temporary: &'a str,
        mode: u32,
        _: Instant,
    ) -> Pending<'a, u64> {
        blocking("write", temporary, move |path| {
            let mut file = create_temporary(path, 0o600)?;
            let bytes = io::copy(&mut &*source, &mut file)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.sync_all()?;
            Ok(bytes)
        })
    }

    fn link<'a>(&'a self, target: &'a Path, temporary: &'a str) -> Pending<'a, ()> {
        let target = target.to_owned();
        blocking("write", temporary, move |path| {
            let _ = fs::remove_file(path);
            std::os::unix::fs::symlink(target, path)
        })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str, _: Instant) -> Pending<'a, bool> {
        let from = PathBuf::from(from);
        blocking("write", to, move |to| rename_if_absent(&from, to))
    }

    fn replace<'a>(&'a self, from: &'a str, to: &'a str, _: Instant) -> Pending<'a, ()> {
        let from = PathBuf::from(from);
        blocking("write", to, move |to| {
            fs::rename(from, to)?;
            sync_dir_of(to);
            Ok(())
        })
    }

    fn delete<'a>(&'a self, path: &'a str, _: Instant) -> Pending<'a, bool> {
        blocking("delete", path, |path| {
            let deleted = match path.symlink_metadata() {
                Ok(about) if about.is_dir() => fs::remove_dir_all(path),
                Ok(_) => fs::remove_file(path),
                Err(error) => Err(error),
            };
            match deleted {
                Ok(()) => Ok(true),
                Err(error) if is_missing(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a str, bytes_max: u64, _: Instant) -> Pending<'a, Option<Bytes>> {
        blocking("read", path, move |path| {
            let length = match path.metadata() {
                Err(error) if is_missing(&error) => return Ok(None),
                about => about?.len(),
            };
            match length > bytes_max {
                true => Err(io::Error::other(format!("it has more than {bytes_max} bytes"))),
                false => Ok(Some(fs::read(path)?.into())),
            }
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: Bytes, _: Instant) -> Pending<'a, ()> {
        blocking("write", path, move |path| {
            with_temporary(path, &bytes, |temporary| fs::rename(temporary, path))
        })
    }

    fn write_if_absent<'a>(&'a self, path: &'a str, bytes: Bytes, _: Instant) -> Pending<'a, bool> {
        blocking("write", path, move |path| {
            with_temporary(path, &bytes, |temporary| rename_if_absent(temporary, path))
        })
    }

    /// The name has the pid of this process: each writer has its own, and the next one sees that it has died.
    fn temporary(&self, path: &str, _: &str) -> Result<String, DataError> {
        Ok(temporary_path(Path::new(path)).to_string_lossy().into_owned())
    }

    fn is_abandoned(&self, entry: &FileEntry, _: &str) -> bool {
        let name = entry.name();
        // A finished file may wait long for the others of its output.
        let has_exited = || writer_has_exited(name);
        is_temporary(name) && has_exited().unwrap_or_else(|| entry.is_older_than(ABANDONED_AGE))
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn entry_at(path: &Path) -> io::Result<FileEntry> {
    let own = path.symlink_metadata()?;
    let modified = own.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let link = own.is_symlink();
    let target = if link { path.metadata().ok() } else { Some(own) };
    Ok(FileEntry {
        path: path.to_string_lossy().into_owned(),
        directory: target.as_ref().is_some_and(|about| about.is_dir()),
        link,
        bytes: target.map_or(0, |about| about.len()),
        modified_ms: modified.as_millis() as u64,
    })
}

/// Returns a temporary name beside a path, cut to the limit of 255 bytes.
fn temporary_path(path: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().as_bytes();
    path.with_file_name(temporary_name(name, std::process::id(), number))
}

/// Creates a temporary file. Its name can be guessed, so an existing file or link is replaced and never followed.
fn create_temporary(path: &Path, mode: u32) -> io::Result<File> {
    // A dead process with this pid may have left one.
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Writes a temporary file, which `finish` renames; removes it on failure.
fn with_temporary<T>(
    path: &Path,
    bytes: &[u8],
    finish: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let temporary = temporary_path(path);
    let write = || create_temporary(&temporary, 0o666)?.write_all(bytes);
    let done = write().and_then(|()| finish(&temporary));
    // Fails if it was renamed.
    let _ = fs::remove_file(&temporary);
    done
}

/// Renames a file or directory; returns false if the new name is taken.
fn rename_if_absent(from: &Path, to: &Path) -> io::Result<bool> {
    let renamed = match from.symlink_metadata()?.is_dir() {
        true => {
            sync_dirs(from)?;
            fs::rename(from, to)
        }
        // A rename would replace a file.
        false => fs::hard_link(from, to).and_then(|()| fs::remove_file(from)),
    };
    match renamed {
        Ok(()) => {
            sync_dir_of(to);
            Ok(true)
        }
        Err(_) if to.symlink_metadata().is_ok() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Syncs a directory and those below it.
fn sync_dirs(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_dirs(&entry.path())?;
        }
    }
    sync_dir(dir);
    Ok(())
}

fn sync_dir_of(path: &Path) {
    if let Some(dir) = path.parent() {
        sync_dir(dir);
    }
}

/// Syncs renames in a directory. Some file systems cannot, and need not.
fn sync_dir(dir: &Path) {
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let path = dir.path().join("file");
        for number in 0..1000 {
            let name = temporary_name(b"file", std::process::id(), number);
            symlink(&victim, dir.path().join(name)).unwrap();
        }
        with_temporary(&path, b"new", |temporary| fs::rename(temporary, &path)).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!path.is_symlink());
    }

    #[test]
    fn old_temporary_files_of_a_running_process_are_not_abandoned() {
        let entry = |name: &str| FileEntry {
            path: format!("/out/{name}"),
            directory: false,
            link: false,
            bytes: 1,
            modified_ms: 0,
        };
        let own = temporary_name(b"file", std::process::id(), 0);
        assert!(!LocalStore.is_abandoned(&entry(&own.to_string_lossy()), ""));
        assert!(LocalStore.is_abandoned(&entry(".file.ydl-1-1-1"), ""));
    }
}
