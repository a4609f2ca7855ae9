//! Errors of calls.

use std::fmt;

/// Error of one exchange on one connection.
pub(super) enum ExchangeError {
    /// The request was not sent.
    Unsent,
    /// The connection was closed before the response was complete.
    Closed(String),
    Timeout,
    Protocol(String),
}

impl ExchangeError {
    pub(super) fn of(error: hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Protocol(format!("the response: {error}"));
        }
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Self::Closed(cause.to_string())
    }

    pub(super) fn into_call_error(self, address: &str) -> CallError {
        let address = address.to_owned();
        match self {
            Self::Unsent => {
                CallError::Unreachable { address, why: "the connection was closed".into() }
            }
            Self::Closed(why) => CallError::Unreachable { address, why },
            Self::Timeout => CallError::Timeout { address },
            Self::Protocol(what) => CallError::Protocol { what },
        }
    }
}

/// Error of a call, by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No connection, or it was closed before the response: retry, perhaps elsewhere. The request may have taken effect.
    Unreachable { address: String, why: String },
    /// Another process answers at this address.
    WrongCertificate { address: String },
    /// The server uses another version of the protocol: retrying does not help.
    Version { address: String, why: String },
    /// The server rejected the request.
    Refused { status: u16, error: String, hint: Option<String> },
    /// The deadline passed. The request may have taken effect.
    Timeout { address: String },
    /// Malformed request or response: retrying does not help.
    Protocol { what: String },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, why } => write!(f, "cannot reach `{address}`: {why}"),
            Self::WrongCertificate { address } => {
                write!(f, "refusing to talk to `{address}`: it presents another job's certificate")
            }
            Self::Version { address, why } => write!(f, "cannot use `{address}`: {why}"),
            Self::Refused { error, .. } => f.write_str(error),
            Self::Timeout { address } => write!(f, "timed out waiting for `{address}`"),
            Self::Protocol { what } => write!(f, "malformed data in {what}"),
        }
    }
}

impl std::error::Error for CallError {}
