//! GSSAPI security context of the client.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use crate::security::error::SecurityError;
use crate::security::gssapi::library::{self, Functions, Handle};
use crate::security::gssapi::owned::{self, GssapiCredentials, Name, OutputBuffer, input_buffer};
use crate::security::gssapi::status;
use crate::security::identity::Kerberos;
use crate::security::kerberos::{self, Progress};
use crate::security::principal::TargetName;

/// Flags: mutual authentication, replay and sequence detection, confidentiality, integrity.
const REQUESTED_FLAGS: u32 = MUTUAL_FLAG | 4 | 8 | 16 | 32;
const MUTUAL_FLAG: u32 = 2;
/// `GSS_S_CONTINUE_NEEDED`.
const CONTINUE: u32 = 1;

/// Security context with one server.
pub(crate) struct GssapiContext {
    handle: Handle,
    credentials: GssapiCredentials,
    server: Name,
    gss: Arc<Functions>,
}

// SAFETY: the library binds no name, credential or context to a thread and allows each to be used
// by any thread, one at a time; having one owner and `&mut self` ensures the latter.
unsafe impl Send for GssapiContext {}

impl GssapiContext {
    /// Acquires the caller's tickets. May block on a Kerberos server.
    pub(crate) fn new(kerberos: &Kerberos, target: &TargetName) -> Result<Self, SecurityError> {
        let gss = library::open(kerberos.library.as_deref())?;
        let credentials = GssapiCredentials::acquire(&gss, &kerberos.tickets)?;
        let server = Name::target(&gss, target)?;
        Ok(Self { handle: ptr::null_mut(), credentials, server, gss })
    }
}

impl kerberos::SecurityContext for GssapiContext {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Progress, SecurityError> {
        let input = token.map(input_buffer);
        let mut output = OutputBuffer::new(&self.gss);
        let (mut minor, mut flags) = (0, 0);
        // SAFETY: the handles are live (the context's is null at first, as the function requires);
        // all other pointers are null where allowed, or to locals that outlive the call.
        let major = unsafe {
            (self.gss.init_sec_context)(
                &mut minor,
                self.credentials.handle,
                &mut self.handle,
                self.server.handle,
                &owned::kerberos(),
                REQUESTED_FLAGS,
                0,
                ptr::null(),
                input.as_ref().map_or(ptr::null(), ptr::from_ref),
                ptr::null_mut(),
                &mut output.buffer,
                &mut flags,
                ptr::null_mut(),
            )
        };
        status::check(&self.gss, major, minor, "the handshake")?;
        let complete = major & CONTINUE == 0;
        if complete && flags & MUTUAL_FLAG == 0 {
            return Err(SecurityError::protocol("no mutual authentication"));
        }
        Ok(Progress { token: output.to_vec(), complete })
    }

    fn wrap(&mut self, plain: &[u8], encrypted: bool) -> Result<Vec<u8>, SecurityError> {
        let mut output = OutputBuffer::new(&self.gss);
        let (mut minor, mut was_encrypted) = (0, 0);
        // SAFETY: the context is live, and all pointers are to locals that outlive the call.
        let major = unsafe {
            (self.gss.wrap)(
                &mut minor,
                self.handle,
                c_int::from(encrypted),
                0,
                &input_buffer(plain),
                &mut was_encrypted,
                &mut output.buffer,
            )
        };
        status::check(&self.gss, major, minor, "protecting a message")?;
        if encrypted && was_encrypted == 0 {
            let reason = "the library cannot encrypt".to_owned();
            return Err(SecurityError::Kerberos { during: "protecting a message", reason });
        }
        Ok(output.to_vec())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), SecurityError> {
        let mut output = OutputBuffer::new(&self.gss);
        let (mut minor, mut encrypted) = (0, 0);
        // SAFETY: the context is live, all pointers are to locals that outlive the call, and the
        // unused quality output is null.
        let major = unsafe {
            (self.gss.unwrap)(
                &mut minor,
                self.handle,
                &input_buffer(token),
                &mut output.buffer,
                &mut encrypted,
                ptr::null_mut(),
            )
        };
        status::check(&self.gss, major, minor, "reading a protected message")?;
        // Duplicate, old, out of order or gap: reported in addition to success.
        if major & (2 | 4 | 8 | 16) != 0 {
            return Err(SecurityError::Tampered { reason: "message out of order" });
        }
        Ok((output.to_vec(), encrypted != 0))
    }

    fn plain_max(&mut self, encrypted: bool, size: usize) -> Result<usize, SecurityError> {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let (mut minor, mut plain) = (0, 0);
        // SAFETY: the context is live, and the pointers are to locals that outlive the call.
        let major = unsafe {
            let encrypted = c_int::from(encrypted);
            (self.gss.wrap_size_limit)(&mut minor, self.handle, encrypted, 0, size, &mut plain)
        };
        status::check(&self.gss, major, minor, "negotiating protection")?;
        Ok(plain as usize)
    }
}

impl Drop for GssapiContext {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle belongs to the library and has this one owner; no token is
            // requested.
            unsafe { (self.gss.delete_sec_context)(&mut 0, &mut self.handle, ptr::null_mut()) };
        }
    }
}
