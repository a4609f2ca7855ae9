//! Members of a round, as passed to its programs.

use crate::id::{RoleName, TaskId};
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Address of a task for its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// A numeric address that other nodes can reach.
    pub host: String,
    /// The ports its agent holds, by name.
    pub ports: BTreeMap<String, u16>,
}

impl Endpoint {
    /// Returns `host:port`, with an IPv6 host in brackets.
    pub fn address(&self, port: &str) -> Option<String> {
        let (host, port) = (&self.host, self.ports.get(port)?);
        Some(match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        })
    }
}

/// The members of a round, by role in the order of the job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Number of the round.
    pub round: u32,
    /// All roles.
    pub roles: Vec<RoleMembers>,
}

/// A role in a [`Cluster`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleMembers {
    /// Name of the role.
    pub role: RoleName,
    /// Number of its tasks in the round.
    pub instances: u32,
    /// Number of processes that each task starts.
    #[serde(default = "crate::spec::one")]
    pub processes: u32,
    /// Task indexes in the order of their ranks. Empty if they are consecutive from 0. Only the
    /// rounds of an elastic role lack some of its tasks or have tasks that joined later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<u32>,
    /// Endpoints in the same order. Empty in a job whose tasks start on their own: these do not
    /// know each other.
    pub endpoints: Vec<Endpoint>,
}

impl RoleMembers {
    /// Returns a task's rank within the role, from 0 and without gaps.
    pub(crate) fn rank_of(&self, index: u32) -> Option<u32> {
        if self.indexes.is_empty() {
            return (index < self.instances).then_some(index);
        }
        let found = self.indexes.iter().position(|other| *other == index)?;
        u32::try_from(found).ok()
    }

    /// Returns the number of processes of the role.
    fn process_count(&self) -> u32 {
        self.instances * self.processes
    }

    /// Returns the task indexes in the order of their ranks.
    pub fn indexes(&self) -> impl Iterator<Item = u32> {
        let first = match self.indexes.is_empty() {
            true => 0..self.instances,
            false => 0..0,
        };
        first.chain(self.indexes.iter().copied())
    }
}

impl Cluster {
    /// Returns the number of tasks in the round.
    pub fn world_size(&self) -> u32 {
        self.roles.iter().map(|member| member.instances).sum()
    }

    /// Returns a task's rank in the round, from 0 and without gaps: by role in the order of the job
    /// file, then by index.
    pub fn rank(&self, task: &TaskId) -> u32 {
        let before = self.preceding_roles(task).map(|member| member.instances);
        before.sum::<u32>() + self.role_rank(task)
    }

    /// Returns the roles that precede the task's role.
    pub(crate) fn preceding_roles(&self, task: &TaskId) -> impl Iterator<Item = &RoleMembers> {
        let roles = self.roles.iter();
        roles.take_while(|member| member.role != task.role)
    }

    /// Returns a task's rank within its role, from 0 and without gaps.
    pub(crate) fn role_rank(&self, task: &TaskId) -> u32 {
        let member = self.role(task.role.as_str());
        // A task outside the round has no rank, and its rank is never requested.
        member.and_then(|member| member.rank_of(task.index)).unwrap_or(task.index)
    }

    /// Returns the number of processes in the round.
    pub fn process_count(&self) -> u32 {
        self.roles.iter().map(RoleMembers::process_count).sum()
    }

    /// Returns the rank of a task's first process among all processes. Its other processes follow.
    pub fn first_process_rank(&self, task: &TaskId) -> u32 {
        let own = self.role(task.role.as_str());
        let earlier = own.map_or(0, |member| self.role_rank(task) * member.processes);
        self.preceding_roles(task).map(RoleMembers::process_count).sum::<u32>() + earlier
    }

    /// Returns all tasks in the order of their ranks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let of = |member: &RoleMembers| {
            let role = member.role.clone();
            let all: Vec<_> = member.indexes().collect();
            all.into_iter().map(move |index| TaskId { role: role.clone(), index })
        };
        self.roles.iter().flat_map(of)
    }

    /// Returns the role of that name.
    pub fn role(&self, name: &str) -> Option<&RoleMembers> {
        self.roles.iter().find(|member| member.role.as_str() == name)
    }

    /// Returns the endpoint of a task.
    pub fn endpoint(&self, task: &TaskId) -> Option<&Endpoint> {
        let member = self.role(task.role.as_str())?;
        let place = member.rank_of(task.index)?;
        member.endpoints.get(place as usize)
    }
}
