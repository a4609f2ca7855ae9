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
    pub roles: Vec<Member>,
}

/// A role in a [`Cluster`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub role: RoleName,
    /// How many tasks it has.
    pub instances: u32,
    /// How many processes each of them starts.
    #[serde(default = "one")]
    pub processes: u32,
    /// Where each of them is, by index. Empty in a job whose tasks start on their own: they do not know each other.
    pub endpoints: Vec<Endpoint>,
}

fn one() -> u32 {
    1
}

impl Cluster {
    /// How many tasks the job has.
    pub fn world(&self) -> u32 {
        self.roles.iter().map(|member| member.instances).sum()
    }

    /// A task's number among all tasks: by role in the order of the job file, then by index.
    pub fn rank(&self, task: &TaskId) -> u32 {
        let before = self
            .roles
            .iter()
            .take_while(|member| member.role != task.role);
        before.map(|member| member.instances).sum::<u32>() + task.index
    }

    /// How many processes the job has.
    pub fn processes(&self) -> u32 {
        let of = |member: &Member| member.instances * member.processes;
        self.roles.iter().map(of).sum()
    }

    /// The number of a task's first process among all processes, in the same order. Its others follow.
    pub fn first_process(&self, task: &TaskId) -> u32 {
        let (mut tasks, mut processes) = (0, 0);
        for member in &self.roles {
            if member.role == task.role {
                let earlier = self.rank(task).saturating_sub(tasks);
                return processes + earlier * member.processes;
            }
            tasks += member.instances;
            processes += member.instances * member.processes;
        }
        processes
    }

    /// All of them, in the order of their ranks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let of = |member: &Member| {
            let role = member.role.clone();
            (0..member.instances).map(move |index| TaskId {
                role: role.clone(),
                index,
            })
        };
        self.roles.iter().flat_map(of)
    }

    /// The role of that name.
    pub fn role(&self, name: &str) -> Option<&Member> {
        self.roles
            .iter()
            .find(|member| member.role.as_str() == name)
    }

    /// Where a task is reached.
    pub fn endpoint(&self, task: &TaskId) -> Option<&Endpoint> {
        self.role(task.role.as_str())?
            .endpoints
            .get(task.index as usize)
    }
}
