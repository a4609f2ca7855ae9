//! Requests of a master to the scheduler.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use crate::proto::yarn::{
    AllocateRequestProto, ContainerUpdateTypeProto, ExecutionTypeRequestProto, PriorityProto,
    ResourceBlacklistRequestProto, ResourceRequestProto, UpdateContainerRequestProto,
};
use crate::scheduler::SchedulingRequest;
use crate::types::named::named;
use crate::types::{ContainerId, ExecutionType, InvalidMessage, Resource};

/// Place for containers, in YARN's notation: `*`, `/rack`, or a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Locality {
    /// Any node.
    #[default]
    Anywhere,
    /// Rack by name, as `/default-rack`.
    Rack(String),
    /// Host, by the name that its NodeManager registered.
    Host(String),
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere => f.pad("*"),
            Self::Rack(name) | Self::Host(name) => f.pad(name),
        }
    }
}

impl From<&str> for Locality {
    fn from(name: &str) -> Self {
        match name {
            "*" => Self::Anywhere,
            rack if rack.starts_with('/') => Self::Rack(rack.to_owned()),
            host => Self::Host(host.to_owned()),
        }
    }
}

impl FromStr for Locality {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(name.into())
    }
}

/// Row of a resource request.
///
/// Rows are sent when they change. `count` is the total still wanted, not an increment: the
/// scheduler replaces its row and counts down as it grants. A row sent again without need is
/// granted again (YARN-1902); 0 cancels it.
///
/// Containers on a host need three rows with the same priority and request id: for the host, for
/// its rack, and for [`Locality::Anywhere`]. With `relax_locality` off on the last two, no other
/// host is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Priority; lower values are served first.
    pub priority: i32,
    /// Allocation request id, returned with the containers. All rows with the same priority and
    /// request id must have the same size. -1 sends none.
    pub request_id: i64,
    /// Place.
    pub locality: Locality,
    /// Size of each container.
    pub resource: Resource,
    /// Number still wanted.
    pub count: u32,
    /// True if other places of the same level are accepted.
    pub relax_locality: bool,
    /// Required node label. Only a row for [`Locality::Anywhere`] may have one.
    pub label: Option<String>,
    /// Execution type.
    pub execution: ExecutionType,
    /// True if no other execution type is accepted.
    pub enforce_execution: bool,
}

impl Ask {
    /// Creates an ask for containers anywhere, with priority 0.
    pub fn anywhere(request_id: i64, resource: Resource, count: u32) -> Self {
        Self {
            priority: 0,
            request_id,
            locality: Locality::Anywhere,
            resource,
            count,
            relax_locality: true,
            label: None,
            execution: ExecutionType::Guaranteed,
            enforce_execution: false,
        }
    }

    pub(crate) fn proto(&self) -> ResourceRequestProto {
        ResourceRequestProto {
            priority: Some(priority(self.priority)),
            resource_name: Some(self.locality.to_string()),
            capability: Some(self.resource.proto()),
            num_containers: Some(count(self.count)),
            relax_locality: Some(self.relax_locality),
            node_label_expression: self.label.clone(),
            execution_type_request: Some(execution(self.execution, self.enforce_execution)),
            allocation_request_id: (self.request_id != -1).then_some(self.request_id),
        }
    }

    pub(crate) fn of(proto: &ResourceRequestProto) -> Result<Self, InvalidMessage> {
        let execution = proto.execution_type_request.as_ref();
        Ok(Self {
            priority: proto.priority.as_ref().map_or(0, |p| p.priority()),
            request_id: proto.allocation_request_id(),
            locality: proto.resource_name().into(),
            resource: Resource::of(proto.capability.as_ref())?,
            count: proto.num_containers().try_into().unwrap_or(0),
            relax_locality: proto.relax_locality(),
            label: proto.node_label_expression.clone(),
            execution: execution
                .and_then(|e| e.execution_type)
                .map_or(Ok(ExecutionType::Guaranteed), ExecutionType::of)?,
            enforce_execution: execution.is_some_and(|e| e.enforce_execution_type()),
        })
    }
}

pub(crate) fn priority(number: i32) -> PriorityProto {
    PriorityProto { priority: Some(number) }
}

pub(crate) fn count(number: u32) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

pub(crate) fn execution(execution: ExecutionType, enforce: bool) -> ExecutionTypeRequestProto {
    ExecutionTypeRequestProto {
        execution_type: Some(execution.proto().into()),
        enforce_execution_type: Some(enforce),
    }
}

named! {
    /// Kind of container update.
    pub enum UpdateKind: ContainerUpdateTypeProto, "update kind" {
        /// Increase its resources.
        Increase = IncreaseResource "INCREASE_RESOURCE",
        /// Decrease its resources.
        Decrease = DecreaseResource "DECREASE_RESOURCE",
        /// Promote it to guaranteed.
        Promote = PromoteExecutionType "PROMOTE_EXECUTION_TYPE",
        /// Demote it to opportunistic.
        Demote = DemoteExecutionType "DEMOTE_EXECUTION_TYPE",
    }
}

