//! NameNodes, as far as a launcher needs them: the delegation tokens of their file systems.
//!
//! Files themselves are a file system client's business; this is what lets containers use one.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use prost::Message;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::{Config, SetupError};
use crate::credentials::Credentials;
use crate::proto::common::{
    CancelDelegationTokenRequestProto, GetDelegationTokenRequestProto,
    RenewDelegationTokenRequestProto,
};
use crate::proto::hdfs::client_namenode_protocol as method;
use crate::proto::hdfs::{GetBlockLocationsRequestProto, GetServerDefaultsRequestProto};
use crate::rpc::{Address, Channel, Method, Options, Protocol, RpcError, Safety};
use crate::security::Identity;
use crate::token::{Token, service_names};
use crate::types::timestamp;

/// What the service of a token begins with that is for several NameNodes.
const HA_SERVICE_PREFIX: &str = "ha-hdfs:";
/// How long the addresses of NameNodes are looked for where nobody set a deadline.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// The NameNodes of one file system: one, or several of which one is active. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NameNodes {
    channel: Channel,
    /// The name that stands for several of them.
    name: Option<String>,
    /// Whether tokens name their servers by address rather than by name.
    services_by_ip: bool,
}

/// Why tokens could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The configuration does not say where a NameNode is.
    #[error("cannot find the NameNodes of `{file_system}`: {source}")]
    Setup {
        /// The file system.
        file_system: String,
        /// Why.
        source: SetupError,
    },
    /// A NameNode gave none.
    #[error("no token for `{file_system}`: {source}")]
    Rpc {
        /// The file system.
        file_system: String,
        /// Why.
        source: RpcError,
    },
}

impl NameNodes {
    /// The NameNode at one of `addresses`. Several need the `name` that stands for them, as in
    /// `hdfs://name`, because their tokens are for it.
    pub fn new(
        addresses: Vec<Address>,
        name: Option<String>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        let channel = Channel::new(Protocol::CLIENT_NAMENODE, addresses, identity, options)?;
        Ok(Self { channel, name, services_by_ip: true })
    }

    /// The NameNodes of a file system, by its URL or what follows the `//` in it: a name that the
    /// configuration explains, or a host and perhaps a port. Nothing means the default file system.
    pub fn from_config(
        config: &Config,
        file_system: &str,
        identity: Identity,
    ) -> Result<Self, SetupError> {
        let default;
        let authority = match authority(file_system) {
            "" => {
                default = config.default_fs()?;
                authority(&default)
            }
            given => given,
        };
        let (found, name) = match authority {
            "" => (config.default_namenodes()?, None),
            some => {
                let several = config.is_highly_available(some)?;
                (config.namenodes(some)?, several.then(|| some.to_owned()))
            }
        };
        let addresses = found.into_iter().map(|namenode| namenode.rpc).collect();
        let options = config.namenode_options()?;
        let services_by_ip = config.token_services_use_ip()?;
        Ok(Self { services_by_ip, ..Self::new(addresses, name, identity, options)? })
    }

    /// A delegation token, with which its holder is the caller; `renewer` may renew it. An insecure
    /// NameNode gives none, and needs none.
    pub async fn delegation_token(
        &self,
        renewer: &str,
        deadline: Instant,
    ) -> Result<Option<Token>, RpcError> {
        let request = GetDelegationTokenRequestProto { renewer: renewer.to_owned() };
        let answer = self.call_idempotent(&method::GET_DELEGATION_TOKEN, &request, deadline);
        let Some(token) = answer.await?.token else {
            return Ok(None);
        };
        let mut token = Token::of(token);
        token.service = self.token_service_before(deadline).await;
        Ok(Some(token))
    }

    /// What tokens for this file system name as their service: `ha-hdfs:name`, or `10.0.0.1:8020`.
    /// A host whose address is not found within twenty seconds keeps its name.
    pub async fn token_service(&self) -> String {
        self.token_service_before(Instant::now() + LOOKUP_TIMEOUT).await
    }

    async fn token_service_before(&self, deadline: Instant) -> String {
        let addresses = self.channel.addresses();
        match &self.name {
            Some(name) => format!("{HA_SERVICE_PREFIX}{name}"),
            None => service_names(addresses, self.services_by_ip, deadline).await,
        }
    }

    /// All the services a client may look for when it looks for a token of this file system: the one
    /// Hadoop gives it, and each NameNode by its address and by its name as it is configured. Clients
    /// that compare a token's service with the authority of a URL letter by letter, as `hdfs-native`
    /// does, need a copy of the token for the spelling they use ([`Credentials::copy_for`]).
    pub async fn token_services(&self) -> Vec<String> {
        let deadline = Instant::now() + LOOKUP_TIMEOUT;
        let mut spellings = vec![self.token_service_before(deadline).await];
        for address in self.channel.addresses() {
            for by_ip in [true, false] {
                let address = std::iter::once(address);
                spellings.push(service_names(address, by_ip, deadline).await);
            }
        }
        spellings.sort();
        spellings.dedup();
        spellings
    }

    /// Renews a token; until when it holds now. The caller must be its renewer.
    pub async fn renew_token(
        &self,
        token: &Token,
        deadline: Instant,
    ) -> Result<SystemTime, RpcError> {
        let request = RenewDelegationTokenRequestProto { token: token.proto() };
        let answer = self.call_idempotent(&method::RENEW_DELEGATION_TOKEN, &request, deadline);
        Ok(timestamp::of_millis(answer.await?.new_expiry_time))
    }

