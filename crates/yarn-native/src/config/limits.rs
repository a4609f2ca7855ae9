//! Cluster limits: sizes, times and enabled features.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::address::Address;

/// Maximum number of resource types in a configuration.
const TYPES_MAX: usize = 256;

/// Settings of a resource type other than memory and vcores, such as `yarn.io/gpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTypeSettings {
    /// Name.
    pub name: String,
    /// Unit, such as `Gi`; empty for countable resources.
    pub units: String,
    /// Minimum per container, if configured.
    pub minimum: Option<u64>,
    /// Maximum per container, if configured.
    pub maximum: Option<u64>,
}

/// Component that handles placement constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementHandler {
    /// Constraints are disabled: such requests are rejected.
    Disabled,
    /// A processor in front of the scheduler, which can also reject unplaceable requests.
    Processor,
    /// The scheduler itself.
    Scheduler,
}

/// HTTPS policy for ApplicationMaster web pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsPolicy {
    /// HTTP only; no key is provided.
    None,
    /// A key is provided; HTTP is accepted.
    Lenient,
    /// HTTPS is required, with the provided key.
    Strict,
}

/// The timeline service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineService {
    /// Version, such as `1.0` or `2.0`.
    pub version: String,
    /// RPC address.
    pub address: Address,
    /// Web address.
    pub web: Address,
}

impl Config {
    /// Returns the minimum container memory in MiB. The value of the ResourceManager decides and
    /// may differ.
    pub fn memory_mib_min(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.minimum-allocation-mb")
    }

    /// Returns the maximum container memory in MiB.
    pub fn memory_mib_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.maximum-allocation-mb")
    }

    /// Returns the minimum container vcores.
    pub fn vcores_min(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.minimum-allocation-vcores")
    }

    /// Returns the maximum container vcores.
    pub fn vcores_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.maximum-allocation-vcores")
    }

    /// Returns the resource types other than memory and vcores.
    pub fn resource_types(&self) -> Result<Vec<ResourceTypeSettings>, ConfigError> {
        let key = "yarn.resource-types";
        let mut names = self.list(key, TYPES_MAX)?;
        names.retain(|name| name != "memory-mb" && name != "vcores");
        let settings = |name: String| {
            let bound =
                |kind: &str| self.parsed(&format!("{key}.{name}.{kind}-allocation"), value::count);
            let (minimum, maximum) = (bound("minimum")?, bound("maximum")?);
            let units = self.text(&format!("{key}.{name}.units"))?;
            Ok(ResourceTypeSettings { units: units.unwrap_or_default(), name, minimum, maximum })
        };
        names.into_iter().map(settings).collect()
    }

    /// Returns the default number of application attempts.
    pub fn attempts_default(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.am.max-attempts")
    }

    /// Returns the maximum number of application attempts.
    pub fn attempts_max(&self) -> Result<u64, ConfigError> {
        let key = "yarn.resourcemanager.am.global.max-attempts";
        match self.parsed(key, value::count)? {
            Some(number) => Ok(number),
            None => self.attempts_default(),
        }
    }

    /// Returns the maximum number of tags of an application.
    pub fn tags_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.application.max-tags")
    }

    /// Returns the maximum length of a tag.
    pub fn tag_length_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.application.max-tag.length")
    }

    /// Returns the maximum application priority.
    pub fn application_priority_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.cluster.max-application-priority")
    }

    /// Returns the heartbeat timeout of ApplicationMasters.
    pub fn master_expiry(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.am.liveness-monitor.expiry-interval-ms")
    }

    /// Returns the time within which an allocated container must be started.
    pub fn container_start_timeout(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.rm.container-allocation.expiry-interval-ms")
    }

    /// Returns the interval at which the key of AMRM tokens is rolled.
    pub fn master_key_roll_interval(&self) -> Result<Duration, ConfigError> {
        let key = "yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs";
        self.required(key, |text| value::duration(text, "s"))
    }

    /// Returns how long the ResourceManager allocates nothing after a restart.
    pub fn scheduling_wait_after_restart(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms")
    }

    /// Returns whether applications survive a restart of the ResourceManager.
    pub fn resource_manager_recovery_enabled(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.recovery.enabled")
    }

    /// Returns whether running containers survive a restart of the ResourceManager.
    pub fn recovery_keeps_containers(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.work-preserving-recovery.enabled")
    }

    /// Returns the maximum size of the configuration that may be sent along for token renewal.
    pub fn tokens_conf_bytes_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.delegation-token.max-conf-size-bytes")
    }

    /// Returns the interval within which a delegation token of the ResourceManager must be renewed.
    pub fn token_renew_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.delegation.token.renew-interval")
    }

    /// Returns the maximum lifetime of such a token.
    pub fn token_lifetime_max(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.delegation.token.max-lifetime")
    }

    /// Returns whether the ResourceManager fetches new HDFS tokens for applications that outlive
    /// theirs.
    pub fn resource_manager_is_proxy_user(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.proxy-user-privileges.enabled")
    }

    /// Component that handles placement constraints.
    pub fn placement_handler(&self) -> Result<PlacementHandler, ConfigError> {
        let key = "yarn.resourcemanager.placement-constraints.handler";
        self.required(key, |text| match text {
            "disabled" => Ok(PlacementHandler::Disabled),
            "placement-processor" => Ok(PlacementHandler::Processor),
            "scheduler" => Ok(PlacementHandler::Scheduler),
            _ => Err("expected `disabled`, `placement-processor` or `scheduler`".into()),
        })
    }

    /// Returns whether node labels are enabled.
    pub fn node_labels(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.node-labels.enabled")
    }

    /// Returns whether opportunistic containers are enabled.
    pub fn opportunistic_containers(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.opportunistic-container-allocation.enabled")
    }

    /// Returns whether federation is enabled.
    pub fn federation(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.federation.enabled")
    }

    /// Returns whether application access lists are enforced.
    pub fn access_lists(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.acl.enable")
    }

    /// HTTPS policy for ApplicationMaster web pages.
    pub fn https_policy(&self) -> Result<HttpsPolicy, ConfigError> {
        self.required("yarn.resourcemanager.application-https.policy", |text| {
            match text.to_ascii_uppercase().as_str() {
                "NONE" => Ok(HttpsPolicy::None),
                "LENIENT" => Ok(HttpsPolicy::Lenient),
                "STRICT" => Ok(HttpsPolicy::Strict),
                _ => Err("expected `NONE`, `LENIENT` or `STRICT`".into()),
            }
        })
    }

    /// Returns the timeline service, if enabled.
    pub fn timeline(&self) -> Result<Option<TimelineService>, ConfigError> {
        if !self.flag("yarn.timeline-service.enabled")? {
            return Ok(None);
        }
        let address = |key: &str, port| {
            self.required(key, |text| Address::parse(text, port).map_err(|error| error.to_string()))
        };
        let version = self.required("yarn.timeline-service.version", |text| {
            Ok(text.trim_end_matches(['f', 'F']).to_owned())
        })?;
        Ok(Some(TimelineService {
            version,
            address: address("yarn.timeline-service.address", 10200)?,
            web: address("yarn.timeline-service.webapp.address", 8188)?,
        }))
    }
}
