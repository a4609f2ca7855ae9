//! How a call can fail, cut by what its caller can do.

use crate::rpc::Exception;
use crate::security::SecurityError;

/// Why a call gave no answer, or one that says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// No server could be reached. The call was not carried out.
    #[error("no server could be reached at {addresses}: {reason}{}", unconfigured_hint(.addresses))]
    Unreachable {
        /// Where it was tried.
        addresses: String,
        /// Why the last try failed.
        reason: String,
    },
    /// Servers answer, and none of them is active. The call was not carried out.
    #[error("no server at {addresses} is active: {reason}")]
    NoActiveServer {
        /// Where it was tried.
        addresses: String,
        /// What the last one said.
        reason: String,
    },
    /// The call's deadline passed.
    #[error("`{method}` got no answer from {address} before its deadline{}", reason_suffix(.reason))]
    DeadlinePassed {
        /// The method called.
        method: &'static str,
        /// The server it waited for last.
        address: String,
        /// Whether it may have been carried out: the request had left.
        sent: bool,
        /// Why an earlier try had failed, if one had.
        reason: Option<String>,
    },
    /// The connection broke after the request had left: it may have been carried out, and may not
    /// be repeated without looking.
    #[error("{address} may or may not have carried out `{method}`: {reason}")]
    Unanswered {
        /// The method called.
        method: &'static str,
        /// The server.
        address: String,
        /// How the connection ended.
        reason: String,
    },
    /// The server and the caller do not trust each other. The call was not carried out, unless it
    /// is its answer that was [tampered with](SecurityError::Tampered).
    #[error("{address}: {source}")]
    Security {
        /// The server.
        address: String,
        /// Why.
        source: SecurityError,
    },
    /// The caller is known, and may not do this.
    #[error("{address} denies `{method}`: {exception}")]
    Denied {
        /// The method called.
        method: &'static str,
        /// The server.
        address: String,
        /// What it said.
        exception: Exception,
    },
    /// The server does not know the method or the protocol: it is older or newer.
    #[error("{address} does not know `{method}`: {exception}")]
    Unsupported {
        /// The method called.
        method: &'static str,
        /// The server.
        address: String,
        /// What it said.
        exception: Exception,
    },
    /// The server understood the call and refused it.
    #[error("{address} refused `{method}`: {exception}")]
    Rejected {
        /// The method called.
        method: &'static str,
        /// The server.
        address: String,
        /// What it said.
        exception: Exception,
    },
    /// What answers does not speak Hadoop RPC as it should. What it has done, nobody knows.
    #[error("{address} does not answer as a Hadoop server does: {reason}")]
    Protocol {
        /// The server.
        address: String,
        /// What it did.
        reason: String,
    },
    /// The request is longer than servers accept.
    #[error("`{method}` is {bytes} bytes long, and servers accept {bytes_max}")]
    RequestTooLarge {
        /// The method called.
        method: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

fn reason_suffix(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Hadoop's own default addresses are of no use from anywhere but the server's machine.
fn unconfigured_hint(addresses: &str) -> &'static str {
    match addresses.starts_with("0.0.0.0:") {
        true => "; no configuration names a server: look at HADOOP_CONF_DIR",
        false => "",
    }
}

impl RpcError {
    /// What the server said, if it was the server that said no.
    pub fn exception(&self) -> Option<&Exception> {
        match self {
            Self::Denied { exception, .. }
            | Self::Unsupported { exception, .. }
            | Self::Rejected { exception, .. } => Some(exception),
            _ => None,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Security { source, .. } => source.hint(),
            _ => None,
        }
    }
}
