//! What the cluster allows: sizes, times, and which features are switched on.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::address::Address;

/// Kinds of resources a cluster may count; a handful are usual.
const TYPES_MAX: usize = 256;

/// A kind of resource beside memory and cores, such as `yarn.io/gpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTypeSettings {
    /// Its name.
    pub name: String,
    /// Its unit, such as `Gi`; empty for things that are counted.
    pub units: String,
    /// The least a container gets of it, where somebody said so.
    pub minimum: Option<u64>,
    /// The most a container gets of it, where somebody said so.
    pub maximum: Option<u64>,
}

/// Who places containers by constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementHandler {
    /// Nobody: such requests are refused.
    Disabled,
    /// A step before the scheduler, which can also reject what cannot be placed.
    Processor,
    /// The scheduler itself.
    Scheduler,
}

/// Whether a master's page must be served by https.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsPolicy {
    /// No, and no key is given for it.
    None,
    /// A key is given; http is accepted.
    Lenient,
    /// Yes, with the key that is given.
    Strict,
}

/// The timeline service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineService {
    /// Its version, such as `1.0` or `2.0`.
    pub version: String,
    /// Where it answers calls.
    pub address: Address,
    /// Where it serves web pages.
    pub web: Address,
}

impl Config {
    /// Memory of the smallest container, in MiB. As far as this machine knows; the ResourceManager decides.
    pub fn memory_mib_min(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.minimum-allocation-mb")
    }

    /// Memory of the largest container, in MiB.
    pub fn memory_mib_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.maximum-allocation-mb")
    }

    /// Cores of the smallest container.
    pub fn vcores_min(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.minimum-allocation-vcores")
    }

    /// Cores of the largest container.
    pub fn vcores_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.scheduler.maximum-allocation-vcores")
    }

    /// Kinds of resources beside memory and cores.
    pub fn resource_types(&self) -> Result<Vec<ResourceTypeSettings>, ConfigError> {
        let key = "yarn.resource-types";
        let mut names = self.list(key, TYPES_MAX)?;
        names.retain(|name| name != "memory-mb" && name != "vcores");
        let one = |name: String| {
            let bound = |which: &str| {
                self.parsed(&format!("{key}.{name}.{which}-allocation"), value::count)
            };
            let (minimum, maximum) = (bound("minimum")?, bound("maximum")?);
            let units = self.text(&format!("{key}.{name}.units"))?;
            Ok(ResourceTypeSettings { units: units.unwrap_or_default(), name, minimum, maximum })
        };
        names.into_iter().map(one).collect()
    }

    /// Attempts an application gets when it does not say how many.
    pub fn attempts_default(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.am.max-attempts")
    }

    /// Attempts an application can ask for at most.
    pub fn attempts_max(&self) -> Result<u64, ConfigError> {
        let key = "yarn.resourcemanager.am.global.max-attempts";
        match self.parsed(key, value::count)? {
            Some(number) => Ok(number),
            None => self.attempts_default(),
        }
    }

    /// Tags an application may have.
    pub fn tags_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.application.max-tags")
    }

    /// Characters a tag may have.
    pub fn tag_length_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.application.max-tag.length")
    }

    /// The highest priority of an application.
    pub fn application_priority_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.cluster.max-application-priority")
    }

    /// After how long a silent master counts as dead.
    pub fn master_expiry(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.am.liveness-monitor.expiry-interval-ms")
    }

    /// Within how long a granted container must be started.
    pub fn container_start_timeout(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.rm.container-allocation.expiry-interval-ms")
    }

    /// How often the key of masters' tokens changes.
    pub fn master_key_roll_interval(&self) -> Result<Duration, ConfigError> {
        let key = "yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs";
        self.required(key, |text| value::duration(text, "s"))
    }

    /// How long after its restart the ResourceManager grants nothing.
    pub fn scheduling_wait_after_restart(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms")
    }

    /// Whether applications outlive a restart of the ResourceManager.
    pub fn resource_manager_recovery_enabled(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.recovery.enabled")
    }

    /// Whether their containers do, too.
    pub fn recovery_keeps_containers(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.work-preserving-recovery.enabled")
    }

    /// Bytes of a configuration sent along for the renewal of tokens.
    pub fn tokens_conf_bytes_max(&self) -> Result<u64, ConfigError> {
        self.number("yarn.resourcemanager.delegation-token.max-conf-size-bytes")
    }

    /// How often a delegation token of the ResourceManager must be renewed.
    pub fn token_renew_interval(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.delegation.token.renew-interval")
    }

    /// How long such a token lives at most.
    pub fn token_lifetime_max(&self) -> Result<Duration, ConfigError> {
        self.millis("yarn.resourcemanager.delegation.token.max-lifetime")
    }

    /// Whether the ResourceManager gets new HDFS tokens for applications that outlive theirs.
    pub fn resource_manager_is_proxy_user(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.proxy-user-privileges.enabled")
    }

    /// Who places containers by constraints.
    pub fn placement_handler(&self) -> Result<PlacementHandler, ConfigError> {
        let key = "yarn.resourcemanager.placement-constraints.handler";
        self.required(key, |text| match text {
            "disabled" => Ok(PlacementHandler::Disabled),
            "placement-processor" => Ok(PlacementHandler::Processor),
            "scheduler" => Ok(PlacementHandler::Scheduler),
            _ => Err("expected `disabled`, `placement-processor` or `scheduler`".into()),
        })
    }

    /// Whether nodes have labels.
    pub fn node_labels(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.node-labels.enabled")
    }

    /// Whether containers can be opportunistic.
    pub fn opportunistic_containers(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.resourcemanager.opportunistic-container-allocation.enabled")
    }

    /// Whether clusters are joined to one.
    pub fn federation(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.federation.enabled")
    }

    /// Whether the lists of who may see and change an application are looked at.
    pub fn access_lists(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.acl.enable")
    }

    /// Whether a master's page must be served by https.
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

    /// The timeline service, where there is one.
    pub fn timeline(&self) -> Result<Option<TimelineService>, ConfigError> {
        if !self.flag("yarn.timeline-service.enabled")? {
            return Ok(None);
        }
        let at = |key: &str, port| {
            self.required(key, |text| Address::parse(text, port).map_err(|error| error.to_string()))
        };
        let version = self.required("yarn.timeline-service.version", |text| {
            Ok(text.trim_end_matches(['f', 'F']).to_owned())
        })?;
        Ok(Some(TimelineService {
            version,
            address: at("yarn.timeline-service.address", 10200)?,
            web: at("yarn.timeline-service.webapp.address", 8188)?,
        }))
    }
}
