//! Client of the ResourceManager: applications and the cluster they run on.
//!
//! * `submit`: submission of new applications.
//! * `applications`: listing, watching, changing and killing applications.
//! * `attempts`: application attempts and containers.
//! * `cluster`: nodes, queues, labels, attributes and resource types.
//! * `tokens`: delegation tokens of the ResourceManager.

mod submit;

mod applications;
mod attempts;
mod cluster;
mod tokens;

#[cfg(test)]
mod tests;

pub use applications::{ApplicationFilter, ApplicationScope};
pub use cluster::QueueDetail;
pub use submit::{LogAggregation, NewApplication, Submission};

use prost::Message;
use tokio::time::Instant;

use crate::config::{Config, SetupError};
use crate::rpc::{Address, Channel, Method, Options, Protocol, RpcError, Safety};
use crate::security::Identity;
use crate::types::InvalidMessage;

/// Client of the ResourceManager with failover to the active one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    /// Token services contain IP addresses instead of host names.
    services_by_ip: bool,
}

impl Client {
    /// Creates a client for the ResourceManagers at `addresses`.
    pub fn new(
        addresses: Vec<Address>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        let channel = Channel::new(Protocol::APPLICATION_CLIENT, addresses, identity, options)?;
        Ok(Self::with_channel(channel))
    }

    /// Creates a client from a configuration, with its addresses and trust policy.
    /// [`Identity::from_config`] returns the usual identity.
    pub fn from_config(config: &Config, identity: Identity) -> Result<Self, SetupError> {
        let managers = config.resource_managers()?.into_iter();
        let addresses = managers.map(|manager| manager.client).collect();
        let options = config.resource_manager_options()?;
        let services_by_ip = config.token_services_use_ip()?;
        Ok(Self { services_by_ip, ..Self::new(addresses, identity, options)? })
    }

    /// Creates a client on a channel that speaks [`Protocol::APPLICATION_CLIENT`].
    pub fn with_channel(channel: Channel) -> Self {
        Self { channel, services_by_ip: true }
    }

    /// Calls an idempotent method.
    async fn call_idempotent<Req: Message, Resp: Message + Default>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        deadline: Instant,
    ) -> Result<Resp, RpcError> {
        let safety = Safety::Idempotent;
        self.channel.call(method, request, deadline, safety).await
    }

    /// Reports an invalid response as a protocol error of the server.
    fn decode<T>(&self, method: &str, answer: Result<T, InvalidMessage>) -> Result<T, RpcError> {
        answer.map_err(|error| self.channel.invalid_response(method, &error.to_string()))
    }
}
