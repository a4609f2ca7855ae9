//! Errors of calls, grouped by the caller's possible reactions.

use crate::rpc::Exception;
use crate::security::SecurityError;

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// No server could be reached. The call was not executed.
    #[error("no server could be reached at {addresses}: {reason}{}", unconfigured_hint(.addresses))]
    Unreachable {
        /// The addresses tried.
        addresses: String,
        /// The last failure.
        reason: String,
    },
    /// Servers respond, but none is active. The call was not executed.
    #[error("no active server at {addresses}: {reason}")]
    NoActiveServer {
        /// The addresses tried.
        addresses: String,
        /// The last server's response.
        reason: String,
    },
    /// The deadline passed.
    #[error("deadline exceeded for `{method}` at {address}{}", reason_suffix(.reason))]
    DeadlinePassed {
        /// The method.
        method: &'static str,
        /// The last server called.
        address: String,
        /// Set if the request was sent, so that the call may have been executed.
        sent: bool,
        /// The failure of an earlier attempt, if any.
        reason: Option<String>,
    },
    /// The connection ended after the request was sent. The call may have been executed and must
    /// not be repeated blindly.
    #[error("no response from {address} to `{method}`, which may have been executed: {reason}")]
    Unanswered {
        /// The method.
        method: &'static str,
        /// The server.
        address: String,
        /// The reason the connection ended.
        reason: String,
    },
    /// Authentication or protection failed. The call was not executed, unless its response was
    /// [tampered with](SecurityError::Tampered).
    #[error("{address}: {source}")]
    Security {
        /// The server.
        address: String,
        /// The cause.
        source: SecurityError,
    },
    /// Permission denied.
    #[error("permission denied for `{method}` at {address}: {exception}")]
    Denied {
        /// The method.
        method: &'static str,
        /// The server.
        address: String,
        /// The server's exception.
        exception: Exception,
    },
    /// The server does not support the method or the protocol: it is older or newer.
    #[error("`{method}` is not supported by {address}: {exception}")]
    Unsupported {
        /// The method.
        method: &'static str,
        /// The server.
        address: String,
        /// The server's exception.
        exception: Exception,
    },
    /// The server rejected the call.
    #[error("{address} rejected `{method}`: {exception}")]
    Rejected {
        /// The method.
        method: &'static str,
        /// The server.
        address: String,
        /// The server's exception.
        exception: Exception,
    },
    /// The server violates the Hadoop RPC protocol. The call may have been executed.
    #[error("Hadoop RPC protocol error at {address}: {reason}")]
    Protocol {
        /// The server.
        address: String,
        /// The violation.
        reason: String,
    },
    /// The request exceeds the size limit of servers.
    #[error("request `{method}` has {bytes} bytes, the limit is {bytes_max}")]
    RequestTooLarge {
        /// The method.
        method: &'static str,
        /// Size of the request.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

fn reason_suffix(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Hint for Hadoop's default address, which works only on the server's own machine.
fn unconfigured_hint(addresses: &str) -> &'static str {
    match addresses.starts_with("0.0.0.0:") {
        true => "; hint: no server is configured, check HADOOP_CONF_DIR",
        false => "",
    }
}

impl RpcError {
    /// Returns the server's exception if the server rejected the call.
    pub fn exception(&self) -> Option<&Exception> {
        match self {
            Self::Denied { exception, .. }
            | Self::Unsupported { exception, .. }
            | Self::Rejected { exception, .. } => Some(exception),
            _ => None,
        }
    }

    /// Returns a hint for resolving the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Security { source, .. } => source.hint(),
            _ => None,
        }
    }
}
