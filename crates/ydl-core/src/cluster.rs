//! Everybody in a round, as a program is told.

use crate::id::{RoleName, TaskId};
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Where a task is reached by its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// A numeric address that other nodes can reach.
    pub host: String,
    /// The ports its agent holds, by name.
    pub ports: BTreeMap<String, u16>,
}

impl Endpoint {
    /// Host and port as one word; an address with colons in it stands in brackets.
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
    /// The gathering this is true for.
    pub round: u32,
    /// Every role.
    pub roles: Vec<RoleMembers>,
}

/// A role in a [`Cluster`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleMembers {
    /// Its name.
    pub role: RoleName,
    /// How many of its tasks are in the round.
    pub instances: u32,
    /// How many processes each of them starts.
    #[serde(default = "crate::spec::one")]
    pub processes: u32,
    /// Which they are, in the order of their ranks. Empty where they are the first ones, ascending and without a hole:
    /// only an elastic role has rounds that some of its tasks are not in, or have joined later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<u32>,
    /// Where each of them is, in the same order. Empty in a job whose tasks start on their own: they do not know each
    /// other.
    pub endpoints: Vec<Endpoint>,
}

impl RoleMembers {
    /// A task's number among those of its role in the round, from 0 and without holes.
    pub fn rank_of(&self, index: u32) -> Option<u32> {
        if self.indexes.is_empty() {
            return (index < self.instances).then_some(index);
        }
        let found = self.indexes.iter().position(|other| *other == index)?;
        u32::try_from(found).ok()
    }

    /// How many processes all its tasks in the round start.
    fn process_count(&self) -> u32 {
        self.instances * self.processes
    }

    /// The indexes of its tasks in the round, in the order of their ranks.
    pub fn indexes(&self) -> impl Iterator<Item = u32> {
        let first = match self.indexes.is_empty() {
            true => 0..self.instances,
            false => 0..0,
        };
        first.chain(self.indexes.iter().copied())
    }
}

impl Cluster {
    /// How many tasks are in the round.
    pub fn world_size(&self) -> u32 {
        self.roles.iter().map(|member| member.instances).sum()
    }

    /// A task's number among all in the round, from 0 and without holes: by role in the order of the job file, then by
    /// index.
    pub fn rank(&self, task: &TaskId) -> u32 {
        let before = self.preceding_roles(task).map(|member| member.instances);
        before.sum::<u32>() + self.role_rank(task)
    }

    /// The roles before a task's own.
    pub(crate) fn preceding_roles(&self, task: &TaskId) -> impl Iterator<Item = &RoleMembers> {
        let roles = self.roles.iter();
        roles.take_while(|member| member.role != task.role)
    }

    /// A task's number among those of its role, from 0 and without holes.
    pub fn role_rank(&self, task: &TaskId) -> u32 {
        let member = self.role(task.role.as_str());
        // One that is not in the round has no number in it, and nobody asks.
        member.and_then(|member| member.rank_of(task.index)).unwrap_or(task.index)
    }

    /// How many processes the job has.
    pub fn process_count(&self) -> u32 {
        self.roles.iter().map(RoleMembers::process_count).sum()
    }

    /// The number of a task's first process among all processes, in the same order. Its others follow.
    pub fn first_process_rank(&self, task: &TaskId) -> u32 {
        let own = self.role(task.role.as_str());
        let earlier = own.map_or(0, |member| self.role_rank(task) * member.processes);
        self.preceding_roles(task).map(RoleMembers::process_count).sum::<u32>() + earlier
    }

    /// All of them, in the order of their ranks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let of = |member: &RoleMembers| {
            let role = member.role.clone();
            let all: Vec<_> = member.indexes().collect();
            all.into_iter().map(move |index| TaskId { role: role.clone(), index })
        };
        self.roles.iter().flat_map(of)
    }

    /// The role of that name.
    pub fn role(&self, name: &str) -> Option<&RoleMembers> {
        self.roles.iter().find(|member| member.role.as_str() == name)
    }

    /// Where a task is reached.
    pub fn endpoint(&self, task: &TaskId) -> Option<&Endpoint> {
        let member = self.role(task.role.as_str())?;
        let place = member.rank_of(task.index)?;
        member.endpoints.get(place as usize)
    }
}
