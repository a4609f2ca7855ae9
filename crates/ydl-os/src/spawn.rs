//! Setup of a new process between fork and exec.
//!
//! That code may only make system calls: another thread may have held the allocator's lock at the fork. Everything is
//! therefore prepared before.
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

/// Makes the process receive `signal` when the *thread* that starts it ends. Start it from a thread that lives as long as
/// this process.
pub fn die_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes system calls only and does not allocate.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            // A parent that died before the call above sends no signal.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from(rustix::io::Errno::CANCELED));
            }
            Ok(())
        })
    }
}

/// Starts the process as leader of its own session and group: signals to the starter's group and terminal do not reach it.
pub fn own_session(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call and does not allocate.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) }
}

/// Starts the process as leader of its own group in the starter's session.
pub fn own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Program with arguments and environment in the layout of `execve`.
#[derive(Debug)]
pub struct Image {
    path: CString,
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

// SAFETY: the pointers lead into `_strings`, whose heap memory neither moves nor changes while the value lives, and nothing
// writes through them.
unsafe impl Send for Image {}
// SAFETY: as above; shared use only reads.
unsafe impl Sync for Image {}

impl Image {
    /// Prepares an image. Strings with a zero byte are an error.
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

    /// Returns only if the kernel refuses.
    fn exec(&self) -> io::Error {
        // SAFETY: one system call on memory that lives as long as `self`; both arrays end with a null pointer.
        unsafe { execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Makes `command` execute exactly this image, whatever its own program and environment.
///
/// The standard library passes a file that the kernel refuses to `/bin/sh`, which then prints misleading errors about a
/// binary for another machine; here the kernel's error is returned. Must be the last setting of `command` before it is
/// spawned.
pub fn become_image(command: &mut Command, image: Image) -> &mut Command {
    // SAFETY: the closure makes one system call on memory prepared before the fork.
    unsafe { command.pre_exec(move || Err(image.exec())) }
}
