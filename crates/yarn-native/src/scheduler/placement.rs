//! Placement constraints, and scheduling requests that carry them (Hadoop 3).

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::proto::yarn::composite_placement_constraint_proto::CompositeType;
use crate::proto::yarn::placement_constraint_target_proto::TargetType;
use crate::proto::yarn::timed_placement_constraint_proto::DelayUnit;
use crate::proto::yarn::{
    CompositePlacementConstraintProto, NodeAttributeOpCodeProto, PlacementConstraintMapEntryProto,
    PlacementConstraintProto, PlacementConstraintTargetProto, RejectedSchedulingRequestProto,
    RejectionReasonProto, ResourceSizingProto, SchedulingRequestProto,
    SimplePlacementConstraintProto, TimedPlacementConstraintProto,
};
use crate::scheduler::ask::{count, execution, priority};
use crate::types::named::named;
use crate::types::{ApplicationId, ExecutionType, InvalidMessage, Resource};

/// Key of a node's label among its attributes.
const PARTITION: &str = "yarn_node_partition/";

/// Scope in which a constraint counts containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlacementScope {
    /// A node.
    #[default]
    Node,
    /// A rack.
    Rack,
}

impl fmt::Display for PlacementScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Node => "node",
            Self::Rack => "rack",
        })
    }
}

/// Namespace of allocation tags: the applications that a constraint counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TagNamespace {
    /// The application itself.
    #[default]
    Own,
    /// All other applications.
    Others,
    /// All applications.
    All,
    /// One application.
    Application(ApplicationId),
    /// Applications with a tag.
    ApplicationTag(String),
}

impl fmt::Display for TagNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("self"),
            Self::Others => f.write_str("not-self"),
            Self::All => f.write_str("all"),
            Self::Application(application) => write!(f, "app-id/{application}"),
            Self::ApplicationTag(tag) => write!(f, "app-tag/{tag}"),
        }
    }
}

/// Placement constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Constraint {
    /// Places with at least `min` and at most `max` containers that have any of the tags.
    Cardinality {
        /// Scope of the count.
        scope: PlacementScope,
        /// Namespace of the tags.
        namespace: TagNamespace,
        /// Tags, any of which counts.
        tags: Vec<String>,
        /// Minimum number.
        min: u32,
        /// Maximum number.
        max: Option<u32>,
    },
    /// Nodes with an attribute, as `rm.yarn.io/zone`.
    Attribute {
        /// Attribute name with its prefix.
        name: String,
        /// Value to compare with.
        value: String,
        /// True for equality, false for inequality.
        equal: bool,
    },
    /// Nodes with one of these labels; none stands for nodes without a label.
    Label(Vec<String>),
    /// Nodes with a label that also satisfy another constraint. The capacity scheduler looks for a
    /// label in a single constraint and not within [`All`](Self::All), so the other one has to be
    /// of one of the kinds above.
    WithLabel {
        /// Label.
        label: String,
        /// Other constraint.
        constraint: Box<Constraint>,
    },
    /// All of these constraints.
    All(Vec<Constraint>),
    /// Any of these constraints.
    Any(Vec<Constraint>),
    /// The first of these constraints; after its delay the second, and so on.
    DelayedOr(Vec<(Constraint, Delay)>),
}

/// Time for which a constraint is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Duration.
    Time(Duration),
    /// Number of scheduling opportunities.
    Opportunities(u32),
}

impl Constraint {
    /// Requires a place with a container of the application that has any of the tags.
    pub fn affinity(
        scope: PlacementScope,
        tags: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::cardinality(scope, tags, 1, None)
    }

    /// Requires a place without a container of the application that has any of the tags. With their
    /// own tag, containers spread over nodes or racks.
    pub fn anti_affinity(
        scope: PlacementScope,
        tags: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::cardinality(scope, tags, 0, Some(0))
    }

    /// Requires a place with at least `min` and at most `max` containers of the application that
    /// have any of the tags.
    pub fn cardinality(
        scope: PlacementScope,
        tags: impl IntoIterator<Item = impl Into<String>>,
        min: u32,
        max: Option<u32>,
    ) -> Self {
        Self::Cardinality {
            scope,
            namespace: TagNamespace::Own,
            tags: tags.into_iter().map(Into::into).collect(),
            min,
            max,
        }
    }