    /// Makes a token worthless. The caller must be its owner or its renewer.
    pub async fn cancel_token(&self, token: &Token, deadline: Instant) -> Result<(), RpcError> {
        let request = CancelDelegationTokenRequestProto { token: token.proto() };
        self.call_idempotent(&method::CANCEL_DELEGATION_TOKEN, &request, deadline).await?;
        Ok(())
    }

    /// Where the keys of encrypted directories are, as a URL of the key server; `None` without one.
    pub async fn key_provider(&self, deadline: Instant) -> Result<Option<String>, RpcError> {
        let request = GetServerDefaultsRequestProto {};
        let answer = self.call_idempotent(&method::GET_SERVER_DEFAULTS, &request, deadline);
        let provider = answer.await?.server_defaults.key_provider_uri;
        Ok(provider.filter(|url| !url.is_empty()))
    }

    /// On which hosts the bytes of a file are, and how many on each; every replica counts. A file that is not there has
    /// none.
    pub async fn block_hosts(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<BTreeMap<String, u64>, RpcError> {
        let request = GetBlockLocationsRequestProto {
            src: path.to_owned(),
            offset: 0,
            length: i64::MAX as u64,
        };
        let answer = self.call_idempotent(&method::GET_BLOCK_LOCATIONS, &request, deadline);
        let located = answer.await?.locations.unwrap_or_default();
        let mut hosts = BTreeMap::new();
        for block in located.blocks {
            for node in block.locs {
                *hosts.entry(node.id.host_name).or_default() += block.b.num_bytes.unwrap_or(0);
            }
        }
        Ok(hosts)
    }

    async fn call_idempotent<Req: Message, Resp: Message + Default>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        deadline: Instant,
    ) -> Result<Resp, RpcError> {
        let safety = Safety::Idempotent;
        self.channel.call(method, request, deadline, safety).await
    }
}

/// Fetches the delegation tokens of any number of file systems, all at once, each under the alias
/// that Hadoop gives it. Insecure ones have none.
pub async fn fetch_tokens(
    config: &Config,
    file_systems: &[String],
    identity: &Identity,
    renewer: &str,
    deadline: Instant,
) -> Result<Credentials, TokensError> {
    let mut asked = JoinSet::new();
    for file_system in file_systems {
        let namenodes = NameNodes::from_config(config, file_system, identity.clone());
        let file_system = file_system.clone();
        let namenodes = match namenodes {
            Ok(namenodes) => namenodes,
            Err(source) => {
                return Err(TokensError::Setup { file_system, source });
            }
        };
        let renewer = renewer.to_owned();
        asked.spawn(async move {
            let token = namenodes.delegation_token(&renewer, deadline).await;
            token.map_err(|source| TokensError::Rpc { file_system, source })
        });
    }
    let mut credentials = Credentials::default();
    for token in asked.join_all().await {
        if let Some(token) = token? {
            credentials.add(token.service.clone(), token);
        }
    }
    Ok(credentials)
}

/// What follows the `//` in a URL.
fn authority(file_system: &str) -> &str {
    let rest = match file_system.split_once("://") {
        Some((_, rest)) => rest,
        None => file_system,
    };
    rest.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    #[tokio::test]
    async fn tokens_are_for_the_name_or_for_the_address() {
        let environment = Environment::default().with_variable("USER", "alice");
        let mut config = Config::defaults(environment);
        for (key, value) in [
            ("dfs.nameservices", "here"),
            ("dfs.ha.namenodes.here", "a,b"),
            ("dfs.namenode.rpc-address.here.a", "127.0.0.1:1"),
            ("dfs.namenode.rpc-address.here.b", "127.0.0.2:1"),
            ("fs.defaultFS", "hdfs://127.0.0.3"),
        ] {
            config.set(key, value, "a test");
        }
        for (file_system, service) in [
            ("hdfs://here", "ha-hdfs:here"),
            ("here", "ha-hdfs:here"),
            ("hdfs://127.0.0.4:9/path", "127.0.0.4:9"),
            ("", "127.0.0.3:8020"),
        ] {
            let identity = Identity::from_config(&config).unwrap();
            let namenodes = NameNodes::from_config(&config, file_system, identity).unwrap();
            assert_eq!(namenodes.token_service().await, service, "{file_system}");
        }
        config.set("fs.defaultFS", "hdfs://here", "a test");
        let namenodes = NameNodes::from_config(&config, "", Identity::simple("alice")).unwrap();
        assert_eq!(namenodes.token_service().await, "ha-hdfs:here");
    }

    #[tokio::test]
    async fn every_spelling_of_a_server_is_known() {
        let spellings = async |name: Option<&str>| {
            let addresses = vec![Address::new("localhost", 8020)];
            let (name, identity) = (name.map(str::to_owned), Identity::simple("alice"));
            let namenodes = NameNodes::new(addresses, name, identity, Options::default());
            namenodes.unwrap().token_services().await
        };
        let both = ["127.0.0.1:8020", "localhost:8020"];
        assert_eq!(spellings(None).await, both);
        let three = ["127.0.0.1:8020", "ha-hdfs:here", "localhost:8020"];
        assert_eq!(spellings(Some("here")).await, three);
    }
}
