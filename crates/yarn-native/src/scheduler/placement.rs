//! Constraints on where containers go, and requests that carry them (Hadoop 3).

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

/// The key under which a node's label is among its attributes.
const PARTITION: &str = "yarn_node_partition/";

/// Within what a constraint counts.
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

/// Whose containers count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TagNamespace {
    /// The application's own.
    #[default]
    Own,
    /// All others'.
    Others,
    /// Everybody's.
    All,
    /// Of one application.
    Application(ApplicationId),
    /// Of the applications with a tag.
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

/// Where containers may go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Constraint {
    /// Where at least `min` and at most `max` containers with any of the tags are already.
    Cardinality {
        /// Where they are counted.
        scope: PlacementScope,
        /// Whose.
        namespace: TagNamespace,
        /// With any of these tags.
        tags: Vec<String>,
        /// At least so many.
        min: u32,
        /// At most so many.
        max: Option<u32>,
    },
    /// On nodes with an attribute, as `rm.yarn.io/zone`.
    Attribute {
        /// Its name, with its prefix.
        name: String,
        /// The value it must have, or must not have.
        value: String,
        /// Whether it must have it.
        equal: bool,
    },
    /// On nodes with one of these labels; none stands for the nodes without label.
    Label(Vec<String>),
    /// On nodes with this label, where another constraint holds too. The capacity scheduler looks for a
    /// label in a constraint that stands alone, and not within [`All`](Self::All): so the other one has
    /// to be of one of the kinds above.
    WithLabel {
        /// The label.
        label: String,
        /// What has to hold there.
        constraint: Box<Constraint>,
    },
    /// Where all of these hold.
    All(Vec<Constraint>),
    /// Where one of these holds.
    Any(Vec<Constraint>),
    /// Where the first of these holds; when it has been tried for so long, where the second holds,
    /// and so on.
    DelayedOr(Vec<(Constraint, Delay)>),
}

/// How long a constraint is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// For a time.
    Time(Duration),
    /// For so many chances to place something.
    Opportunities(u32),
}

impl Constraint {
    /// Together with the application's containers that have any of the tags.
    pub fn affinity(
        scope: PlacementScope,
        tags: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::cardinality(scope, tags, 1, None)
    }

    /// Away from the application's containers that have any of the tags. With their own tag
    /// containers spread, one for each node or rack.
    pub fn anti_affinity(
        scope: PlacementScope,
        tags: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::cardinality(scope, tags, 0, Some(0))
    }

    /// Where at least `min` and at most `max` of the application's containers with any of the tags
    /// are already.
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
                    // Nothing is counted.
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

/// Containers that are wanted where a constraint allows. Clusters refuse such requests unless
/// `yarn.resourcemanager.placement-constraints.handler` is set.
///
/// Priority and request id must not be those of an [`Ask`](crate::scheduler::Ask).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingRequest {
    /// Lower numbers are served first.
    pub priority: i32,
    /// Comes back in the containers.
    pub request_id: i64,
    /// What the containers are called in constraints.
    pub tags: BTreeSet<String>,
    /// The size of each.
    pub resource: Resource,
    /// How many are still wanted.
    pub count: u32,
    /// Where they may go; without one, where the registration's constraint for the tags allows.
    pub constraint: Option<Constraint>,
    /// Whether their resources are to be their own.
    pub execution: ExecutionType,
}

impl SchedulingRequest {
    pub(crate) fn proto(&self) -> SchedulingRequestProto {
        SchedulingRequestProto {
            allocation_request_id: Some(self.request_id),
            priority: Some(priority(self.priority)),
            // The scheduler places nothing it might have to place otherwise.
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

/// A constraint for all containers with certain tags, told at registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagConstraint {
    /// The tags.
    pub tags: BTreeSet<String>,
    /// Where containers that have them may go.
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
    /// Why a request with a constraint came back.
    pub enum RejectionReason: RejectionReasonProto, "reason of a rejection" {
        /// No node satisfies it.
        CouldNotPlace = RrpCouldNotPlaceOnNode "COULD_NOT_PLACE_ON_NODE",
        /// A node satisfied it, and could not take it.
        CouldNotSchedule = RrpCouldNotScheduleOnNode "COULD_NOT_SCHEDULE_ON_NODE",
    }
}

/// A request with a constraint that was given up by the ResourceManager.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Why.
    pub reason: RejectionReason,
    /// The request's id.
    pub request_id: i64,
    /// Its priority.
    pub priority: i32,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// How many containers of it will not come.
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
    fn constraints_have_the_shapes_that_hadoop_gives_them() {
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
    fn constraints_are_put_together() {
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