    pub(crate) fn proto(&self) -> PlacementConstraintProto {
        let simple = |simple| PlacementConstraintProto {
            simple_constraint: Some(simple),
            composite_constraint: None,
        };
        let children = |all: &[Self]| all.iter().map(Self::proto).collect();
        let (kind, child_constraints, timed_child_constraints) = match self {
            Self::Cardinality { scope, namespace, tags, min, max } => {
                let target = target(TargetType::AllocationTag, namespace.to_string(), tags);
                let max = max.map_or(i32::MAX, count);
                return simple(counted(*scope, target, count(*min), max));
            }
            Self::Label(labels) => {
                let target = target(TargetType::NodeAttribute, PARTITION.to_owned(), labels);
                return simple(counted(PlacementScope::Node, target, 1, i32::MAX));
            }
            Self::WithLabel { label, constraint } => {
                let mut proto = constraint.proto();
                let Some(simple) = &mut proto.simple_constraint else {
                    let label = Self::Label(vec![label.clone()]);
                    return Self::All(vec![label, (**constraint).clone()]).proto();
                };
                let label = std::slice::from_ref(label);
                let target = target(TargetType::NodeAttribute, PARTITION.to_owned(), label);
                simple.target_expressions.push(target);
                return proto;
            }
            Self::Attribute { name, value, equal } => {
                let value = std::slice::from_ref(value);
                let target = target(TargetType::NodeAttribute, name.clone(), value);
                let operation = match equal {
                    true => NodeAttributeOpCodeProto::Eq,
                    false => NodeAttributeOpCodeProto::Ne,
                };
                return simple(SimplePlacementConstraintProto {
                    attribute_op_code: Some(operation.into()),
                    // An attribute constraint has no cardinality.
                    ..counted(PlacementScope::Node, target, -1, -1)
                });
            }
            Self::All(all) => (CompositeType::And, children(all), Vec::new()),
            Self::Any(any) => (CompositeType::Or, children(any), Vec::new()),
            Self::DelayedOr(turns) => {
                let turns = turns.iter().map(|(constraint, delay)| delay.on(constraint));
                (CompositeType::DelayedOr, Vec::new(), turns.collect())
            }
        };
        PlacementConstraintProto {
            simple_constraint: None,
            composite_constraint: Some(CompositePlacementConstraintProto {
                composite_type: kind.into(),
                child_constraints,
                timed_child_constraints,
            }),
        }
    }
}

fn target(kind: TargetType, key: String, values: &[String]) -> PlacementConstraintTargetProto {
    PlacementConstraintTargetProto {
        target_type: kind.into(),
        target_key: Some(key),
        target_values: values.to_vec(),
    }
}

fn counted(
    scope: PlacementScope,
    target: PlacementConstraintTargetProto,
    min: i32,
    max: i32,
) -> SimplePlacementConstraintProto {
    SimplePlacementConstraintProto {
        scope: scope.to_string(),
        target_expressions: vec![target],
        min_cardinality: Some(min),
        max_cardinality: Some(max),
        attribute_op_code: None,
    }
}

impl Delay {
    fn on(self, constraint: &Constraint) -> TimedPlacementConstraintProto {
        let (delay, unit) = match self {
            Self::Time(time) => {
                let ms = time.as_millis().try_into().unwrap_or(i64::MAX);
                (ms, DelayUnit::Milliseconds)
            }
            Self::Opportunities(chances) => (chances.into(), DelayUnit::Opportunities),
        };
        TimedPlacementConstraintProto {
            placement_constraint: constraint.proto(),
            scheduling_delay: delay,
            delay_unit: Some(unit.into()),
        }
    }
}

/// Ask with a placement constraint. Clusters reject it unless
/// `yarn.resourcemanager.placement-constraints.handler` is set.
///
/// Priority and request id must differ from those of every [`Ask`](crate::scheduler::Ask).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingRequest {
    /// Priority; lower values are served first.
    pub priority: i32,
    /// Allocation request id, returned with the containers.
    pub request_id: i64,
    /// Allocation tags of the containers.
    pub tags: BTreeSet<String>,
    /// Size of each container.
    pub resource: Resource,
    /// Number still wanted.
    pub count: u32,
    /// Constraint; without one, the constraint registered for the tags applies.
    pub constraint: Option<Constraint>,
    /// Execution type.
    pub execution: ExecutionType,
}

impl SchedulingRequest {
    pub(crate) fn proto(&self) -> SchedulingRequestProto {
        SchedulingRequestProto {
            allocation_request_id: Some(self.request_id),
            priority: Some(priority(self.priority)),
            // The scheduler rejects requests that do not enforce the execution type.
            execution_type: Some(execution(self.execution, true)),
            allocation_tags: self.tags.iter().cloned().collect(),
            resource_sizing: Some(ResourceSizingProto {
                num_allocations: Some(count(self.count)),
                resources: Some(self.resource.proto()),
            }),
            placement_constraint: self.constraint.as_ref().map(Constraint::proto),
        }
    }
}

