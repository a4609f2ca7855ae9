//! What happens in a new process between fork and exec.
//!
//! The code there may only make system calls: another thread may have held the allocator's lock
//! at the moment of the fork. Everything is therefore prepared before.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::process::Signal;

unsafe extern "C" {
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
    -> c_int;
}

/// The process receives `signal` when the *thread* that starts it ends: start it from a thread
/// that lives as long as this process does.
pub fn die_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes system calls only and does not allocate.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            // A parent that died before the call above sends no signal any more.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from(rustix::io::Errno::CANCELED));
            }
            Ok(())
        })
    }
}

/// The process leads a session and a group of its own: signals to the starter's group and its
/// terminal do not reach it.
pub fn own_session(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call and does not allocate.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) }
}

/// The process leads a group of its own in the starter's session.
pub fn own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// A program with its arguments and environment, laid out as the kernel wants them.
#[derive(Debug)]
pub struct Image {
    path: CString,
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

// SAFETY: the pointers lead into `_strings`, whose heap memory neither moves nor changes while the
// value lives, and nobody writes through them.
unsafe impl Send for Image {}
// SAFETY: as above; shared use only reads.
unsafe impl Sync for Image {}

impl Image {
    /// Refuses strings with a zero byte, which the kernel could not tell from their end.
    pub fn new<'a>(
        path: &str,
        argv: impl IntoIterator<Item = &'a str>,
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Image, std::ffi::NulError> {
        let path = CString::new(path)?;
        let mut strings: Vec<CString> =
            argv.into_iter().map(CString::new).collect::<Result<_, _>>()?;
        let arguments = strings.len();
        for (name, value) in env {
            strings.push(CString::new(format!("{name}={value}"))?);
        }
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let (argv, envp) = (pointers(&strings[..arguments]), pointers(&strings[arguments..]));
        Ok(Image { path, _strings: strings, argv, envp })
    }

    /// Returns only when the kernel refuses.
    fn exec(&self) -> io::Error {
        // SAFETY: one system call on memory that lives as long as `self`; both arrays end with a
        // null pointer.
        unsafe { execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Makes `command` become exactly this image, whatever its own program and environment.
///
/// The standard library's way hands a file the kernel refuses to `/bin/sh`, which then prints
/// nonsense about a binary for another machine; here the kernel's answer comes back as it is.
/// Must be the last thing asked of `command` before it is spawned.
pub fn become_image(command: &mut Command, image: Image) -> &mut Command {
    // SAFETY: the closure makes one system call on memory prepared before the fork.
    unsafe { command.pre_exec(move || Err(image.exec())) }
}
