//! Error for decoded messages with missing or invalid fields.

/// Field of a server's message that is missing or has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is missing or invalid")]
pub(crate) struct InvalidMessage(pub(crate) &'static str);
