//! Tokens in messages.

use crate::proto::common::TokenProto;
use crate::token::Token;

impl Token {
    /// Takes the message over, so that no copy of the password is left in it.
    pub(crate) fn of(proto: TokenProto) -> Self {
        let TokenProto {
            identifier,
            password,
            kind,
            service,
        } = proto;
        Self {
            identifier,
            password: password.into(),
            kind,
            service,
        }
    }

    pub(crate) fn proto(&self) -> TokenProto {
        TokenProto {
            identifier: self.identifier.clone(),
            password: self.password.expose().to_vec(),
            kind: self.kind.clone(),
            service: self.service.clone(),
        }
    }
}
