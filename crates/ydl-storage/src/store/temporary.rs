//! Temporary names on a local disk. They tell whether their writer has died.

use ring::digest::{SHA256, digest};
use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    sync::LazyLock,
    time::Duration,
};

/// Age after which a temporary file counts as abandoned if its writer is unknown: no upload takes that long.
pub const ABANDONED_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns true if the writer of a file of that name has exited, or `None` if it is no process of this machine.
pub(super) fn writer_has_exited(name: &str) -> Option<bool> {
    let (_, whose) = name.rsplit_once(".ydl-")?;
    let mut parts = whose.split('-');
    let (pid, _, machine) = (parts.next()?, parts.next()?, parts.next()?);
    (machine.parse() == Ok(*MACHINE)).then(|| !Path::new("/proc").join(pid).exists())
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
