//! Acquisition of credentials from a ticket cache or a keytab.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_int};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::security::error::SecurityError;
use crate::security::gssapi::library::{Functions, KeyValue, KeyValues, OidSet};
use crate::security::gssapi::owned::{self, GssapiCredentials, Name};
use crate::security::gssapi::status;
use crate::security::identity::{Ticket, TicketSource};

/// `GSS_C_INDEFINITE`, `GSS_C_INITIATE`.
const INDEFINITE: u32 = u32::MAX;
const INITIATE: c_int = 1;

impl GssapiCredentials {
    /// Finds tickets, or obtains them with the keytab. May block on a Kerberos server.
    pub(super) fn acquire(
        gss: &Arc<Functions>,
        tickets: &TicketSource,
    ) -> Result<Self, SecurityError> {
        match tickets {
            TicketSource::Default => {
                let named = std::env::var("KRB5CCNAME").unwrap_or_default();
                if is_file(&named) {
                    return Self::acquire(gss, &TicketSource::Cache(named));
                }
                Self::acquire_from(gss, None, &[]).map_err(|error| match error {
                    SecurityError::TicketExpired { .. } if named.is_empty() => {
                        with_cache_name(error, "the default cache")
                    }
                    error => with_cache_name(error, &named),
                })
            }
            TicketSource::Cache(name) => Self::acquire_from(gss, None, &[(c"ccache", text(name)?)])
                .map_err(|error| with_cache_name(error, name)),
            TicketSource::Keytab { path, principal } => {
                let unusable = |reason| SecurityError::Keytab {
                    path: path.display().to_string(),
                    principal: principal.clone(),
                    reason,
                };
                // The library would fall back to a cache and report that instead.
                File::open(path).map_err(|error| unusable(error.to_string()))?;
                Self::with_keytab(gss, path, principal).map_err(|error| match error {
                    SecurityError::NoTicket { .. } => {
                        unusable("no key for this principal".to_owned())
                    }
                    SecurityError::Kerberos { reason, .. } => unusable(reason),
                    other => other,
                })
            }
        }
    }

    fn with_keytab(
        gss: &Arc<Functions>,
        path: &Path,
        principal: &str,
    ) -> Result<Self, SecurityError> {
        let name = Name::principal(gss, principal)?;
        let path_text = path.to_str().ok_or_else(|| invalid_text("the keytab's path"))?;
        let store = [
            (c"client_keytab", text(&format!("FILE:{path_text}"))?),
            (c"ccache", text(&memory_cache(path, principal))?),
        ];
        Self::acquire_from(gss, Some(&name), &store)
    }

    fn acquire_from(
        gss: &Arc<Functions>,
        name: Option<&Name>,
        store: &[(&'static std::ffi::CStr, CString)],
    ) -> Result<Self, SecurityError> {
        let elements: Vec<KeyValue> = store
            .iter()
            .map(|(key, value)| KeyValue { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let store = KeyValues {
            // At most two elements.
            count: elements.len() as u32,
            elements: elements.as_ptr(),
        };
        let kerberos = owned::kerberos();
        let mechanisms = OidSet { count: 1, elements: &kerberos };
        let (mut minor, mut handle) = (0, ptr::null_mut());
        // SAFETY: all pointers are null where allowed, or to locals that outlive the call.
        let major = unsafe {
            (gss.acquire_cred_from)(
                &mut minor,
                name.map_or(ptr::null_mut(), |name| name.handle),
                INDEFINITE,
                &mechanisms,
                INITIATE,
                if elements.is_empty() { ptr::null() } else { &store },
                &mut handle,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        status::check(gss, major, minor, "finding a ticket")?;
        let credentials = Self { handle, gss: gss.clone() };
        credentials.check_lifetime()?;
        Ok(credentials)
    }

    /// Checks that a ticket exists. The library defers the lookup; checking early reports a missing
    /// ticket as such instead of as a failed handshake.
    fn check_lifetime(&self) -> Result<(), SecurityError> {
        self.inspect().map(drop)
    }

    /// Returns the principal and remaining lifetime.
    pub(super) fn inspect(&self) -> Result<Ticket, SecurityError> {
        let (mut minor, mut seconds, mut name) = (0, 0, ptr::null_mut());
        // SAFETY: the handle is live; unused outputs are null, as the function allows.
        let major = unsafe {
            (self.gss.inquire_cred)(
                &mut minor,
                self.handle,
                &mut name,
                &mut seconds,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        status::check(&self.gss, major, minor, "finding a ticket")?;
        let name = Name::from_handle(&self.gss, name);
        if seconds == 0 {
            let reason = "its lifetime has ended".to_owned();
            return Err(SecurityError::TicketExpired { reason });
        }
        Ok(Ticket { principal: name.text()?, lifetime: Duration::from_secs(u64::from(seconds)) })
    }
}

/// Returns whether a cache is a single file. When asked for any ticket, MIT's library (at least up
/// to 1.20) crashes on a file that is no cache; when asked for this cache, it reports an error.
fn is_file(cache: &str) -> bool {
    cache.starts_with("FILE:") || (!cache.is_empty() && !cache.contains(':'))
}

/// Adds the cache name to an error, which the library may omit.
fn with_cache_name(error: SecurityError, cache: &str) -> SecurityError {
    let named = |reason: String| match reason.contains(cache.trim_start_matches("FILE:")) {
        true => reason,
        false => format!("{reason} (`{cache}`)"),
    };
    match error {
        SecurityError::TicketExpired { reason } => {
            SecurityError::TicketExpired { reason: named(reason) }
        }
        SecurityError::NoTicket { reason } => SecurityError::NoTicket { reason: named(reason) },
        other => other,
    }
}

/// Returns the name of an in-memory cache, the same for every connection with the same keytab, so
/// that tickets are fetched once and renewed in time.
fn memory_cache(path: &Path, principal: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (path, principal).hash(&mut hasher);
    format!("MEMORY:yarn-native-{:016x}", hasher.finish())
}

fn text(text: &str) -> Result<CString, SecurityError> {
    CString::new(text).map_err(|_| invalid_text("the name of a cache or keytab"))
}

fn invalid_text(subject: &str) -> SecurityError {
    let reason = format!("{subject} is not valid text");
    SecurityError::Kerberos { during: "finding a ticket", reason }
}
