//! A master's first words, its last, and what it is told at first.

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

/// What a master tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Where its clients reach it; may be empty.
    pub host: String,
    /// And on which port; none is shown as -1.
    pub port: Option<u16>,
    /// Its page, as a URL or `host:port`; empty stands for the ResourceManager's own.
    pub tracking_url: String,
    /// Where containers with certain tags may go (Hadoop 3).
    pub constraints: Vec<TagConstraint>,
}

impl Registration {
    /// A master without port and page.
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

/// What a master is told when it registers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterResponse {
    /// The largest container.
    pub capability_max: Resource,
    /// The application's queue. Hadoop 3.5 gives its whole path.
    pub queue: String,
    /// Containers of earlier attempts that still run.
    pub recovered: Vec<Container>,
    /// Tokens of their nodes.
    pub node_tokens: Vec<NodeToken>,
    /// What the cluster counts, memory and cores included. Hadoop before 2.10 says
    /// nothing.
    pub resource_types: Vec<ResourceTypeInfo>,
    /// Whether the scheduler heeds cores; otherwise it counts memory only.
    pub counts_vcores: bool,
    /// Who may do what with the application.
    pub access: BTreeMap<Access, String>,
    /// With this key a master checks the tokens of clients; only on a secure cluster.
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

/// How a master says that its application is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// How it went.
    pub status: FinalStatus,
    /// What people should know about it.
    pub diagnostics: String,
    /// A page that outlives the master; empty for none.
    pub tracking_url: String,
}

impl Finish {
    /// An end with nothing to say about it.
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
