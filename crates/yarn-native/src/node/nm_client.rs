//! Client of all NodeManagers of a cluster, for one master.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{Config, ConfigError};
use crate::node::NodeError;
use crate::node::pool::{ChannelFactory, Pool};
use crate::rpc::{Dial, Method, Options, RpcError, Safety, Tcp};
use crate::types::{InvalidMessage, NodeId, NodeToken};

/// Pause before a node that was not ready, or did not respond, is called again.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum length of a node's response, which describes some hundred containers at most. Decoded,
/// it takes a multiple of its length, and any of a thousand nodes may be hostile.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// Limits of a [`NmClient`].
#[derive(Clone, Debug)]
pub struct NmClientOptions {
    /// Options of each node's channel.
    pub rpc: Options,
    /// Maximum number of open channels. A channel has at most one connection, and none when idle.
    pub channels_max: usize,
    /// Maximum number of concurrent calls to all nodes. Calls to unresponsive nodes count until
    /// their deadline, so the limit has to exceed the number of those.
    pub calls_max: usize,
}

impl Default for NmClientOptions {
    fn default() -> Self {
        Self {
            rpc: Options {
                // `yarn.client.nodemanager-connect.max-wait-ms`
                retry_timeout: Duration::from_secs(3 * 60),
                calls_max: 16,
                response_bytes_max: RESPONSE_BYTES_MAX,
                ..Options::default()
            },
            channels_max: 512,
            calls_max: 1024,
        }
    }
}

impl NmClientOptions {
    /// Reads the options from a configuration.
    pub fn from_config(config: &Config) -> Result<Self, ConfigError> {
        let default = Self::default();
        let rpc = config.node_manager_options()?;
        Ok(Self {
            rpc: Options {
                calls_max: default.rpc.calls_max,
                response_bytes_max: rpc.response_bytes_max.min(RESPONSE_BYTES_MAX),
                ..rpc
            },
            ..default
        })
    }
}

/// Client of all NodeManagers of a cluster, for one master, with a token and a channel per node.
/// Cheap to clone. A slow, dead or hostile node delays only its own callers, as long as those are
/// fewer than [`NmClientOptions::calls_max`].
#[derive(Clone, Debug)]
pub struct NmClient {
    inner: Arc<NmClientInner>,
}

#[derive(Debug)]
struct NmClientInner {
    factory: ChannelFactory,
    channels_max: usize,
    pool: Mutex<Pool>,
    calls: Semaphore,
}

impl NmClient {
    /// Creates a client without tokens; see [`NmClient::add_tokens`].
    pub fn new(options: NmClientOptions) -> Self {
        Self::with_dialer(Arc::new(Tcp), options)
    }

    /// Creates a client that connects with `dial`.
    pub fn with_dialer(dial: Arc<dyn Dial>, options: NmClientOptions) -> Self {
        let NmClientOptions { rpc, channels_max, calls_max } = options;
        let calls = calls_max.clamp(1, Semaphore::MAX_PERMITS);
        let factory = ChannelFactory { dial, options: rpc };
        Self {
            inner: Arc::new(NmClientInner {
                factory,
                channels_max,
                pool: Mutex::default(),
                calls: Semaphore::new(calls),
            }),
        }
    }

    /// Adds tokens from the scheduler. A newer token of a node replaces the older one from the next
    /// call.
    pub fn add_tokens(&self, tokens: impl IntoIterator<Item = NodeToken>) {
        self.pool().add_tokens(tokens);
    }

    /// Returns true if there is a token for the node.
    pub fn has_token(&self, node: &NodeId) -> bool {
        self.pool().has_token(node)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.inner.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a node. While the node is not ready the call is retried until the deadline.
    pub(crate) async fn call<Req: Message, Resp: Message + Default>(
        &self,
        node: &NodeId,
        method: &Method<Req, Resp>,
        request: &Req,
        deadline: Instant,
        safety: Safety,
    ) -> Result<Resp, NodeError> {
        let failed = |error| NodeError::new(node, error);
        loop {
            let permit = timeout_at(deadline, self.inner.calls.acquire());
            // The semaphore is never closed, so only the deadline ends the wait.
            let Ok(permit) = permit.await else {
                return Err(failed(RpcError::DeadlinePassed {
                    method: method.name,
                    address: node.to_string(),
                    sent: false,
                    reason: Some("too many concurrent calls".into()),
                }));
            };
            let (factory, max) = (&self.inner.factory, self.inner.channels_max);
            let channel = self.pool().channel(node, factory, max)?;
            let answer = channel.call(method, request, deadline, safety).await;
            match answer.map_err(failed) {
                Err(error) if error.is_not_ready() && self.may_wait(deadline) => {}
                outcome => return outcome,
            }
            drop(permit);
            self.wait().await;
        }
    }

    pub(crate) fn may_wait(&self, deadline: Instant) -> bool {
        Instant::now() + PAUSE < deadline
    }

    pub(crate) async fn wait(&self) {
        sleep(PAUSE).await;
    }

    /// Reports an invalid response as a protocol error of the node.
    pub(crate) fn read<T>(
        &self,
        node: &NodeId,
        method: &str,
        answer: Result<T, InvalidMessage>,
    ) -> Result<T, NodeError> {
        answer.map_err(|invalid| {
            let reason = format!("invalid response to `{method}`: {invalid}");
            let address = node.to_string();
            NodeError::new(node, RpcError::Protocol { address, reason })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    #[test]
    fn response_length_is_limited_below_the_configured_maximum() {
        let environment = Environment::default().with_variable("USER", "alice");
        let mut config = Config::defaults(environment);
        let limit = |config: &Config| {
            NmClientOptions::from_config(config).map(|o| o.rpc.response_bytes_max)
        };
        assert_eq!(limit(&config).unwrap(), RESPONSE_BYTES_MAX);
        config.set("ipc.maximum.response.length", "1m", "a test");
        assert_eq!(limit(&config).unwrap(), 1 << 20);
    }
}
