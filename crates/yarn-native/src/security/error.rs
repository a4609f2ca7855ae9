//! What can go wrong before a server and a caller trust each other.

use crate::security::quality::{self, Quality};

/// Why a handshake failed. Trying again does not help until somebody has changed something, which
/// [`SecurityError::hint`] names where it is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// The caller has no Kerberos ticket and no keytab to get one with.
    #[error("no Kerberos ticket was found: {reason}")]
    NoTicket {
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// There is a ticket, and its time is over.
    #[error("the Kerberos ticket has expired: {reason}")]
    TicketExpired {
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// The realm is unknown, or does not know the server or the caller.
    #[error("the Kerberos realm does not fit: {reason}")]
    WrongRealm {
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// The clocks of this machine and of the realm are too far apart.
    #[error("the clock of this machine differs too much from the Kerberos server's: {reason}")]
    ClockSkew {
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// No server of the realm answers.
    #[error("no Kerberos server could be reached: {reason}")]
    KdcUnreachable {
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// The keytab cannot be used.
    #[error("the keytab `{path}` cannot be used for `{principal}`: {reason}")]
    Keytab {
        /// The file.
        path: String,
        /// Whose key was looked for.
        principal: String,
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// The Kerberos library is not on this machine, or lacks a function.
    #[error("the Kerberos library could not be opened: {reason}")]
    MissingLibrary {
        /// What the system's loader said.
        reason: String,
    },
    /// Kerberos failed in some other way.
    #[error("Kerberos failed at {during}: {reason}")]
    Kerberos {
        /// The step that failed.
        during: &'static str,
        /// In the words of the Kerberos library.
        reason: String,
    },
    /// The server says it is somebody it should not be.
    #[error("the server calls itself `{claimed}`, but should be `{expected}`")]
    WrongServer {
        /// The principal it claims.
        claimed: String,
        /// The principal or pattern that was configured.
        expected: String,
    },
    /// Kerberos is used, and nobody said which principal the server has.
    #[error("the principal of the server is not configured, so it cannot be trusted")]
    NoServerPrincipal,
    /// The server wants no proof, and a secure client must not go on.
    #[error("the server asks for no authentication (SIMPLE), which a secure client refuses")]
    SimpleRefused,
    /// The server takes nothing that the caller has.
    #[error("the server accepts {offered}, and the caller has {have}")]
    NoCommonMethod {
        /// The methods it named.
        offered: String,
        /// What the caller could have used.
        have: &'static str,
    },
    /// The server wants a mechanism this client does not speak.
    #[error("the server wants mechanism `{mechanism}` for {method}, which is not supported")]
    UnknownMechanism {
        /// `TOKEN` or `KERBEROS`.
        method: &'static str,
        /// What it named.
        mechanism: String,
    },
    /// No quality of protection suits both sides.
    #[error("the server offers protection {offered}, and {wanted} is wanted")]
    NoCommonQuality {
        /// What the server offers.
        offered: String,
        /// What the caller's configuration wants.
        wanted: String,
    },
    /// The server answered with something that is no part of the dialogue.
    #[error("the server broke the handshake: {what}")]
    Protocol {
        /// What it did.
        what: String,
    },
    /// The server does not know the password it should know.
    #[error("the server could not prove that it knows the token's password")]
    ServerUnauthenticated,
    /// A protected message was forged, repeated, reordered or damaged.
    #[error("a protected message did not pass its check: {what}")]
    Tampered {
        /// Which check.
        what: &'static str,
    },
    /// The server refused the caller.
    #[error("the server refused the caller: {message} (`{class}`)")]
    Refused {
        /// The Java class of its exception.
        class: String,
        /// Its message.
        message: String,
    },
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a nonce")]
    NoRandomness,
}

impl SecurityError {
    /// What a person can do about it.
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
            Self::KdcUnreachable { .. } => "look at `[realms]` in krb5.conf, and at the network",
            Self::Keytab { .. } => "`klist -kt FILE` shows whose keys a keytab holds",
            Self::MissingLibrary { .. } => {
                "install MIT Kerberos (`libgssapi-krb5-2` on Debian, `krb5-libs` on Red Hat)"
            }
            Self::NoServerPrincipal => {
                "set `yarn.resourcemanager.principal` or `dfs.namenode.kerberos.principal`"
            }
            Self::SimpleRefused => {
                "`ipc.client.fallback-to-simple-auth-allowed` permits it, at your risk"
            }
            Self::Refused { message, .. } if message.contains("GSS initiate failed") => {
                "the server's log says why; often its clock and this machine's differ, or the \
                 server's key was changed and the ticket is older (`kinit` again)"
            }
            Self::NoCommonQuality { .. } => "set `hadoop.rpc.protection` as on the cluster",
            _ => return None,
        })
    }

    /// Whether the server only thought it had seen the ticket before, as happens when many
    /// connections are made with it at the same moment.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("Request is a replay"))
    }

    /// What a server says when it refuses; Java passes on what its own Kerberos says.
    pub(crate) fn refused(class: String, message: String) -> Self {
        if message.contains("Clock skew too great") {
            return Self::ClockSkew { reason: message };
        }
        Self::Refused { class, message }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    pub(crate) fn no_common_quality(offered: &[Quality], wanted: &[Quality]) -> Self {
        let (offered, wanted) = (quality::join(offered), quality::join(wanted));
        Self::NoCommonQuality { offered, wanted }
    }
}
