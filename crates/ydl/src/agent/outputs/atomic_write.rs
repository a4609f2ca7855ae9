//! Writes one local file atomically: to a temporary name that is renamed when complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use ydl_storage::data::temporary_name;

/// Copies a file so that its name always refers to a complete file. Fails if the source changed during the copy.
pub(super) fn copy_atomic(
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
            false => Err(io::Error::other("it changed during the copy")),
        }
    };
    let bytes = write_aside(&aside, to, write)?;
    sync_dir_of(to);
    Ok(bytes)
}

/// Returns a temporary name, cut to the limit of 255 bytes. Each writer has its own: a continuous upload and the final
/// one may write to one place concurrently.
pub(super) fn aside(to: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let name = to.file_name().unwrap_or_default().as_bytes();
    // Joined to the directory, since a destination may end in a slash.
    let dir = to.parent().unwrap_or(Path::new(""));
    dir.join(temporary_name(name, std::process::id(), number))
}

/// Runs `write` to create `aside` and renames it; removes it on failure.
pub(super) fn write_aside<T>(
    aside: &Path,
    to: &Path,
    write: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // A dead process with our pid may have left it.
    let _ = fs::remove_file(aside);
    let outcome = write().and_then(|value| fs::rename(aside, to).map(|()| value));
    if outcome.is_err() {
        let _ = fs::remove_file(aside);
    }
    outcome
}

/// Syncs renames in the directory of `path`. Some file systems cannot, and need not.
pub(super) fn sync_dir_of(path: &Path) {
    if let Some(dir) = path.parent() {
        let _ = File::open(dir).and_then(|dir| dir.sync_all());
    }
}
