//! One file on this disk: written aside, and given its name when all of it is there.

use crate::data::is_aside;
use ring::digest::{SHA256, digest};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};
use std::time::{Duration, SystemTime};

/// What is half-written and has not grown for so long is of somebody who was killed.
pub(super) const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Copies a file so that its name leads to all of it or to what was there before; unless it is not the same any more when it
/// was copied.
pub(super) fn write_whole(
    from: &Path,
    mode: u32,
    to: &Path,
    same: impl Fn() -> bool,
) -> io::Result<u64> {
    let aside = aside(to);
    let write = || {
        let mut source = File::open(from)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)?;
        let bytes = io::copy(&mut source, &mut file)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        match same() {
            true => Ok(bytes),
            false => Err(io::Error::other("it changed while it was copied")),
        }
    };
    let bytes = write_aside(&aside, to, write)?;
    sync_dir_of(to);
    Ok(bytes)
}

/// Removes what somebody who was killed has left half-written in a directory.
pub(crate) fn sweep(dir: &Path) {
    let long_ago = SystemTime::now() - ABANDONED;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_aside(name)) else {
            continue;
        };
        let about = entry.metadata();
        let is_old = |about: &Metadata| about.modified().is_ok_and(|time| time < long_ago);
        if !is_of_the_dead(name) && !about.as_ref().is_ok_and(is_old) {
            continue;
        }
        // It is in nobody's way.
        let _ = match about.is_ok_and(|about| about.is_dir()) {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
    }
}

/// Whether whoever was writing what has that name was a process of this machine, and is no more.
fn is_of_the_dead(name: &str) -> bool {
    let Some((_, whose)) = name.rsplit_once(".ydl-") else {
        return false;
    };
    let mut parts = whose.split('-');
    let (Some(pid), Some(_), Some(machine)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    machine.parse() == Ok(*MACHINE) && !Path::new("/proc").join(pid).exists()
}

/// What tells the numbers of processes here from those of other machines, and of containers with numbers of their own.
static MACHINE: LazyLock<u32> = LazyLock::new(|| {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let all = [&boot[..], space.as_os_str().as_bytes()].concat();
    let digest = digest(&SHA256, &all);
    let first = digest.as_ref().first_chunk::<4>().copied();
    u32::from_be_bytes(first.unwrap_or_default())
});

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

pub(super) fn named(name: &[u8], pid: u32, number: u64) -> OsString {
    let mut aside = b".".to_vec();
    aside.extend_from_slice(&name[..name.len().min(200)]);
    aside.extend_from_slice(format!(".ydl-{pid}-{number}-{}", *MACHINE).as_bytes());
    OsString::from_vec(aside)
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
