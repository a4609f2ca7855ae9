//! Registration and finish of a master.

use std::collections::BTreeMap;

use crate::proto::yarn::{
    FinishApplicationMasterRequestProto, RegisterApplicationMasterRequestProto,
    RegisterApplicationMasterResponseProto, SchedulerResourceTypes,
};
use crate::scheduler::TagConstraint;
use crate::scheduler::response::all;
use crate::token::Secret;
use crate::types::{
    Access, Container, FinalStatus, InvalidMessage, NodeToken, Resource, ResourceTypeInfo,
};

/// Registration of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Host on which clients reach it; may be empty.
    pub host: String,
    /// Port; reported as -1 if missing.
    pub port: Option<u16>,
    /// Tracking page, as a URL or `host:port`; empty stands for the ResourceManager's own.
    pub tracking_url: String,
    /// Constraints by allocation tags (Hadoop 3).
    pub constraints: Vec<TagConstraint>,
}

impl Registration {
    /// Creates a registration without port and tracking page.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: None, tracking_url: String::new(), constraints: Vec::new() }
    }

    pub(crate) fn proto(&self) -> RegisterApplicationMasterRequestProto {
        RegisterApplicationMasterRequestProto {
            host: Some(self.host.clone()),
            rpc_port: Some(self.port.map_or(-1, i32::from)),
            tracking_url: Some(self.tracking_url.clone()),
            placement_constraints: self.constraints.iter().map(TagConstraint::proto).collect(),
        }
    }
}

/// Response to a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterResponse {
    /// Largest container.
    pub capability_max: Resource,
    /// Queue of the application; its full path since Hadoop 3.5.
    pub queue: String,
    /// Containers of earlier attempts that are still running.
    pub recovered: Vec<Container>,
    /// Tokens of their nodes.
    pub node_tokens: Vec<NodeToken>,
    /// Resource types of the cluster, memory and cores included. Empty before Hadoop 2.10.
    pub resource_types: Vec<ResourceTypeInfo>,
    /// True if the scheduler counts cores; otherwise it counts only memory.
    pub counts_vcores: bool,
    /// Access lists of the application.
    pub access: BTreeMap<Access, String>,
    /// Key for verifying client tokens; only on a secure cluster.
    pub client_key: Option<Secret>,
}

impl RegisterResponse {
    pub(crate) fn of(
        proto: RegisterApplicationMasterResponseProto,
    ) -> Result<Self, InvalidMessage> {
        let cpu = i32::from(SchedulerResourceTypes::Cpu);
        let access = proto.application_ac_ls.iter().flat_map(|entry| {
            let access = Access::of(entry.access_type?).ok()?;
            Some((access, entry.acl().to_owned()))
        });
        let types = proto.resource_types.iter().map(ResourceTypeInfo::of);
        let key = proto.client_to_am_token_master_key;
        Ok(Self {
            capability_max: Resource::of(proto.maximum_capability.as_ref())?,
            queue: proto.queue.unwrap_or_default(),
            recovered: all(proto.containers_from_previous_attempts, Container::recovered)?,
            node_tokens: all(proto.nm_tokens_from_previous_attempts, NodeToken::of)?,
            resource_types: types.collect(),
            counts_vcores: proto.scheduler_resource_types.contains(&cpu),
            access: access.collect(),
            client_key: key.filter(|key| !key.is_empty()).map(Secret::new),
        })
    }
}

/// Final status of an application, as reported by its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Outcome.
    pub status: FinalStatus,
    /// Diagnostics for users.
    pub diagnostics: String,
    /// Page that outlives the master; empty for none.
    pub tracking_url: String,
}

impl Finish {
    /// Creates a final status without diagnostics.
    pub fn new(status: FinalStatus) -> Self {
        Self { status, diagnostics: String::new(), tracking_url: String::new() }
    }

    pub(crate) fn proto(&self) -> FinishApplicationMasterRequestProto {
        FinishApplicationMasterRequestProto {
            diagnostics: Some(self.diagnostics.clone()),
            tracking_url: Some(self.tracking_url.clone()),
            final_application_status: Some(self.status.proto().into()),
        }
    }
}
