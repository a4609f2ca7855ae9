//! Identities of callers.

use std::path::PathBuf;
use std::time::Duration;

use super::{error::SecurityError, gssapi};
use crate::token::Token;

/// Identity of a caller: its authentication and the user it acts for.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Authentication method.
    pub auth: AuthMethod,
    /// Effective user, if different from the caller. The cluster must allow the impersonation
    /// (`hadoop.proxyuser.*`). Has no effect with a token, which belongs to its owner.
    pub acting_for: Option<String>,
}

/// Authentication method with its credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AuthMethod {
    /// A user name, which an insecure cluster trusts.
    Simple {
        /// User name.
        user: String,
    },
    /// A token issued by a server.
    Token(Token),
    /// A Kerberos ticket.
    Kerberos(Kerberos),
}

/// Kerberos settings.
#[derive(Clone, Debug, Default)]
pub struct Kerberos {
    /// Source of Kerberos tickets.
    pub tickets: TicketSource,
    /// Path of the GSSAPI library, if not the system's default.
    pub library: Option<PathBuf>,
}

/// Source of Kerberos tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketSource {
    /// The default cache, filled by `kinit`; `KRB5CCNAME` and `KRB5_CLIENT_KTNAME` apply.
    #[default]
    Default,
    /// A ticket cache, such as `FILE:/tmp/krb5cc_1000`.
    Cache(String),
    /// A keytab; its tickets are kept in memory only.
    Keytab {
        /// The keytab file.
        path: PathBuf,
        /// Principal, such as `alice@EXAMPLE.COM`.
        principal: String,
    },
}

/// Information about a Kerberos ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticket {
    /// Principal, such as `alice@EXAMPLE.COM`.
    pub principal: String,
    /// Remaining lifetime.
    pub lifetime: Duration,
}

impl Kerberos {
    /// Returns the ticket that calls would use. May block on a Kerberos server.
    pub fn ticket(&self) -> Result<Ticket, SecurityError> {
        gssapi::ticket(self)
    }
}

impl Identity {
    /// Creates the identity of a user of an insecure cluster.
    pub fn simple(user: impl Into<String>) -> Self {
        Self::new(AuthMethod::Simple { user: user.into() })
    }

    /// Creates the identity of a token's holder.
    pub fn token(token: Token) -> Self {
        Self::new(AuthMethod::Token(token))
    }

    /// Creates the identity of a Kerberos ticket's owner.
    pub fn kerberos(tickets: TicketSource) -> Self {
        Self::new(AuthMethod::Kerberos(Kerberos { tickets, library: None }))
    }

    /// Sets the effective user.
    pub fn acting_for(mut self, user: impl Into<String>) -> Self {
        self.acting_for = Some(user.into());
        self
    }

    fn new(auth: AuthMethod) -> Self {
        Self { auth, acting_for: None }
    }
}
