//! Tokens and channels by node. Tokens are kept, since each is sent only once; channels are created
//! on demand, up to a limit.

use std::collections::HashMap;
use std::sync::Arc;

use crate::node::NodeError;
use crate::rpc::{Address, Channel, Dial, Options, Protocol, RpcError};
use crate::security::Identity;
use crate::token::Token;
use crate::types::{NodeId, NodeToken};

/// Maximum number of tokens, far more than a cluster has nodes.
const TOKENS_MAX: usize = 1 << 17;

/// Factory of channels.
#[derive(Debug)]
pub(crate) struct ChannelFactory {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) options: Options,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    tokens: HashMap<NodeId, Token>,
    channels: HashMap<NodeId, PooledChannel>,
    /// Use counter; a channel with a smaller number was used less recently.
    uses: u64,
}

#[derive(Debug)]
struct PooledChannel {
    channel: Channel,
    used: u64,
}

impl Pool {
    pub(crate) fn add_tokens(&mut self, tokens: impl IntoIterator<Item = NodeToken>) {
        for NodeToken { node, token } in tokens {
            if self.tokens.get(&node) == Some(&token) {
                continue;
            }
            if self.tokens.len() >= TOKENS_MAX && !self.tokens.contains_key(&node) {
                continue;
            }
            if let Some(pooled) = self.channels.get(&node) {
                pooled.channel.replace_identity(Identity::token(token.clone()));
            }
            self.tokens.insert(node, token);
        }
    }

    pub(crate) fn has_token(&self, node: &NodeId) -> bool {
        self.tokens.contains_key(node)
    }

    /// Returns the channel to a node. Above the limit, the least recently used channel is removed;
    /// calls in progress keep it until they are answered.
    pub(crate) fn channel(
        &mut self,
        node: &NodeId,
        factory: &ChannelFactory,
        channels_max: usize,
    ) -> Result<Channel, NodeError> {
        self.uses += 1;
        if let Some(pooled) = self.channels.get_mut(node) {
            pooled.used = self.uses;
            return Ok(pooled.channel.clone());
        }
        let token = self.tokens.get(node).cloned();
        let token = token.ok_or_else(|| NodeError::NoToken { node: node.clone() })?;
        let channel =
            Self::make(node, token, factory).map_err(|error| NodeError::new(node, error))?;
        while self.channels.len() >= channels_max.max(1) {
            let oldest = self.channels.iter().min_by_key(|(_, pooled)| pooled.used);
            let Some(oldest) = oldest.map(|(node, _)| node.clone()) else {
                break;
            };
            self.channels.remove(&oldest);
        }
        let pooled = PooledChannel { channel: channel.clone(), used: self.uses };
        self.channels.insert(node.clone(), pooled);
        Ok(channel)
    }

    fn make(node: &NodeId, token: Token, factory: &ChannelFactory) -> Result<Channel, RpcError> {
        Channel::over(
            factory.dial.clone(),
            Protocol::CONTAINER_MANAGEMENT,
            vec![Address::new(node.host.clone(), node.port)],
            Identity::token(token),
            factory.options.clone(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Tcp;

    fn node(number: u16) -> NodeId {
        NodeId { host: "n".into(), port: number }
    }

    fn token(number: u16, key: u8) -> NodeToken {
        NodeToken {
            node: node(number),
            token: Token {
                identifier: vec![key],
                password: Vec::new().into(),
                kind: "NMToken".into(),
                service: String::new(),
            },
        }
    }

    fn pooled_ports(pool: &Pool) -> Vec<u16> {
        let mut ports: Vec<u16> = pool.channels.keys().map(|node| node.port).collect();
        ports.sort();
        ports
    }

    #[test]
    fn the_least_recently_used_channel_is_removed_and_its_token_kept() {
        let factory = ChannelFactory { dial: Arc::new(Tcp), options: Options::default() };
        let mut pool = Pool::default();
        pool.add_tokens((1..=4).map(|number| token(number, 0)));
        for number in [1, 2, 1, 3, 4] {
            pool.channel(&node(number), &factory, 3).expect("a channel");
        }
        assert_eq!(pooled_ports(&pool), [1, 3, 4]);
        pool.channel(&node(2), &factory, 3).expect("a channel");
        assert_eq!(pooled_ports(&pool), [2, 3, 4]);
        let unknown = pool.channel(&node(9), &factory, 3);
        assert!(matches!(unknown, Err(NodeError::NoToken { .. })));
    }
}
