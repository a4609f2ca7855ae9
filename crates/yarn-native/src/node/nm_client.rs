//! The NodeManagers of a cluster, as one master speaks to them.

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

/// Pause before a node that is not ready, or did not answer, is called again.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest answer of a node, which speaks of some hundred containers at most. Read, it takes many
/// times its length, and any of a thousand nodes may be in bad hands.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// How many nodes are spoken to, and how.
#[derive(Clone, Debug)]
pub struct NmClientOptions {
    /// Limits and times of each node's channel.
    pub rpc: Options,
    /// Channels that are kept. A channel has at most one connection, and none when it is idle.
    pub channels_max: usize,
    /// Calls at the same time, to all nodes together. Calls to nodes that do not answer count
    /// until their deadline, so this has to be more than there may be of those.
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
    /// How a configuration wants NodeManagers to be called.
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

/// The NodeManagers of a cluster, as one master speaks to them: a token and a channel for each.
/// Cheap to clone. A node that is slow, dead or hostile holds up nobody but its own callers, as long
/// as those are fewer than [`NmClientOptions::calls_max`].
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
    /// No node is known yet; [`NmClient::learn`] changes that.
    pub fn new(options: NmClientOptions) -> Self {
        Self::with_dialer(Arc::new(Tcp), options)
    }

    /// The same, over streams that something else opens.
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

    /// Keeps the tokens the scheduler gives; a newer one takes an older one's place, and is used
    /// from the next call on.
    pub fn add_tokens(&self, tokens: impl IntoIterator<Item = NodeToken>) {
        self.pool().add_tokens(tokens);
    }

    /// Whether there is a token for a node.
    pub fn has_token(&self, node: &NodeId) -> bool {
        self.pool().has_token(node)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.inner.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a node; one that is not ready is called again until the deadline.
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
            let turn = timeout_at(deadline, self.inner.calls.acquire());
            // The semaphore is never closed, so only time can end the wait.
            let Ok(turn) = turn.await else {
                return Err(failed(RpcError::DeadlinePassed {
                    method: method.name,
                    address: node.to_string(),
                    sent: false,
                    reason: Some("too many other calls were under way".into()),
                }));
            };
            let (factory, max) = (&self.inner.factory, self.inner.channels_max);
            let channel = self.pool().channel(node, factory, max)?;
            let answer = channel.call(method, request, deadline, safety).await;
            match answer.map_err(failed) {
                Err(error) if error.is_not_ready() && self.may_wait(deadline) => {}
                outcome => return outcome,
            }
            drop(turn);
            self.wait().await;
        }
    }

    pub(crate) fn may_wait(&self, deadline: Instant) -> bool {
        Instant::now() + PAUSE < deadline
    }

    pub(crate) async fn wait(&self) {
        sleep(PAUSE).await;
    }

    /// An answer that makes no sense is the node's fault.
    pub(crate) fn read<T>(
        &self,
        node: &NodeId,
        method: &str,
        answer: Result<T, InvalidMessage>,
    ) -> Result<T, NodeError> {
        answer.map_err(|unfit| {
            let reason = format!("its answer to `{method}` cannot be read: {unfit}");
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
    fn a_node_says_no_more_than_a_node_can_have_to_say() {
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
