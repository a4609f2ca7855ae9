//! Tokens, from and to the wire.

use crate::proto::common::TokenProto;
use crate::token::Token;
use crate::types::Unfit;

impl Token {
    pub(crate) fn of(proto: Option<&TokenProto>) -> Result<Self, Unfit> {
        let proto = proto.ok_or(Unfit("a token"))?;
        Ok(Self {
            identifier: proto.identifier.clone(),
            password: proto.password.clone().into(),
            kind: proto.kind.clone(),
            service: proto.service.clone(),
        })
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
