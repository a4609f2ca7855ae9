//! A message that decodes, and makes no sense.

/// What is missing from a server's message, or has a value it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is missing or makes no sense")]
pub(crate) struct InvalidMessage(pub(crate) &'static str);
