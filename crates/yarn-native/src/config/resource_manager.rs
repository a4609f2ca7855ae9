//! The ResourceManager: a single one, or several in a high-availability group.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::address::Address;
use crate::security::ServerPrincipal;

/// Maximum number of ResourceManagers of a cluster.
const MANAGERS_MAX: usize = 32;

/// Initial failover backoff when not configured. Hadoop waits 30 s, which extends a failover of two
/// seconds to half a minute.
const FAILOVER_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum failover backoff when not configured.
const FAILOVER_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Addresses of one ResourceManager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceManager {
    /// Id within the group; `None` for a single ResourceManager.
    pub id: Option<String>,
    /// Client RPC address.
    pub client: Address,
    /// Scheduler RPC address for ApplicationMasters.
    pub scheduler: Address,
    /// Administration RPC address.
    pub admin: Address,
    /// RPC address for NodeManagers.
    pub tracker: Address,
    /// Web address (HTTP).
    pub web: Address,
    /// Web address (HTTPS).
    pub web_secure: Address,
}

/// Retry policy of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Total time to retry; `None` is unlimited.
    pub timeout: Option<Duration>,
    /// Maximum number of attempts; `None` is unlimited.
    pub attempts_max: Option<u32>,
    /// First delay between attempts.
    pub backoff_initial: Duration,
    /// Maximum delay between attempts.
    pub backoff_max: Duration,
}

impl Config {
    /// Returns the ResourceManagers in the order to try them; at least one.
    pub fn resource_managers(&self) -> Result<Vec<ResourceManager>, ConfigError> {
        if !self.flag("yarn.resourcemanager.ha.enabled")? {
            return Ok(vec![self.resource_manager(None)?]);
        }
        let key = "yarn.resourcemanager.ha.rm-ids";
        let mut ids = self.list(key, MANAGERS_MAX)?;
        let mut seen = Vec::new();
        ids.retain(|id| {
            let new = !seen.contains(id);
            seen.push(id.clone());
            new
        });
        if ids.is_empty() {
            return Err(ConfigError::Missing {
                key: key.into(),
                why: "required when `yarn.resourcemanager.ha.enabled` is true".into(),
            });
        }
        ids.iter().map(|id| self.resource_manager(Some(id))).collect()
    }

    fn resource_manager(&self, id: Option<&str>) -> Result<ResourceManager, ConfigError> {
        let address = |service: &str, port: u16| self.manager_address(service, id, port);
        Ok(ResourceManager {
            id: id.map(str::to_owned),
            client: address("address", 8032)?,
            scheduler: address("scheduler.address", 8030)?,
            admin: address("admin.address", 8033)?,
            tracker: address("resource-tracker.address", 8031)?,
            web: address("webapp.address", 8088)?,
            web_secure: address("webapp.https.address", 8090)?,
        })
    }

    fn manager_address(
        &self,
        service: &str,
        id: Option<&str>,
        port: u16,
    ) -> Result<Address, ConfigError> {
        let parse = |text: &str| Address::parse(text, port).map_err(|error| error.to_string());
        let Some(id) = id else {
            return self.required(&format!("yarn.resourcemanager.{service}"), parse);
        };
        let key = format!("yarn.resourcemanager.{service}.{id}");
        if let Some(address) = self.parsed(&key, parse)? {
            return Ok(address);
        }
        let host = self.text(&format!("yarn.resourcemanager.hostname.{id}"))?;
        let host = host.ok_or_else(|| ConfigError::Missing {
            key,
            why: format!("set it or `yarn.resourcemanager.hostname.{id}`"),
        })?;
        Ok(Address::new(host, port))
    }

    /// Returns the cluster id shared by the ResourceManagers of a high-availability group.
    pub fn cluster_id(&self) -> Result<Option<String>, ConfigError> {
        self.text("yarn.resourcemanager.cluster-id")
    }

    /// Returns the principal required of the ResourceManager.
    pub fn resource_manager_principal(&self) -> Result<Option<ServerPrincipal>, ConfigError> {
        self.server_principal("yarn.resourcemanager.principal")
    }

    /// Returns the retry and failover policy for ResourceManagers.
    pub fn resource_manager_retry_policy(&self) -> Result<RetryPolicy, ConfigError> {
        let millis = |text: &str| value::duration(text, "ms");
        let base = self.parsed("yarn.client.failover-sleep-base-ms", millis)?;
        let max = self.parsed("yarn.client.failover-sleep-max-ms", millis)?;
        let backoff_initial = base.unwrap_or(FAILOVER_BACKOFF);
        Ok(RetryPolicy {
            timeout: self.millis_or_unlimited("yarn.resourcemanager.connect.max-wait.ms")?,
            attempts_max: self.parsed("yarn.client.failover-max-attempts", |text| {
                u32::try_from(value::count(text)?).map_err(|_| "too large".into())
            })?,
            backoff_initial,
            backoff_max: max.unwrap_or(FAILOVER_BACKOFF_MAX).max(backoff_initial),
        })
    }

    /// Returns the interval at which Hadoop's own clients retry a single ResourceManager.
    pub fn resource_manager_retry_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.connect.retry-interval.ms")
    }

    /// Returns the polling interval after a submission.
    pub fn submit_poll_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.client.application-client-protocol.poll-interval-ms")
    }

    /// Returns the polling timeout after a submission; `None` is unlimited.
    pub fn submit_poll_timeout(&self) -> Result<Option<Duration>, ConfigError> {
        self.millis_or_unlimited("yarn.client.application-client-protocol.poll-timeout-ms")
    }

    /// Returns whether web pages are served by HTTPS.
    pub fn web_uses_https(&self) -> Result<bool, ConfigError> {
        self.required("yarn.http.policy", |text| match text.to_ascii_uppercase().as_str() {
            "HTTP_ONLY" => Ok(false),
            "HTTPS_ONLY" => Ok(true),
            _ => Err("expected `HTTP_ONLY` or `HTTPS_ONLY`".into()),
        })
    }

    /// Returns the web addresses of the ResourceManagers, and whether they use HTTPS.
    pub fn web_addresses(&self) -> Result<(bool, Vec<Address>), ConfigError> {
        let secure = self.web_uses_https()?;
        let addresses = self.resource_managers()?.into_iter();
        let pick = |manager: ResourceManager| match secure {
            true => manager.web_secure,
            false => manager.web,
        };
        Ok((secure, addresses.map(pick).collect()))
    }

    /// Returns the standalone web proxy for ApplicationMaster pages; `None` if the ResourceManager
    /// proxies them.
    pub fn web_proxy(&self) -> Result<Option<Address>, ConfigError> {
        self.parsed("yarn.web-proxy.address", |text| {
            Address::parse(text, 8088).map_err(|error| error.to_string())
        })
    }

    /// Returns the hosts allowed to fetch an ApplicationMaster's page: the proxy, otherwise every
    /// ResourceManager.
    pub fn web_proxy_hosts(&self) -> Result<Vec<String>, ConfigError> {
        if let Some(proxy) = self.web_proxy()? {
            return Ok(vec![proxy.host]);
        }
        let addresses = self.web_addresses()?.1.into_iter();
        Ok(addresses.map(|address| address.host).collect())
    }

    /// Returns the proxy's timeout for an ApplicationMaster's page; `None` is unlimited.
    pub fn web_proxy_timeout(&self) -> Result<Option<Duration>, ConfigError> {
        match self.flag("yarn.resourcemanager.proxy.timeout.enabled")? {
            true => Ok(Some(self.millis("yarn.resourcemanager.proxy.connection.timeout")?)),
            false => Ok(None),
        }
    }
}
