//! Errors of authentication and message protection.

use crate::security::quality::{self, Quality};

/// Failure of authentication or protection. Retrying does not help until the cause is fixed;
/// [`SecurityError::hint`] names a remedy where one is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// No Kerberos ticket is available, and no keytab to obtain one.
    #[error("no Kerberos ticket was found: {reason}")]
    NoTicket {
        /// The Kerberos library's message.
        reason: String,
    },
    /// The Kerberos ticket has expired.
    #[error("the Kerberos ticket has expired: {reason}")]
    TicketExpired {
        /// The Kerberos library's message.
        reason: String,
    },
    /// The realm is unknown, or does not know the server or the client.
    #[error("Kerberos realm mismatch: {reason}")]
    WrongRealm {
        /// The Kerberos library's message.
        reason: String,
    },
    /// The clocks of this machine and the Kerberos server differ too much.
    #[error("the clock of this machine differs too much from the Kerberos server's: {reason}")]
    ClockSkew {
        /// The Kerberos library's message.
        reason: String,
    },
    /// No Kerberos server of the realm is reachable.
    #[error("no Kerberos server could be reached: {reason}")]
    KdcUnreachable {
        /// The Kerberos library's message.
        reason: String,
    },
    /// The keytab cannot be used.
    #[error("the keytab `{path}` cannot be used for `{principal}`: {reason}")]
    Keytab {
        /// The keytab file.
        path: String,
        /// The principal of the key.
        principal: String,
        /// The Kerberos library's message.
        reason: String,
    },
    /// The Kerberos library is missing or lacks a function.
    #[error("the Kerberos library could not be opened: {reason}")]
    MissingLibrary {
        /// The dynamic loader's message.
        reason: String,
    },
    /// Any other Kerberos error.
    #[error("Kerberos error ({during}): {reason}")]
    Kerberos {
        /// The operation that failed.
        during: &'static str,
        /// The Kerberos library's message.
        reason: String,
    },
    /// The server's principal is not the required one.
    #[error("unexpected server principal `{claimed}`, expected `{expected}`")]
    WrongServer {
        /// The principal the server claims.
        claimed: String,
        /// The configured principal or pattern.
        expected: String,
    },
    /// No server principal is configured for Kerberos.
    #[error("the server cannot be trusted: its principal is not configured")]
    NoServerPrincipal,
    /// The server requires no authentication, which a secure client must not accept.
    #[error("the server requires no authentication (SIMPLE), which a secure client rejects")]
    SimpleNotAllowed,
    /// The server accepts none of the client's authentication methods.
    #[error("no common authentication method: the server accepts {offered}, the client has {have}")]
    NoCommonMethod {
        /// The methods the server accepts.
        offered: String,
        /// The client's credentials.
        have: &'static str,
    },
    /// The server requires an unsupported SASL mechanism.
    #[error("unsupported SASL mechanism `{mechanism}` for {method}")]
    UnknownMechanism {
        /// `TOKEN` or `KERBEROS`.
        method: &'static str,
        /// The mechanism.
        mechanism: String,
    },
    /// No quality of protection is accepted by both sides.
    #[error("no common protection: the server offers {offered}, the client accepts {wanted}")]
    NoCommonQuality {
        /// The qualities the server offers.
        offered: String,
        /// The qualities the client accepts.
        wanted: String,
    },
    /// The server violated the handshake protocol.
    #[error("handshake protocol error: {reason}")]
    Protocol {
        /// The violation.
        reason: String,
    },
    /// The server did not prove knowledge of the token's password.
    #[error("server authentication failed: no proof of the token's password")]
    ServerUnauthenticated,
    /// A protected message was forged, replayed, reordered or damaged.
    #[error("invalid protected message: {reason}")]
    Tampered {
        /// The failed check.
        reason: &'static str,
    },
    /// The server rejected the authentication.
    #[error("authentication rejected by the server: {message} (`{class}`)")]
    Rejected {
        /// Java class of the exception.
        class: String,
        /// Message of the exception.
        message: String,
    },
    /// The system's random number generator failed.
    #[error("the system's random number generator failed")]
    NoRandomness,
}

impl SecurityError {
    /// Returns a hint for resolving the error.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoTicket { .. } | Self::TicketExpired { .. } => {
                "run `kinit`, or name a keytab and its principal"
            }
            Self::WrongRealm { .. } => {
                "compare the realm of your principal, the server's principal in the Hadoop \
                 configuration, and `default_realm` and `domain_realm` in krb5.conf"
            }
            Self::ClockSkew { .. } => "set this machine's clock (NTP), then try again",
            Self::KdcUnreachable { .. } => "check `[realms]` in krb5.conf and the network",
            Self::Keytab { .. } => "list the keytab's principals with `klist -kt FILE`",
            Self::MissingLibrary { .. } => {
                "install MIT Kerberos (`libgssapi-krb5-2` on Debian, `krb5-libs` on Red Hat)"
            }
            Self::NoServerPrincipal => {
                "set `yarn.resourcemanager.principal` or `dfs.namenode.kerberos.principal`"
            }
            Self::SimpleNotAllowed => {
                "set `ipc.client.fallback-to-simple-auth-allowed` to allow it (insecure)"
            }
            Self::Rejected { message, .. } if message.contains("GSS initiate failed") => {
                "check the server's log; common causes are clocks that differ, or a \
                 ticket older than the server's key (run `kinit` again)"
            }
            Self::NoCommonQuality { .. } => "set `hadoop.rpc.protection` as on the cluster",
            _ => return None,
        })
    }

    /// Returns whether the server mistook the ticket for a replay, as happens when many connections
    /// are opened with it at the same moment.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self, Self::Rejected { message, .. } if message.contains("Request is a replay"))
    }

    /// Converts a server's exception. Java passes on the messages of its Kerberos library.
    pub(crate) fn rejected(class: String, message: String) -> Self {
        if message.contains("Clock skew too great") {
            return Self::ClockSkew { reason: message };
        }
        Self::Rejected { class, message }
    }

    pub(crate) fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol { reason: reason.into() }
    }

    pub(crate) fn no_common_quality(offered: &[Quality], wanted: &[Quality]) -> Self {
        let (offered, wanted) =
            (quality::comma_separated(offered), quality::comma_separated(wanted));
        Self::NoCommonQuality { offered, wanted }
    }
}
