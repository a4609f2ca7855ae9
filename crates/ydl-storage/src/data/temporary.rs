//! Partial files that killed processes left on a disk.

use super::pattern::is_temporary;
use ring::digest::{SHA256, digest};
use std::{
    ffi::OsString,
    fs::{self, Metadata},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

/// Age after which an unchanged partial file counts as left by a killed process.
pub const ABANDONED_AGE: Duration = Duration::from_secs(60 * 60);

/// Removes partial files of killed processes from a directory.
pub fn remove_abandoned(dir: &Path) {
    let long_ago = SystemTime::now() - ABANDONED_AGE;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_temporary(name)) else {
            continue;
        };
        let about = entry.metadata();
        let is_old = |about: &Metadata| about.modified().is_ok_and(|time| time < long_ago);
        if !writer_has_exited(name) && !about.as_ref().is_ok_and(is_old) {
            continue;
        }
        // A leftover does no harm.
        let _ = match about.is_ok_and(|about| about.is_dir()) {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
    }
}

/// Returns true if the writer of a file of that name was a process of this machine that has exited.
fn writer_has_exited(name: &str) -> bool {
    let Some((_, whose)) = name.rsplit_once(".ydl-") else {
        return false;
    };
    let mut parts = whose.split('-');
    let (Some(pid), Some(_), Some(machine)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    machine.parse() == Ok(*MACHINE) && !Path::new("/proc").join(pid).exists()
}

/// Identifier of this machine and pid namespace: pids of other machines and containers are not comparable.
static MACHINE: LazyLock<u32> = LazyLock::new(|| {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let all = [&boot[..], space.as_os_str().as_bytes()].concat();
    let digest = digest(&SHA256, &all);
    let first = digest.as_ref().first_chunk::<4>().copied();
    u32::from_be_bytes(first.unwrap_or_default())
});

/// Returns the temporary name of the process's file with that number.
pub fn temporary_name(name: &[u8], pid: u32, number: u64) -> OsString {
    let mut aside = b".".to_vec();
    aside.extend_from_slice(&name[..name.len().min(200)]);
    aside.extend_from_slice(format!(".ydl-{pid}-{number}-{}", *MACHINE).as_bytes());
    OsString::from_vec(aside)
}
