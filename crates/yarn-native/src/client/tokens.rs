//! Delegation tokens of the ResourceManager.

use std::time::SystemTime;

use tokio::time::Instant;

use crate::client::Client;
use crate::proto::common::{
    CancelDelegationTokenRequestProto, GetDelegationTokenRequestProto,
    RenewDelegationTokenRequestProto,
};
use crate::proto::yarn::application_client_protocol as method;
use crate::rpc::RpcError;
use crate::token::{Token, service_names};
use crate::types::{InvalidMessage, timestamp};

impl Client {
    /// Fetches a delegation token of the caller, renewable by `renewer` and valid for all servers
    /// of this client. The server rejects callers that authenticate with such a token themselves.
    pub async fn delegation_token(
        &self,
        renewer: &str,
        deadline: Instant,
    ) -> Result<Token, RpcError> {
        let request = GetDelegationTokenRequestProto { renewer: renewer.to_owned() };
        let call = &method::GET_DELEGATION_TOKEN;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let token = self.decode(call.name, answer.token.ok_or(InvalidMessage("the token")))?;
        let mut token = Token::of(token);
        // The ResourceManager leaves the service empty; the client fills it in.
        let addresses = self.channel.addresses();
        token.service = service_names(addresses, self.services_by_ip, deadline).await;
        Ok(token)
    }

    /// Renews a token of the ResourceManager and returns its new expiry time. The caller must be
    /// its renewer.
    pub async fn renew_token(
        &self,
        token: &Token,
        deadline: Instant,
    ) -> Result<SystemTime, RpcError> {
        let request = RenewDelegationTokenRequestProto { token: token.proto() };
        let call = &method::RENEW_DELEGATION_TOKEN;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        Ok(timestamp::of_millis(answer.new_expiry_time))
    }

    /// Cancels a token. The caller must be its owner or renewer.
    pub async fn cancel_token(&self, token: &Token, deadline: Instant) -> Result<(), RpcError> {
        let request = CancelDelegationTokenRequestProto { token: token.proto() };
        let call = &method::CANCEL_DELEGATION_TOKEN;
        self.call_idempotent(call, &request, deadline).await?;
        Ok(())
    }
}
