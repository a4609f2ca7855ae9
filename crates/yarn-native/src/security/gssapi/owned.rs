//! RAII wrappers for objects of the library.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::security::error::SecurityError;
use crate::security::gssapi::library::{Buffer, Functions, Handle, Oid};
use crate::security::gssapi::status;
use crate::security::principal::TargetName;

/// Defines a function returning an object identifier.
macro_rules! oid {
    ($name:ident, $doc:literal, $($byte:literal),*) => {
        #[doc = $doc]
        pub(super) fn $name() -> Oid {
            const BYTES: &[u8] = &[$($byte),*];
            Oid { length: BYTES.len() as u32, elements: BYTES.as_ptr().cast() }
        }
    };
}

oid!(kerberos, "1.2.840.113554.1.2.2, Kerberos.", 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2);
oid!(
    principal_name,
    "1.2.840.113554.1.2.2.1, a principal with its realm.",
    0x2a,
    0x86,
    0x48,
    0x86,
    0xf7,
    0x12,
    1,
    2,
    2,
    1
);
oid!(
    host_based_name,
    "1.2.840.113554.1.2.1.4, `service@host`.",
    0x2a,
    0x86,
    0x48,
    0x86,
    0xf7,
    0x12,
    1,
    2,
    1,
    4
);

/// Returns an input buffer that borrows bytes for the length of a call.
pub(super) fn input_buffer(bytes: &[u8]) -> Buffer {
    Buffer { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast::<c_void>() }
}

/// Output buffer filled by the library.
pub(super) struct OutputBuffer {
    pub(super) buffer: Buffer,
    gss: Arc<Functions>,
}

impl OutputBuffer {
    pub(super) fn new(gss: &Arc<Functions>) -> Self {
        let buffer = Buffer { length: 0, value: ptr::null_mut() };
        Self { buffer, gss: gss.clone() }
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        if self.buffer.value.is_null() {
            return Vec::new();
        }
        // SAFETY: a buffer filled by the library holds `length` readable bytes until released.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.buffer.value.cast::<u8>(), self.buffer.length)
        };
        bytes.to_vec()
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is empty or was filled by the library; releasing either is defined.
        unsafe { (self.gss.release_buffer)(&mut 0, &mut self.buffer) };
    }
}

/// A principal's name.
pub(super) struct Name {
    pub(super) handle: Handle,
    gss: Arc<Functions>,
}

impl Name {
    pub(super) fn principal(gss: &Arc<Functions>, name: &str) -> Result<Self, SecurityError> {
        Self::import(gss, name, &principal_name())
    }

    pub(super) fn target(gss: &Arc<Functions>, target: &TargetName) -> Result<Self, SecurityError> {
        match target {
            TargetName::Principal(name) => Self::import(gss, name, &principal_name()),
            TargetName::HostBased(name) => Self::import(gss, name, &host_based_name()),
        }
    }

    fn import(gss: &Arc<Functions>, name: &str, kind: &Oid) -> Result<Self, SecurityError> {
        let (mut minor, mut handle) = (0, ptr::null_mut());
        // SAFETY: all pointers are to locals; the library copies the name.
        let major = unsafe {
            (gss.import_name)(&mut minor, &input_buffer(name.as_bytes()), kind, &mut handle)
        };
        status::check(gss, major, minor, "reading a principal's name")?;
        Ok(Self::from_handle(gss, handle))
    }

    /// Takes ownership of a name from the library.
    pub(super) fn from_handle(gss: &Arc<Functions>, handle: Handle) -> Self {
        Self { handle, gss: gss.clone() }
    }

    /// Returns the display form: `alice@EXAMPLE.COM`.
    pub(super) fn text(&self) -> Result<String, SecurityError> {
        let mut minor = 0;
        let mut output = OutputBuffer::new(&self.gss);
        // SAFETY: the handle is live, the buffer is a local, and unused outputs are null.
        let major = unsafe {
            (self.gss.display_name)(&mut minor, self.handle, &mut output.buffer, ptr::null_mut())
        };
        status::check(&self.gss, major, minor, "reading a principal's name")?;
        Ok(String::from_utf8_lossy(&output.to_vec()).into_owned())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: the handle is the library's and has this one owner.
        unsafe { (self.gss.release_name)(&mut 0, &mut self.handle) };
    }
}

/// Credentials of the caller.
pub(super) struct GssapiCredentials {
    pub(super) handle: Handle,
    pub(super) gss: Arc<Functions>,
}

impl Drop for GssapiCredentials {
    fn drop(&mut self) {
        // SAFETY: the handle is the library's and has this one owner.
        unsafe { (self.gss.release_cred)(&mut 0, &mut self.handle) };
    }
}
