//! One file on this disk: written aside, and given its name when all of it is there.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use ydl_storage::data::named;

/// Copies a file so that its name leads to all of it or to what was there before; unless it is not the same any more when it
/// was copied.
pub(super) fn write_whole(
    mut source: File,
    mode: u32,
    to: &Path,
    same: impl Fn(&File) -> bool,
) -> io::Result<u64> {
    let aside = aside(to);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        let bytes = io::copy(&mut source, &mut file)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        match same(&source) {
            true => Ok(bytes),
            false => Err(io::Error::other("it changed while it was copied")),
        }
    };
    let bytes = write_aside(&aside, to, write)?;
    sync_dir_of(to);
    Ok(bytes)
}

/// The name a file has while it is written. Cut if need be: names end at 255 bytes. No two writers have the same: what is
/// sent while a program runs and what is left of it may go to one place in the same moment.
pub(super) fn aside(to: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let name = to.file_name().unwrap_or_default().as_bytes();
    // Joined to the directory, since a destination may end in a slash.
    let dir = to.parent().unwrap_or(Path::new(""));
    dir.join(named(name, std::process::id(), number))
}

/// Runs `write` to make `aside` and renames it; on failure nothing of it is left.
pub(super) fn write_aside<T>(
    aside: &Path,
    to: &Path,
    write: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // An earlier process of our pid may have died here.
    let _ = fs::remove_file(aside);
    let outcome = write().and_then(|value| fs::rename(aside, to).map(|()| value));
    if outcome.is_err() {
        let _ = fs::remove_file(aside);
    }
    outcome
}

/// Makes renames in the directory of `path` durable. Some file systems cannot, and need not.
pub(super) fn sync_dir_of(path: &Path) {
    if let Some(dir) = path.parent() {
        let _ = File::open(dir).and_then(|dir| dir.sync_all());
    }
}
