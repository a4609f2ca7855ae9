//! Tokens of file systems: their owners, and the current ones of a job's agents.

use std::{fmt, time::Duration};
use yarn_native::{
    Token,
    credentials::{Credentials, TokenIdentifier},
};

/// The kind of tokens for HDFS.
pub const TOKEN_KIND: &str = "HDFS_DELEGATION_TOKEN";
/// For so long before a token ends for good it is not used any more: the library below leaves it out.
pub const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// Tokens, and which ones they are. Those of another number are others; number 0 are those that a job was submitted
/// with, or none.
#[derive(Clone, Default)]
pub struct AgentTokens {
    /// It changes with them, also from master to master.
    pub number: u64,
    /// The tokens, and nothing else that is secret.
    pub credentials: Credentials,
}

impl fmt::Debug for AgentTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentTokens({})", self.number)
    }
}

/// Returns the owner of a token.
pub fn token_owner(token: &Token) -> Option<String> {
    match TokenIdentifier::decode(token).ok()? {
        TokenIdentifier::Delegation { owner, .. } => Some(short_name(&owner)),
        _ => None,
    }
}

/// The user of a principal, as clusters without rules of their own name it.
pub fn short_name(principal: &str) -> String {
    let end = principal.find(['/', '@']).unwrap_or(principal.len());
    principal[..end].to_owned()
}
