//! Who calls, and how both sides prove it.
//!
//! Hadoop knows three ways: SIMPLE (the caller's word), TOKEN (DIGEST-MD5 with a password a server
//! gave out) and KERBEROS (GSSAPI). The last two may protect what follows, too. Everything here but
//! `gssapi` is free of sockets, clocks and unsafe code: messages in, messages out.

pub(crate) mod error;
pub(crate) mod glob;
pub(crate) mod identity;
pub(crate) mod principal;
mod quality;

pub(crate) mod digest;
#[allow(unsafe_code)]
mod gssapi;
pub(crate) mod kerberos;
pub(crate) mod layer;
pub(crate) mod sasl;
pub(crate) mod text;

pub use error::SecurityError;
pub use identity::{AuthMethod, Identity, Kerberos, Ticket, TicketSource};
pub use principal::{HostNameRequired, ServerPrincipal, replace_host};
pub use quality::Quality;

/// What a client demands of a server before it trusts it.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The principal the server must have; without one no server is trusted with Kerberos.
    pub server: Option<ServerPrincipal>,
    /// Qualities of protection in order of preference (`hadoop.rpc.protection`). Empty takes the
    /// strongest that the server offers.
    pub protection: Vec<Quality>,
    /// The user to be when a server asks for no proof at all. `None` refuses such a server, as a
    /// secure client must.
    pub fallback_to_simple: Option<String>,
}
