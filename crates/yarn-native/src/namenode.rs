//! NameNode client for launchers: delegation tokens and block locations.
//!
//! Reading and writing files is left to an HDFS client; the tokens let containers use one.

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

/// Prefix of the token service of a name service with several NameNodes.
const HA_SERVICE_PREFIX: &str = "ha-hdfs:";
/// Timeout of address lookups without a deadline.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Client of the NameNodes of one file system, with failover to the active one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NameNodes {
    channel: Channel,
    /// Name service, if it has several NameNodes.
    name: Option<String>,
    /// Token services contain IP addresses instead of host names.
    services_by_ip: bool,
}

/// Error fetching delegation tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The configuration has no NameNode for the file system.
    #[error("cannot find the NameNodes of `{file_system}`: {source}")]
    Setup {
        /// The file system.
        file_system: String,
        /// The cause.
        source: SetupError,
    },
    /// The NameNode call failed.
    #[error("cannot fetch a token for `{file_system}`: {source}")]
    Rpc {
        /// The file system.
        file_system: String,
        /// The cause.
        source: RpcError,
    },
}

impl NameNodes {
    /// Creates a client for the NameNodes at `addresses`. Several NameNodes need their name service
    /// `name`, as in `hdfs://name`, because their tokens are issued for it.
    pub fn new(
        addresses: Vec<Address>,
        name: Option<String>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        let channel = Channel::new(Protocol::CLIENT_NAMENODE, addresses, identity, options)?;
        Ok(Self { channel, name, services_by_ip: true })
    }

    /// Creates a client for a file system, given as a URL or as its authority: a name service of
    /// the configuration, or a host with an optional port. An empty string selects the default file
    /// system.
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
            authority => authority,
        };
        let (found, name) = match authority {
            "" => (config.default_namenodes()?, None),
            some => {
                let has_several = config.is_highly_available(some)?;
                (config.namenodes(some)?, has_several.then(|| some.to_owned()))
            }
        };
        let addresses = found.into_iter().map(|namenode| namenode.rpc).collect();
        let options = config.namenode_options()?;
        let services_by_ip = config.token_services_use_ip()?;
        Ok(Self { services_by_ip, ..Self::new(addresses, name, identity, options)? })
    }

    /// Fetches a delegation token of the caller, renewable by `renewer`. An insecure NameNode
    /// issues none and needs none.
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

    /// Returns the service of this file system's tokens: `ha-hdfs:name` or `10.0.0.1:8020`. A host
    /// that is not resolved within twenty seconds keeps its name.
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

    /// Returns all services a client may look up for this file system: the one Hadoop assigns, and
    /// each NameNode by IP address and by configured host name. Clients that compare a token's
    /// service with the authority of a URL literally, such as `hdfs-native`, need a copy of the
    /// token per service ([`Credentials::copy_to_services`]).
    pub async fn token_services(&self) -> Vec<String> {
        let deadline = Instant::now() + LOOKUP_TIMEOUT;
        let mut services = vec![self.token_service_before(deadline).await];
        for address in self.channel.addresses() {
            for by_ip in [true, false] {
                let address = std::iter::once(address);
                services.push(service_names(address, by_ip, deadline).await);
            }
        }
        services.sort();
        services.dedup();
        services
    }

    /// Renews a token and returns its new expiry time. The caller must be its renewer.
    pub async fn renew_token(
        &self,
        token: &Token,
        deadline: Instant,
    ) -> Result<SystemTime, RpcError> {
        let request = RenewDelegationTokenRequestProto { token: token.proto() };
        let answer = self.call_idempotent(&method::RENEW_DELEGATION_TOKEN, &request, deadline);
        Ok(timestamp::of_millis(answer.await?.new_expiry_time))
    }

    /// Cancels a token. The caller must be its owner or renewer.
    pub async fn cancel_token(&self, token: &Token, deadline: Instant) -> Result<(), RpcError> {
        let request = CancelDelegationTokenRequestProto { token: token.proto() };
        self.call_idempotent(&method::CANCEL_DELEGATION_TOKEN, &request, deadline).await?;
        Ok(())
    }

    /// Returns the URL of the key server for encryption zones; `None` if there is none.
    pub async fn key_provider(&self, deadline: Instant) -> Result<Option<String>, RpcError> {
        let request = GetServerDefaultsRequestProto {};
        let answer = self.call_idempotent(&method::GET_SERVER_DEFAULTS, &request, deadline);
        let provider = answer.await?.server_defaults.key_provider_uri;
        Ok(provider.filter(|url| !url.is_empty()))
    }

    /// Returns the number of bytes of a file per host, counting every replica. Empty if the file
    /// does not exist.
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

/// Fetches the delegation tokens of several file systems concurrently, each under Hadoop's alias.
/// Insecure file systems have none.
pub async fn fetch_tokens(
    config: &Config,
    file_systems: &[String],
    identity: &Identity,
    renewer: &str,
    deadline: Instant,
) -> Result<Credentials, TokensError> {
    let mut fetches = JoinSet::new();
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
        fetches.spawn(async move {
            let token = namenodes.delegation_token(&renewer, deadline).await;
            token.map_err(|source| TokensError::Rpc { file_system, source })
        });
    }
    let mut credentials = Credentials::default();
    for token in fetches.join_all().await {
        if let Some(token) = token? {
            credentials.add(token.service.clone(), token);
        }
    }
    Ok(credentials)
}

/// Returns the authority of a URL.
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
    async fn token_service_is_the_nameservice_or_the_address() {
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
    async fn token_services_cover_all_addresses_and_names() {
        let services = async |name: Option<&str>| {
            let addresses = vec![Address::new("localhost", 8020)];
            let (name, identity) = (name.map(str::to_owned), Identity::simple("alice"));
            let namenodes = NameNodes::new(addresses, name, identity, Options::default());
            namenodes.unwrap().token_services().await
        };
        let both = ["127.0.0.1:8020", "localhost:8020"];
        assert_eq!(services(None).await, both);
        let three = ["127.0.0.1:8020", "ha-hdfs:here", "localhost:8020"];
        assert_eq!(services(Some("here")).await, three);
    }
}
