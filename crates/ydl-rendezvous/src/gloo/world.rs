//! The processes of a world and their ranks.

use std::{collections::BTreeMap, fmt, str::FromStr};

use ydl_core::{Cluster, TaskId};

/// Stable identity of an elastic process, independent of its rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessSlot {
    /// `HOROVOD_HOSTNAME`: a label, not necessarily a resolvable host name.
    pub host: String,
    /// `HOROVOD_LOCAL_RANK`.
    pub local_rank: u32,
}

/// Maximum length of a host name.
const HOST_MAX: usize = 255;

impl fmt::Display for ProcessSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.local_rank)
    }
}

impl FromStr for ProcessSlot {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessSlot, String> {
        let invalid = || "invalid process slot: expected one such as `host:0`".to_owned();
        let (host, local_rank) = text.rsplit_once(':').ok_or_else(invalid)?;
        if host.is_empty() || host.len() > HOST_MAX {
            return Err(format!(
                "host name of `{}` bytes exceeds the maximum of `{HOST_MAX}`",
                host.len()
            ));
        }
        Ok(ProcessSlot {
            host: host.to_owned(),
            local_rank: parse_rank(local_rank).ok_or_else(invalid)?,
        })
    }
}

/// Parses a rank: digits only, without a sign or leading zeros.
pub(super) fn parse_rank(text: &str) -> Option<u32> {
    let plain = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    text.parse().ok().filter(|_| plain)
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlooMember {
    /// The task of the process.
    pub task: TaskId,
    /// The identity of the process.
    pub slot: ProcessSlot,
}

/// The ranks of a process, as Horovod expects them in the environment and in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// Rank among all processes.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// Rank among the processes of its host.
    pub local_rank: u32,
    /// Number of processes of its host.
    pub local_size: u32,
    /// Rank among the processes with the same local rank.
    pub cross_rank: u32,
    /// Number of processes with the same local rank.
    pub cross_size: u32,
}

impl fmt::Display for RankInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankInfo { rank, size, local_rank, local_size, cross_rank, cross_size } = self;
        write!(f, "{rank},{size},{local_rank},{local_size},{cross_rank},{cross_size}")
    }
}

/// Response to a rank request of a process that is not in the next world.
pub(super) const NOT_IN_WORLD: &str = "-1,-1,-1,-1,-1,-1";

/// All processes, by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    members: Vec<GlooMember>,
    /// Number of processes of each task.
    tasks: BTreeMap<TaskId, usize>,
}

impl From<Vec<GlooMember>> for World {
    fn from(members: Vec<GlooMember>) -> World {
        let mut tasks = BTreeMap::new();
        for member in &members {
            *tasks.entry(member.task.clone()).or_default() += 1;
        }
        World { members, tasks }
    }
}

impl World {
    /// Creates a world of `members`, by rank. Fails unless slots are unique and the local ranks of each host are 0, 1,
    /// 2, …, as Horovod requires.
    pub fn new(members: Vec<GlooMember>) -> Result<World, String> {
        let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for GlooMember { slot, .. } in &members {
            hosts.entry(&slot.host).or_default().push(slot.local_rank);
        }
        for (host, mut ranks) in hosts {
            ranks.sort_unstable();
            if !ranks.iter().copied().eq(0..ranks.len() as u32) {
                return Err(format!(
                    "the local ranks of `{host}` are not 0 to `{}`",
                    ranks.len() - 1
                ));
            }
        }
        Ok(World::from(members))
    }

    /// Creates a world with `processes` of each task. Each task counts as a host, regardless of its node: then the
    /// local rank of a process is its index among those that share the task's devices.
    pub fn of_tasks(tasks: impl IntoIterator<Item = TaskId>, processes: u32) -> World {
        let members = tasks.into_iter().flat_map(|task| {
            (0..processes).map(move |local_rank| GlooMember {
                slot: ProcessSlot { host: World::host(&task), local_rank },
                task: task.clone(),
            })
        });
        World::from(members.collect::<Vec<_>>())
    }

    /// Creates the world of a round.
    pub fn of(members: &Cluster) -> World {
        let each = |task: TaskId| {
            let role = members.role(task.role.as_str());
            World::of_tasks([task], role.map_or(1, |role| role.processes)).members
        };
        World::from(members.tasks().flat_map(each).collect::<Vec<_>>())
    }

    /// Returns the tasks and their numbers of processes.
    pub(super) fn tasks(&self) -> &BTreeMap<TaskId, usize> {
        &self.tasks
    }

    /// Returns true if the task has a process in this world.
    pub(super) fn has(&self, task: &TaskId) -> bool {
        self.tasks.contains_key(task)
    }

    /// Returns the host name of a task's processes, for example `worker-3`.
    pub fn host(task: &TaskId) -> String {
        format!("{}-{}", task.role, task.index)
    }

    /// Returns the members, by rank.
    pub fn members(&self) -> &[GlooMember] {
        &self.members
    }

    /// Returns the member with this slot.
    pub fn member(&self, slot: &ProcessSlot) -> Option<&GlooMember> {
        self.members.iter().find(|member| member.slot == *slot)
    }

    /// Returns the ranks of the member with this slot.
    pub fn rank_info(&self, slot: &ProcessSlot) -> Option<RankInfo> {
        self.rank_infos().remove(slot)
    }

    /// Returns the ranks of all members.
    pub(super) fn rank_infos(&self) -> BTreeMap<&ProcessSlot, RankInfo> {
        let mut local_sizes: BTreeMap<&str, u32> = BTreeMap::new();
        let mut cross_sizes: BTreeMap<u32, u32> = BTreeMap::new();
        let mut rank_infos = BTreeMap::new();
        for (rank, GlooMember { slot, .. }) in self.members.iter().enumerate() {
            *local_sizes.entry(&slot.host).or_default() += 1;
            let before = cross_sizes.entry(slot.local_rank).or_default();
            let info = RankInfo {
                rank: rank as u32,
                size: self.members.len() as u32,
                local_rank: slot.local_rank,
                local_size: 0,
                cross_rank: *before,
                cross_size: 0,
            };
            *before += 1;
            rank_infos.insert(slot, info);
        }
        for (slot, info) in &mut rank_infos {
            info.local_size = local_sizes[slot.host.as_str()];
            info.cross_size = cross_sizes[&slot.local_rank];
        }
        rank_infos
    }

    /// Returns the participants of a scope, in the order of their keys. Empty if the scope is not one of the world.
    pub(super) fn participants(&self, scope: &str) -> Vec<&GlooMember> {
        let mut members: Vec<&GlooMember> = self.members.iter().collect();
        if scope == "global" {
            return members;
        }
        if let Some(host) = scope.strip_prefix("local_") {
            members.retain(|member| member.slot.host == host);
            members.sort_by_key(|member| member.slot.local_rank);
            return members;
        }
        let Some(rank) = scope.strip_prefix("cross_").and_then(parse_rank) else {
            return Vec::new();
        };
        members.retain(|member| member.slot.local_rank == rank);
        members
    }
}
