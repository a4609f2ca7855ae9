//! HDFS: which file systems there are, and where their NameNodes listen.

use std::time::Duration;

use super::resource_manager::RetryPolicy;
use super::table::{Config, ConfigError};
use super::value;
use crate::address::Address;
use crate::security::ServerPrincipal;

/// The port of a NameNode when none is given.
const PORT: u16 = 8020;
/// NameNodes one name may stand for.
const NAMENODES_MAX: usize = 64;
/// Names of file systems in one configuration.
const NAMES_MAX: usize = 256;

/// Where one NameNode listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameNode {
    /// Its id among those of its name service; `None` when there is one.
    pub id: Option<String>,
    /// For calls.
    pub rpc: Address,
}

impl Config {
    /// The file system of paths that name none, such as `hdfs://cluster`.
    pub fn default_fs(&self) -> Result<String, ConfigError> {
        self.required("fs.defaultFS", |text| {
            Ok(match text.contains("://") || text.starts_with("file:") {
                true => text.to_owned(),
                // An old form: the authority alone.
                false => format!("hdfs://{text}"),
            })
        })
    }

    /// The names that stand for one or more NameNodes.
    pub fn nameservices(&self) -> Result<Vec<String>, ConfigError> {
        self.list("dfs.nameservices", NAMES_MAX)
    }

    /// Whether an authority in a URL is such a name with several NameNodes behind it. Tokens for it are then
    /// for the service `ha-hdfs:<name>`.
    pub fn is_highly_available(&self, name: &str) -> Result<bool, ConfigError> {
        Ok(!self.namenode_ids(name)?.is_empty())
    }

    fn namenode_ids(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        self.list(&format!("dfs.ha.namenodes.{name}"), NAMENODES_MAX)
    }

    /// The NameNodes behind the authority of a URL, in the order in which to try them: those of a name
    /// service, else the host and port it says.
    pub fn namenodes(&self, authority: &str) -> Result<Vec<NameNode>, ConfigError> {
        let parse = |text: &str| Address::parse(text, PORT).map_err(|error| error.to_string());
        let ids = self.namenode_ids(authority)?;
        if !ids.is_empty() {
            let one = |id: String| {
                let key = format!("dfs.namenode.rpc-address.{authority}.{id}");
                let rpc = self.parsed(&key, parse)?.ok_or_else(|| ConfigError::Missing {
                    key,
                    why: format!("`dfs.ha.namenodes.{authority}` names it"),
                })?;
                Ok(NameNode { id: Some(id), rpc })
            };
            return ids.into_iter().map(one).collect();
        }
        let named = self.nameservices()?.iter().any(|name| name == authority);
        let only = match named {
            true => self.parsed(&format!("dfs.namenode.rpc-address.{authority}"), parse)?,
            false => None,
        };
        let rpc = match only {
            Some(rpc) => rpc,
            None => parse(authority).map_err(|why| ConfigError::Invalid {
                key: "the authority of the URL".into(),
                value: authority.to_owned(),
                origin: super::Origin::Program("as given".into()),
                why,
            })?,
        };
        Ok(vec![NameNode { id: None, rpc }])
    }

    /// The NameNodes of [`Config::default_fs`]; none when it is not HDFS.
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
            why: "`fs.defaultFS` names no NameNode".into(),
        })?;
        Ok(vec![NameNode { id: None, rpc }])
    }

    /// Who NameNodes must be.
    pub fn namenode_principal(&self) -> Result<Option<ServerPrincipal>, ConfigError> {
        self.server_principal("dfs.namenode.kerberos.principal")
    }

    /// How to try a NameNode again, or the next one.
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

    /// A user's home directory, a path on the default file system.
    pub fn home_directory(&self, user: &str) -> Result<String, ConfigError> {
        self.required("dfs.user.home.dir.prefix", |prefix| {
            Ok(format!("{}/{user}", prefix.trim_end_matches('/')))
        })
    }

    /// Where keys of encrypted directories are kept, as a URL of the key server; `None` without one.
    pub fn key_provider(&self) -> Result<Option<String>, ConfigError> {
        self.text("hadoop.security.key.provider.path")
    }

    /// How often a NameNode's delegation token must be renewed.
    pub fn hdfs_token_renew_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("dfs.namenode.delegation.token.renew-interval")
    }

    /// How long such a token lives at most.
    pub fn hdfs_token_lifetime_max(&self) -> Result<Duration, ConfigError> {
        self.millis("dfs.namenode.delegation.token.max-lifetime")
    }
}
