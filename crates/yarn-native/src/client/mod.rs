//! A client of the ResourceManager: applications and the cluster they run on.
//!
//! * `submit`: a new application, and its way into the scheduler.
//! * `applications`: applications that are there: listed, watched, changed, ended.
//! * `attempts`: what they consist of.
//! * `cluster`: nodes and queues, labels and attributes, what is counted.
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

/// Speaks to the ResourceManager, or to whichever of several is active. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    /// Whether tokens name their servers by address rather than by name.
    services_by_ip: bool,
}

impl Client {
    /// A client of the ResourceManager at any of `addresses`.
    pub fn new(
        addresses: Vec<Address>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        let channel = Channel::new(Protocol::APPLICATION_CLIENT, addresses, identity, options)?;
        Ok(Self::with_channel(channel))
    }

    /// A client of the ResourceManagers that a configuration names, trusting whom it trusts.
    /// [`Identity::from_config`] is the usual caller.
    pub fn from_config(config: &Config, identity: Identity) -> Result<Self, SetupError> {
        let managers = config.resource_managers()?.into_iter();
        let addresses = managers.map(|manager| manager.client).collect();
        let options = config.resource_manager_options()?;
        let services_by_ip = config.token_services_use_ip()?;
        Ok(Self { services_by_ip, ..Self::new(addresses, identity, options)? })
    }

    /// A client on a channel that speaks [`Protocol::APPLICATION_CLIENT`].
    pub fn with_channel(channel: Channel) -> Self {
        Self { channel, services_by_ip: true }
    }

    /// Calls what does no harm when it is carried out twice.
    async fn call_idempotent<Req: Message, Resp: Message + Default>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        deadline: Instant,
    ) -> Result<Resp, RpcError> {
        let safety = Safety::Idempotent;
        self.channel.call(method, request, deadline, safety).await
    }

    /// An answer that makes no sense is the server's fault.
    fn decode<T>(&self, method: &str, answer: Result<T, InvalidMessage>) -> Result<T, RpcError> {
        answer.map_err(|unfit| self.channel.invalid_response(method, &unfit.to_string()))
    }
}
