//! HDFS: file systems and the addresses of their NameNodes.

use std::time::Duration;

use super::resource_manager::RetryPolicy;
use super::table::{Config, ConfigError};
use super::value;
use crate::address::Address;
use crate::security::ServerPrincipal;

/// Default port of a NameNode.
const PORT: u16 = 8020;
/// Maximum number of NameNodes of one name service.
const NAMENODES_MAX: usize = 64;
/// Maximum number of name services.
const NAMES_MAX: usize = 256;

/// Addresses of one NameNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameNode {
    /// Id within its name service; `None` for a single NameNode.
    pub id: Option<String>,
    /// RPC address.
    pub rpc: Address,
}

impl Config {
    /// Returns the default file system, such as `hdfs://cluster`.
    pub fn default_fs(&self) -> Result<String, ConfigError> {
        self.required("fs.defaultFS", |text| {
            Ok(match text.contains("://") || text.starts_with("file:") {
                true => text.to_owned(),
                // Old form: the authority alone.
                false => format!("hdfs://{text}"),
            })
        })
    }

    /// Returns the configured name services.
    pub fn nameservices(&self) -> Result<Vec<String>, ConfigError> {
        self.list("dfs.nameservices", NAMES_MAX)
    }

    /// Returns whether the authority of a URL is a name service with several NameNodes. Its tokens
    /// have the service `ha-hdfs:<name>`.
    pub fn is_highly_available(&self, name: &str) -> Result<bool, ConfigError> {
        Ok(!self.namenode_ids(name)?.is_empty())
    }

    fn namenode_ids(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        self.list(&format!("dfs.ha.namenodes.{name}"), NAMENODES_MAX)
    }

    /// Returns the NameNodes behind the authority of a URL, in the order to try them: those of a
    /// name service, otherwise the host and port of the authority.
    pub fn namenodes(&self, authority: &str) -> Result<Vec<NameNode>, ConfigError> {
        let parse = |text: &str| Address::parse(text, PORT).map_err(|error| error.to_string());
        let ids = self.namenode_ids(authority)?;
        if !ids.is_empty() {
            let namenode = |id: String| {
                let key = format!("dfs.namenode.rpc-address.{authority}.{id}");
                let rpc = self.parsed(&key, parse)?.ok_or_else(|| ConfigError::Missing {
                    key,
                    why: format!("required by `dfs.ha.namenodes.{authority}`"),
                })?;
                Ok(NameNode { id: Some(id), rpc })
            };
            return ids.into_iter().map(namenode).collect();
        }
        let is_nameservice = self.nameservices()?.iter().any(|name| name == authority);
        let configured = match is_nameservice {
            true => self.parsed(&format!("dfs.namenode.rpc-address.{authority}"), parse)?,
            false => None,
        };
        let rpc = match configured {
            Some(rpc) => rpc,
            None => parse(authority).map_err(|why| ConfigError::Invalid {
                key: "the authority of the URL".into(),
                value: authority.to_owned(),
                origin: super::Origin::Program("program argument".into()),
                why,
            })?,
        };
        Ok(vec![NameNode { id: None, rpc }])
    }

    /// Returns the NameNodes of [`Config::default_fs`]; none if it is not HDFS.
    pub fn default_namenodes(&self) -> Result<Vec<NameNode>, ConfigError> {
        let url = self.default_fs()?;
        let Some(rest) = url.strip_prefix("hdfs://") else {
            return Ok(Vec::new());
        };
        let authority = rest.split('/').next().unwrap_or_default();
        if !authority.is_empty() {
            return self.namenodes(authority);
        }
        let parse = |text: &str| Address::parse(text, PORT).map_err(|error| error.to_string());
        let rpc = self.parsed("dfs.namenode.rpc-address", parse)?;
        let rpc = rpc.ok_or_else(|| ConfigError::Missing {
            key: "dfs.namenode.rpc-address".into(),
            why: "required because `fs.defaultFS` has no authority".into(),
        })?;
        Ok(vec![NameNode { id: None, rpc }])
    }

    /// Returns the principal required of NameNodes.
    pub fn namenode_principal(&self) -> Result<Option<ServerPrincipal>, ConfigError> {
        self.server_principal("dfs.namenode.kerberos.principal")
    }

    /// Returns the retry and failover policy for NameNodes.
    pub fn namenode_retry_policy(&self) -> Result<RetryPolicy, ConfigError> {
        let attempts = self.required("dfs.client.failover.max.attempts", |text| {
            u32::try_from(value::count(text)?).map_err(|_| "too large".into())
        })?;
        let backoff_initial = self.millis("dfs.client.failover.sleep.base.millis")?;
        let max = self.millis("dfs.client.failover.sleep.max.millis")?;
        Ok(RetryPolicy {
            timeout: None,
            attempts_max: Some(attempts),
            backoff_initial,
            backoff_max: max.max(backoff_initial),
        })
    }

    /// Returns a user's home directory, a path on the default file system.
    pub fn home_directory(&self, user: &str) -> Result<String, ConfigError> {
        self.required("dfs.user.home.dir.prefix", |prefix| {
            Ok(format!("{}/{user}", prefix.trim_end_matches('/')))
        })
    }

    /// Returns the URL of the key server for encryption zones; `None` if not configured.
    pub fn key_provider(&self) -> Result<Option<String>, ConfigError> {
        self.text("hadoop.security.key.provider.path")
    }

    /// Returns the interval within which a NameNode's delegation token must be renewed.
    pub fn hdfs_token_renew_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("dfs.namenode.delegation.token.renew-interval")
    }

    /// Returns the maximum lifetime of such a token.
    pub fn hdfs_token_lifetime_max(&self) -> Result<Duration, ConfigError> {
        self.millis("dfs.namenode.delegation.token.max-lifetime")
    }
}
