//! Functions of the GSSAPI library, resolved at run time.

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

use crate::security::error::SecurityError;

/// File names of MIT's library.
const NAMES: [&str; 3] = ["libgssapi_krb5.so.2", "libgssapi_krb5.so", "libgssapi_krb5.dylib"];

/// `gss_buffer_desc`.
#[repr(C)]
pub(super) struct Buffer {
    pub(super) length: usize,
    pub(super) value: *mut c_void,
}

/// `gss_OID_desc`.
#[repr(C)]
pub(super) struct Oid {
    pub(super) length: u32,
    pub(super) elements: *const c_void,
}

/// `gss_OID_set_desc`.
#[repr(C)]
pub(super) struct OidSet {
    pub(super) count: usize,
    pub(super) elements: *const Oid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
pub(super) struct KeyValue {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
pub(super) struct KeyValues {
    pub(super) count: u32,
    pub(super) elements: *const KeyValue,
}

/// `gss_name_t`, `gss_cred_id_t` and `gss_ctx_id_t`: opaque pointers.
pub(super) type Handle = *mut c_void;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal fn($($type:ty),* $(,)?);)*) => {
        /// Resolved functions and their library, which must stay open. It is never closed: the
        /// destructors of its thread-local data would be unmapped code.
        pub(super) struct Functions {
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($type),*) -> u32,)*
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            fn find(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: each type is the declaration of the function of that name in RFC 2744,
                // and of `gss_acquire_cred_from` in MIT's `gssapi_ext.h`. The copied pointers are
                // valid as long as the library, which is stored with them.
                unsafe {
                    Ok(Self {
                        $($name: *library.get($symbol)?,)*
                        _library: ManuallyDrop::new(library),
                    })
                }
            }
        }
    };
}

functions! {
    import_name = b"gss_import_name\0" fn(*mut u32, *const Buffer, *const Oid, *mut Handle);
    acquire_cred_from = b"gss_acquire_cred_from\0" fn(
        *mut u32, Handle, u32, *const OidSet, c_int, *const KeyValues,
        *mut Handle, *mut c_void, *mut u32,
    );
    inquire_cred = b"gss_inquire_cred\0" fn(
        *mut u32, Handle, *mut Handle, *mut u32, *mut c_int, *mut c_void,
    );
    display_name = b"gss_display_name\0" fn(*mut u32, Handle, *mut Buffer, *mut c_void);
    init_sec_context = b"gss_init_sec_context\0" fn(
        *mut u32, Handle, *mut Handle, Handle, *const Oid, u32, u32, *const c_void,
        *const Buffer, *mut c_void, *mut Buffer, *mut u32, *mut u32,
    );
    wrap = b"gss_wrap\0" fn(
        *mut u32, Handle, c_int, u32, *const Buffer, *mut c_int, *mut Buffer,
    );
    unwrap = b"gss_unwrap\0" fn(
        *mut u32, Handle, *const Buffer, *mut Buffer, *mut c_int, *mut u32,
    );
    wrap_size_limit = b"gss_wrap_size_limit\0" fn(*mut u32, Handle, c_int, u32, u32, *mut u32);
    display_status = b"gss_display_status\0" fn(
        *mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer,
    );
    release_buffer = b"gss_release_buffer\0" fn(*mut u32, *mut Buffer);
    release_name = b"gss_release_name\0" fn(*mut u32, *mut Handle);
    release_cred = b"gss_release_cred\0" fn(*mut u32, *mut Handle);
    delete_sec_context = b"gss_delete_sec_context\0" fn(*mut u32, *mut Handle, *mut Buffer);
}

/// The default library, opened once.
static OPENED: Mutex<Option<Arc<Functions>>> = Mutex::new(None);

/// Opens the system's library or the given one.
pub(super) fn open(named: Option<&Path>) -> Result<Arc<Functions>, SecurityError> {
    if let Some(path) = named {
        return load(path).map(Arc::new);
    }
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(functions) = &*opened {
        return Ok(functions.clone());
    }
    let mut failure = None;
    for name in NAMES {
        match load(Path::new(name)) {
            Ok(functions) => return Ok(opened.insert(Arc::new(functions)).clone()),
            // The error for the preferred name is reported.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or(SecurityError::MissingLibrary { reason: "no library name".into() }))
}

fn load(path: &Path) -> Result<Functions, SecurityError> {
    // SAFETY: opening runs the library's initialisers; MIT's have no preconditions, and a file
    // that is named by configuration is as trusted as the program itself.
    unsafe { Library::new(path) }
        .and_then(Functions::find)
        .map_err(|error| SecurityError::MissingLibrary { reason: error.to_string() })
}
