//! Kerberos through the system's GSSAPI library, opened when it is first needed.
//!
//! The one room with unsafe code. What makes it sound is kept in few places: [`library`] holds the
//! functions' types, [`owned`] gives every object of the library one owner that releases it, and
//! [`context`] calls with pointers to locals that outlive the call.

mod context;
mod credentials;
mod library;
mod owned;
mod status;

use super::error::SecurityError;
use super::identity::{Kerberos, Ticket};

pub(super) use context::GssapiContext;

/// The caller's ticket, as it is now.
pub(super) fn ticket(kerberos: &Kerberos) -> Result<Ticket, SecurityError> {
    let gss = library::open(kerberos.library.as_deref())?;
    owned::GssapiCredentials::acquire(&gss, &kerberos.tickets)?.inspect()
}