/// Constraint for all containers with certain tags, set at registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagConstraint {
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Constraint for containers with these tags.
    pub constraint: Constraint,
}

impl TagConstraint {
    pub(crate) fn proto(&self) -> PlacementConstraintMapEntryProto {
        PlacementConstraintMapEntryProto {
            allocation_tags: self.tags.iter().cloned().collect(),
            placement_constraint: Some(self.constraint.proto()),
        }
    }
}

named! {
    /// Reason why a scheduling request was rejected.
    pub enum RejectionReason: RejectionReasonProto, "rejection reason" {
        /// No node satisfies the constraint.
        CouldNotPlace = RrpCouldNotPlaceOnNode "COULD_NOT_PLACE_ON_NODE",
        /// A node satisfied the constraint, but had no capacity.
        CouldNotSchedule = RrpCouldNotScheduleOnNode "COULD_NOT_SCHEDULE_ON_NODE",
    }
}

/// Scheduling request that the ResourceManager rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Reason.
    pub reason: RejectionReason,
    /// Allocation request id.
    pub request_id: i64,
    /// Priority.
    pub priority: i32,
    /// Allocation tags.
    pub tags: BTreeSet<String>,
    /// Number of containers that will not be granted.
    pub count: u32,
}

impl Rejection {
    pub(crate) fn of(proto: RejectedSchedulingRequestProto) -> Result<Self, InvalidMessage> {
        let request = proto.request;
        let sizing = request.resource_sizing.as_ref();
        Ok(Self {
            reason: RejectionReason::of(proto.reason)?,
            request_id: request.allocation_request_id(),
            priority: request.priority.as_ref().map_or(0, |p| p.priority()),
            count: sizing.map_or(0, |s| s.num_allocations().try_into().unwrap_or(0)),
            tags: request.allocation_tags.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(constraint: &Constraint) -> SimplePlacementConstraintProto {
        constraint.proto().simple_constraint.expect("a simple one")
    }

    #[test]
    fn simple_constraints_are_encoded_like_hadoops() {
        let away = simple(&Constraint::anti_affinity(PlacementScope::Node, ["w"]));
        assert_eq!((away.min_cardinality(), away.max_cardinality()), (0, 0));
        assert_eq!((away.scope.as_str(), away.attribute_op_code), ("node", None));
        let target = &away.target_expressions[0];
        assert_eq!(
            (target.target_key(), &target.target_values[..]),
            ("self", &["w".to_owned()][..])
        );
        let near = simple(&Constraint::affinity(PlacementScope::Rack, ["w"]));
        assert_eq!((near.min_cardinality(), near.max_cardinality()), (1, i32::MAX));
        let attribute = simple(&Constraint::Attribute {
            name: "rm.yarn.io/zone".into(),
            value: "a".into(),
            equal: true,
        });
        assert_eq!(attribute.min_cardinality(), -1);
        assert_eq!(attribute.attribute_op_code(), NodeAttributeOpCodeProto::Eq);
    }

    #[test]
    fn composite_constraints_are_encoded_like_hadoops() {
        let away = Constraint::anti_affinity(PlacementScope::Node, ["w"]);
        let label = Constraint::Label(vec!["gpu".into()]);
        let both = Constraint::All(vec![away.clone(), label.clone()]).proto();
        let both = both.composite_constraint.expect("a composite one");
        assert_eq!(both.composite_type(), CompositeType::And);
        assert_eq!(both.child_constraints.len(), 2);
        let labelled = |also: &Constraint| Constraint::WithLabel {
            label: "gpu".into(),
            constraint: Box::new(also.clone()),
        };
        let targets = simple(&labelled(&away)).target_expressions;
        let keys: Vec<_> = targets.iter().map(|target| target.target_key()).collect();
        assert_eq!(keys, ["self", PARTITION]);
        let composite = labelled(&Constraint::Any(vec![away.clone()])).proto();
        assert!(composite.composite_constraint.is_some());
        let turns = Constraint::DelayedOr(vec![
            (away, Delay::Time(Duration::from_secs(2))),
            (label, Delay::Opportunities(3)),
        ]);
        let turns = turns.proto().composite_constraint.expect("a composite one");
        let delays: Vec<_> = turns
            .timed_child_constraints
            .iter()
            .map(|child| (child.scheduling_delay, child.delay_unit()))
            .collect();
        assert_eq!(delays, [(2000, DelayUnit::Milliseconds), (3, DelayUnit::Opportunities)]);
    }
}
