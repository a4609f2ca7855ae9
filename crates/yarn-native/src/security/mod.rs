//! Authentication of callers and servers, and message protection.
//!
//! Hadoop has three methods: SIMPLE (a user name), TOKEN (DIGEST-MD5 with a password issued by a
//! server) and KERBEROS (GSSAPI). The last two can also protect messages. Except for `gssapi`, this
//! module uses no sockets, clocks or unsafe code: messages in, messages out.

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

/// Requirements for trusting a server.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Required principal of the server; without one no server is trusted with Kerberos.
    pub server: Option<ServerPrincipal>,
    /// Accepted qualities of protection, preferred first (`hadoop.rpc.protection`). If empty, the
    /// strongest offered is used.
    pub protection: Vec<Quality>,
    /// User name for servers that require no authentication. `None` rejects such servers, as a
    /// secure client must.
    pub fallback_to_simple: Option<String>,
}
