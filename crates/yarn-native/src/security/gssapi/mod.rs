//! Kerberos through the system's GSSAPI library, opened on first use.
//!
//! The only module with unsafe code. Its soundness rests on few places: [`library`] declares the
//! function types, [`owned`] gives every library object one owner that releases it, and [`context`]
//! passes only pointers to locals that outlive the call.

mod context;
mod credentials;
mod library;
mod owned;
mod status;

use super::error::SecurityError;
use super::identity::{Kerberos, Ticket};

pub(super) use context::GssapiContext;

/// Returns the caller's current ticket.
pub(super) fn ticket(kerberos: &Kerberos) -> Result<Ticket, SecurityError> {
    let gss = library::open(kerberos.library.as_deref())?;
    owned::GssapiCredentials::acquire(&gss, &kerberos.tickets)?.inspect()
}