/// Update of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Container.
    pub container: ContainerId,
    /// Version that the update is based on, to detect a concurrent update.
    pub version: i32,
    /// Kind of update.
    pub kind: UpdateKind,
    /// New size; `None` if it does not change.
    pub resource: Option<Resource>,
}

impl Update {
    pub(crate) fn proto(&self) -> UpdateContainerRequestProto {
        let execution = match self.kind {
            UpdateKind::Increase | UpdateKind::Decrease => None,
            UpdateKind::Promote => Some(ExecutionType::Guaranteed),
            UpdateKind::Demote => Some(ExecutionType::Opportunistic),
        };
        UpdateContainerRequestProto {
            container_version: self.version,
            container_id: self.container.proto(),
            update_type: self.kind.proto().into(),
            capability: self.resource.as_ref().map(Resource::proto),
            execution_type: execution.map(|e| e.proto().into()),
        }
    }

    pub(crate) fn of(proto: &UpdateContainerRequestProto) -> Result<Self, InvalidMessage> {
        Ok(Self {
            container: ContainerId::of(Some(&proto.container_id))?,
            version: proto.container_version,
            kind: UpdateKind::of(proto.update_type)?,
            resource: proto.capability.as_ref().map(|r| Resource::of(Some(r))).transpose()?,
        })
    }
}

/// Content of an allocate call: changes since the last one. An empty request is a heartbeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocateRequest {
    /// Changed rows.
    pub asks: Vec<Ask>,
    /// Requests with placement constraints (Hadoop 3).
    pub scheduling_requests: Vec<SchedulingRequest>,
    /// Containers to release, started or not.
    pub releases: Vec<ContainerId>,
    /// Hosts or racks to exclude.
    pub exclude: Vec<String>,
    /// Hosts or racks to readmit.
    pub readmit: Vec<String>,
    /// Container updates.
    pub updates: Vec<Update>,
    /// Progress from 0 to 1.
    pub progress: f32,
    /// New tracking URL of the master, if it has changed (Hadoop 3).
    pub tracking_url: Option<String>,
}

impl AllocateRequest {
    pub(crate) fn proto(&self, response_id: i32) -> AllocateRequestProto {
        let blacklist = (!self.exclude.is_empty() || !self.readmit.is_empty()).then(|| {
            ResourceBlacklistRequestProto {
                blacklist_additions: self.exclude.clone(),
                blacklist_removals: self.readmit.clone(),
            }
        });
        // The ResourceManager treats NaN as 0 and values above 1 as 1.
        let progress = if self.progress.is_finite() { self.progress.clamp(0.0, 1.0) } else { 0.0 };
        AllocateRequestProto {
            ask: self.asks.iter().map(Ask::proto).collect(),
            release: self.releases.iter().map(ContainerId::proto).collect(),
            blacklist_request: blacklist,
            response_id: Some(response_id),
            progress: Some(progress),
            update_requests: self.updates.iter().map(Update::proto).collect(),
            scheduling_requests: self
                .scheduling_requests
                .iter()
                .map(SchedulingRequest::proto)
                .collect(),
            tracking_url: self.tracking_url.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localities_round_trip() {
        for (text, locality) in [
            ("*", Locality::Anywhere),
            ("/default-rack", Locality::Rack("/default-rack".into())),
            ("node17", Locality::Host("node17".into())),
        ] {
            assert_eq!(Locality::from(text), locality);
            assert_eq!(locality.to_string(), text);
        }
    }

    #[test]
    fn asks_round_trip() {
        let mut resource = Resource::new(1024, 2);
        resource.others.insert("yarn.io/gpu".into(), 1);
        let ask = Ask {
            priority: 3,
            locality: Locality::Host("n".into()),
            relax_locality: false,
            label: Some("gpu".into()),
            execution: ExecutionType::Opportunistic,
            enforce_execution: true,
            ..Ask::anywhere(7, resource, 2)
        };
        assert_eq!(Ask::of(&ask.proto()), Ok(ask));
        let unnumbered = Ask::anywhere(-1, Resource::new(64, 1), 1);
        assert_eq!(unnumbered.proto().allocation_request_id, None);
        assert_eq!(Ask::of(&unnumbered.proto()), Ok(unnumbered));
    }

    #[test]
    fn progress_is_clamped_and_empty_lists_are_omitted() {
        let request = AllocateRequest { progress: f32::NAN, ..AllocateRequest::default() };
        let proto = request.proto(7);
        assert_eq!((proto.response_id(), proto.progress()), (7, 0.0));
        assert_eq!(proto.blacklist_request, None);
        let over = AllocateRequest { progress: 3.0, ..AllocateRequest::default() };
        assert_eq!(over.proto(0).progress(), 1.0);
    }
}
