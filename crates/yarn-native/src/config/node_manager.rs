//! NodeManagers: how to reach them, and what they do to containers.

use std::time::Duration;

use super::resource_manager::RetryPolicy;
use super::table::{Config, ConfigError};
use crate::address::Address;
use crate::security::ServerPrincipal;

/// Variables or runtimes one list may name.
const NAMES_MAX: usize = 1024;

/// What a node does to its containers. Read where the client runs it is a guess about the nodes, and read
/// in a container it is a fact about that node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Variables that containers inherit from the node unless they set them.
    pub inherited_variables: Vec<String>,
    /// `HOME` of containers.
    pub user_home: String,
    /// The time from SIGTERM to SIGKILL.
    pub kill_delay: Duration,
    /// Whether the launch script, with its environment, is copied into the logs.
    pub copies_script_to_logs: bool,
    /// The runtimes containers may choose, such as `docker`.
    pub runtimes: Vec<String>,
    /// Whether a container is killed for its physical memory.
    pub checks_memory: bool,
    /// Whether a container is killed for its address space.
    pub checks_address_space: bool,
    /// Whether containers outlive a restart of their NodeManager.
    pub recovery_enabled: bool,
}

impl Config {
    /// What nodes do to their containers.
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

    /// How to try a NodeManager again.
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

    /// Who NodeManagers must be. Masters prove themselves to them by token, and need it only for web pages.
    pub fn node_manager_principal(&self) -> Result<Option<ServerPrincipal>, ConfigError> {
        self.server_principal("yarn.nodemanager.principal")
    }

    /// Where masters speak to the scheduler on nodes that have a proxy for it (federation); `None` without.
    pub fn scheduler_proxy(&self) -> Result<Option<Address>, ConfigError> {
        if !self.flag("yarn.nodemanager.amrmproxy.enabled")? {
            return Ok(None);
        }
        let parse = |text: &str| Address::parse(text, 8049).map_err(|error| error.to_string());
        self.required("yarn.nodemanager.amrmproxy.address", parse).map(Some)
    }

    /// How often a node reports; up to Hadoop 3.4 nothing is granted in between.
    pub fn node_heartbeat_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms")
    }

    /// After how long a silent node counts as lost.
    pub fn node_expiry(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.nm.liveness-monitor.expiry-interval-ms")
    }
}
