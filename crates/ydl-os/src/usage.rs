//! Resource usage of the children of this process.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::io;

/// `struct rusage`, longer than in any C library, some of which reserve space at its end.
#[repr(C)]
#[derive(Default)]
struct Rusage {
    user: [c_long; 2],
    system: [c_long; 2],
    peak_kib: c_long,
    rest: [c_long; 29],
}

const RUSAGE_CHILDREN: c_int = -1;

unsafe extern "C" {
    fn getrusage(who: c_int, usage: *mut Rusage) -> c_int;
}

/// Usage of all reaped children and their descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReapedUsage {
    /// Largest resident memory of a single process.
    pub peak_rss_bytes: u64,
    pub user_ms: u64,
    pub system_ms: u64,
}

pub fn of_reaped_children() -> io::Result<ReapedUsage> {
    let mut usage = Rusage::default();
    // SAFETY: the pointer leads to a writable value at least as long as what the call writes.
    if unsafe { getrusage(RUSAGE_CHILDREN, &mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let ms =
        |[seconds, micros]: [c_long; 2]| seconds.max(0) as u64 * 1000 + micros.max(0) as u64 / 1000;
    Ok(ReapedUsage {
        peak_rss_bytes: usage.peak_kib.max(0) as u64 * 1024,
        user_ms: ms(usage.user),
        system_ms: ms(usage.system),
    })
}
