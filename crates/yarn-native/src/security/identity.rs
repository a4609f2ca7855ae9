//! Who calls.

use std::path::PathBuf;
use std::time::Duration;

use super::{error::SecurityError, gssapi};
use crate::token::Token;

/// Who calls, how that is proven, and for whom.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What the caller shows.
    pub auth: AuthMethod,
    /// The user on whose behalf the call is made, if not the caller's own. The cluster must allow
    /// it (`hadoop.proxyuser.*`). A token is its owner's, so this changes nothing for one.
    pub acting_for: Option<String>,
}

/// What a caller can show.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AuthMethod {
    /// The caller's word, which an insecure cluster believes.
    Simple {
        /// The user's name.
        user: String,
    },
    /// A token a server gave out earlier.
    Token(Token),
    /// A Kerberos ticket.
    Kerberos(Kerberos),
}

/// Where Kerberos is found.
#[derive(Clone, Debug, Default)]
pub struct Kerberos {
    /// Where tickets come from.
    pub tickets: TicketSource,
    /// The GSSAPI library, where it has an unusual name or place.
    pub library: Option<PathBuf>,
}

/// Where tickets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketSource {
    /// The cache that `kinit` fills; `KRB5CCNAME` and `KRB5_CLIENT_KTNAME` are honoured.
    #[default]
    Default,
    /// A cache by name, as in `FILE:/tmp/krb5cc_1000`.
    Cache(String),
    /// A keytab; the tickets got with it are kept in memory only.
    Keytab {
        /// The file.
        path: PathBuf,
        /// Whose key to use, as in `alice@EXAMPLE.COM`.
        principal: String,
    },
}

/// A ticket, as the Kerberos library tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticket {
    /// Whose it is: `alice@EXAMPLE.COM`.
    pub principal: String,
    /// How long it still counts.
    pub lifetime: Duration,
}

impl Kerberos {
    /// The ticket that calls would be made with; may wait for a Kerberos server, on this thread.
    pub fn ticket(&self) -> Result<Ticket, SecurityError> {
        gssapi::ticket(self)
    }
}

impl Identity {
    /// A user of an insecure cluster.
    pub fn simple(user: impl Into<String>) -> Self {
        Self::new(AuthMethod::Simple { user: user.into() })
    }

    /// The holder of a token.
    pub fn token(token: Token) -> Self {
        Self::new(AuthMethod::Token(token))
    }

    /// The holder of a Kerberos ticket.
    pub fn kerberos(tickets: TicketSource) -> Self {
        Self::new(AuthMethod::Kerberos(Kerberos { tickets, library: None }))
    }

    /// The same caller, on behalf of `user`.
    pub fn acting_for(mut self, user: impl Into<String>) -> Self {
        self.acting_for = Some(user.into());
        self
    }

    fn new(auth: AuthMethod) -> Self {
        Self { auth, acting_for: None }
    }
}
