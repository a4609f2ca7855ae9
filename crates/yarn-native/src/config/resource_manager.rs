//! The ResourceManager: one, or several that take over from each other.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::address::Address;
use crate::security::ServerPrincipal;

/// Managers one cluster may have; two or three are usual.
const MANAGERS_MAX: usize = 32;

/// How long to wait between managers when nobody configured it. Hadoop then waits 30 s, which makes a
/// failover of two seconds take half a minute.
const FAILOVER_BACKOFF: Duration = Duration::from_millis(500);
/// The same after many failures.
const FAILOVER_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Where one ResourceManager listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceManager {
    /// Its id among several; `None` when there is one.
    pub id: Option<String>,
    /// For clients.
    pub client: Address,
    /// For masters.
    pub scheduler: Address,
    /// For administrators.
    pub admin: Address,
    /// For NodeManagers.
    pub tracker: Address,
    /// Its web pages.
    pub web: Address,
    /// Its web pages by https.
    pub web_secure: Address,
}

/// How long and how often to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Give up after this long; `None` is never.
    pub timeout: Option<Duration>,
    /// Give up after so many failures; `None` when only the time counts.
    pub attempts_max: Option<u32>,
    /// The first pause; later ones may be longer.
    pub backoff_initial: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
}

impl Config {
    /// The ResourceManagers, in the order in which to try them. There is at least one.
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
                why: "with `yarn.resourcemanager.ha.enabled` it names the managers".into(),
            });
        }
        ids.iter().map(|id| self.resource_manager(Some(id))).collect()
    }

    fn resource_manager(&self, id: Option<&str>) -> Result<ResourceManager, ConfigError> {
        let at = |service: &str, port: u16| self.manager_address(service, id, port);
        Ok(ResourceManager {
            id: id.map(str::to_owned),
            client: at("address", 8032)?,
            scheduler: at("scheduler.address", 8030)?,
            admin: at("admin.address", 8033)?,
            tracker: at("resource-tracker.address", 8031)?,
            web: at("webapp.address", 8088)?,
            web_secure: at("webapp.https.address", 8090)?,
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
            why: format!("nor is `yarn.resourcemanager.hostname.{id}`"),
        })?;
        Ok(Address::new(host, port))
    }

    /// The name of the cluster, which managers that take over from each other share.
    pub fn cluster_id(&self) -> Result<Option<String>, ConfigError> {
        self.text("yarn.resourcemanager.cluster-id")
    }

    /// Who the ResourceManager must be.
    pub fn resource_manager_principal(&self) -> Result<Option<ServerPrincipal>, ConfigError> {
        self.server_principal("yarn.resourcemanager.principal")
    }

    /// How to try a ResourceManager again, or the next one.
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

    /// The pause Hadoop's own clients make between tries of a single ResourceManager.
    pub fn resource_manager_retry_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.connect.retry-interval.ms")
    }

    /// How often to ask for the state of an application that was just submitted.
    pub fn submit_poll_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.client.application-client-protocol.poll-interval-ms")
    }

    /// How long to ask for it; `None` is without end.
    pub fn submit_poll_timeout(&self) -> Result<Option<Duration>, ConfigError> {
        self.millis_or_unlimited("yarn.client.application-client-protocol.poll-timeout-ms")
    }

    /// Whether web pages are served by https.
    pub fn web_uses_https(&self) -> Result<bool, ConfigError> {
        self.required("yarn.http.policy", |text| match text.to_ascii_uppercase().as_str() {
            "HTTP_ONLY" => Ok(false),
            "HTTPS_ONLY" => Ok(true),
            _ => Err("expected `HTTP_ONLY` or `HTTPS_ONLY`".into()),
        })
    }

    /// The web addresses of the ResourceManagers, and whether they speak https.
    pub fn web_addresses(&self) -> Result<(bool, Vec<Address>), ConfigError> {
        let secure = self.web_uses_https()?;
        let addresses = self.resource_managers()?.into_iter();
        let pick = |manager: ResourceManager| match secure {
            true => manager.web_secure,
            false => manager.web,
        };
        Ok((secure, addresses.map(pick).collect()))
    }

    /// Where masters' pages are reached through, if not through the ResourceManager itself.
    pub fn web_proxy(&self) -> Result<Option<Address>, ConfigError> {
        self.parsed("yarn.web-proxy.address", |text| {
            Address::parse(text, 8088).map_err(|error| error.to_string())
        })
    }

    /// The hosts that may fetch a master's page: the proxy, else every ResourceManager.
    pub fn web_proxy_hosts(&self) -> Result<Vec<String>, ConfigError> {
        if let Some(proxy) = self.web_proxy()? {
            return Ok(vec![proxy.host]);
        }
        let addresses = self.web_addresses()?.1.into_iter();
        Ok(addresses.map(|address| address.host).collect())
    }

    /// How long the proxy waits for a master's page; `None` is without end.
    pub fn web_proxy_timeout(&self) -> Result<Option<Duration>, ConfigError> {
        match self.flag("yarn.resourcemanager.proxy.timeout.enabled")? {
            true => Ok(Some(self.millis("yarn.resourcemanager.proxy.connection.timeout")?)),
            false => Ok(None),
        }
    }
}
