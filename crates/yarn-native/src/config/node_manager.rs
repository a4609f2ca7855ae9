//! NodeManagers: connection settings and container settings.

use std::time::Duration;

use super::resource_manager::RetryPolicy;
use super::table::{Config, ConfigError};
use crate::address::Address;
use crate::security::ServerPrincipal;

/// Maximum length of a list of variables or runtimes.
const NAMES_MAX: usize = 1024;

/// Settings a NodeManager applies to its containers. Exact when read in a container on that node;
/// when read on the client they only approximate the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Variables that containers inherit from the NodeManager unless they set them.
    pub inherited_variables: Vec<String>,
    /// `HOME` of containers.
    pub user_home: String,
    /// Delay between SIGTERM and SIGKILL.
    pub kill_delay: Duration,
    /// Copies the launch script, with its environment, into the logs.
    pub copies_script_to_logs: bool,
    /// Allowed container runtimes, such as `docker`.
    pub runtimes: Vec<String>,
    /// Kills containers that exceed their physical memory.
    pub checks_memory: bool,
    /// Kills containers that exceed their virtual memory.
    pub checks_address_space: bool,
    /// Keeps containers across a restart of the NodeManager.
    pub recovery_enabled: bool,
}

impl Config {
    /// Returns the settings NodeManagers apply to containers.
    pub fn node(&self) -> Result<NodeSettings, ConfigError> {
        Ok(NodeSettings {
            inherited_variables: self.list("yarn.nodemanager.env-whitelist", NAMES_MAX)?,
            user_home: self
                .required("yarn.nodemanager.user-home-dir", |text| Ok(text.to_owned()))?,
            kill_delay: self.millis("yarn.nodemanager.sleep-delay-before-sigkill.ms")?,
            copies_script_to_logs: self
                .flag("yarn.nodemanager.log-container-debug-info.enabled")?,
            runtimes: self.list("yarn.nodemanager.runtime.linux.allowed-runtimes", NAMES_MAX)?,
            checks_memory: self.flag("yarn.nodemanager.pmem-check-enabled")?,
            checks_address_space: self.flag("yarn.nodemanager.vmem-check-enabled")?,
            recovery_enabled: self.flag("yarn.nodemanager.recovery.enabled")?,
        })
    }

    /// Returns the retry policy for NodeManagers.
    pub fn node_manager_retry_policy(&self) -> Result<RetryPolicy, ConfigError> {
        let backoff_initial = self.millis("yarn.client.nodemanager-connect.retry-interval-ms")?;
        let key = "yarn.client.nodemanager-connect.max-wait-ms";
        Ok(RetryPolicy {
            timeout: self.millis_or_unlimited(key)?,
            attempts_max: None,
            backoff_initial,
            backoff_max: backoff_initial,
        })
    }

    /// Returns the principal required of NodeManagers. It matters only for web pages: RPC uses
    /// NodeManager tokens.
    pub fn node_manager_principal(&self) -> Result<Option<ServerPrincipal>, ConfigError> {
        self.server_principal("yarn.nodemanager.principal")
    }

    /// Returns the address of the AMRM proxy on nodes (federation); `None` if disabled.
    pub fn scheduler_proxy(&self) -> Result<Option<Address>, ConfigError> {
        if !self.flag("yarn.nodemanager.amrmproxy.enabled")? {
            return Ok(None);
        }
        let parse = |text: &str| Address::parse(text, 8049).map_err(|error| error.to_string());
        self.required("yarn.nodemanager.amrmproxy.address", parse).map(Some)
    }

    /// Returns the heartbeat interval of NodeManagers. Up to Hadoop 3.4 containers are allocated
    /// only on heartbeats.
    pub fn node_heartbeat_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms")
    }

    /// Returns the heartbeat timeout of NodeManagers.
    pub fn node_expiry(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.nm.liveness-monitor.expiry-interval-ms")
    }
}
