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

/// Returns the largest resident memory, in bytes, of any reaped child or descendant.
pub fn peak_memory_of_reaped_children() -> io::Result<u64> {
    let mut usage = Rusage::default();
    // SAFETY: the pointer leads to a writable value at least as long as what the call writes.
    if unsafe { getrusage(RUSAGE_CHILDREN, &mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usage.peak_kib.max(0) as u64 * 1024)
}
