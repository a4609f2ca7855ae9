//! Conversion of tokens from and to messages.

use std::mem::take;

use crate::proto::common::TokenProto;
use crate::token::Token;

impl Token {
    /// Takes the fields out of the message, so that it keeps no copy of the password.
    pub(crate) fn of(mut proto: TokenProto) -> Self {
        Self {
            identifier: take(&mut proto.identifier),
            password: take(&mut proto.password).into(),
            kind: take(&mut proto.kind),
            service: take(&mut proto.service),
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
