//! Rounds: who waits for whom, and what happens when somebody does not come.

use super::{Job, Mutant, Place, Stage, TaskKey, Then, attempt::Gone, timers::Timer};
use crate::{
    action::Action,
    cluster::{Cluster, Member},
    ending::{Cause, TaskResult},
    fact::What,
    spec::{Resources, Scope},
    time::Time,
};
use alloc::{collections::BTreeSet, format, string::String, sync::Arc, vec::Vec};

/// A round that has not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathering {
    pub(super) members: BTreeSet<TaskKey>,
    /// How many of them are ready.
    ready: u32,
    /// How many of them need a container they do not have.
    short: u32,
    /// Since when anybody is short.
    short_since: Option<Time>,
    /// Since when containers are held for a gathering that is short.
    holding_since: Option<Time>,
    /// When complete, these newcomers join a round of this scope instead of starting by themselves.
    pub(super) joins: Option<(usize, Scope)>,
}

impl Job {
    pub(super) fn enter_gathering(&mut self, key: TaskKey, round: u32) {
        let task = self.task_mut(key);
        task.gathering = Some(round);
        let now = (
            matches!(task.place, Place::Ready { .. }),
            task.place.short(),
        );
        self.gatherings
            .entry(round)
            .or_default()
            .members
            .insert(key);
        self.recount(round, (false, false), now);
    }

    pub(super) fn leave_gathering(&mut self, key: TaskKey) {
        let task = self.task_mut(key);
        let Some(round) = task.gathering.take() else {
            return;
        };
        let was = (
            matches!(task.place, Place::Ready { .. }),
            task.place.short(),
        );
        if let Some(gathering) = self.gatherings.get_mut(&round) {
            gathering.members.remove(&key);
        }
        self.recount(round, was, (false, false));
        if self
            .gatherings
            .get(&round)
            .is_some_and(|gathering| gathering.members.is_empty())
        {
            self.forget_gathering(round);
        }
    }

    pub(super) fn forget_gathering(&mut self, round: u32) -> Option<Gathering> {
        self.timers.arm(Timer::Gathering(round), None);
        self.gatherings.remove(&round)
    }

    /// A member has become ready or short, or is no longer.
    pub(super) fn recount(&mut self, round: u32, was: (bool, bool), is: (bool, bool)) {
        let now = self.now;
        let Some(gathering) = self.gatherings.get_mut(&round) else {
            return;
        };
        gathering.ready = gathering.ready + u32::from(is.0) - u32::from(was.0);
        gathering.short = gathering.short + u32::from(is.1) - u32::from(was.1);
        let holding = gathering.members.len() as u32 > gathering.short;
        if gathering.short == 0 {
            gathering.short_since = None;
            gathering.holding_since = None;
        } else {
            gathering.short_since.get_or_insert(now);
            if holding {
                gathering.holding_since.get_or_insert(now);
            } else {
                gathering.holding_since = None;
            }
        }
        self.arm_gathering(round);
    }

    fn arm_gathering(&mut self, round: u32) {
        let Some(gathering) = self.gatherings.get(&round) else {
            return;
        };
        let allocation = gathering
            .short_since
            .map(|at| at + self.spec.deadlines.allocation);
        let hold = gathering.holding_since.map(|at| at + self.spec.gang.hold);
        let at = match (allocation, hold) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let at = if self.mutant.is(Mutant::NeverGivesBack) {
            None
        } else {
            at
        };
        self.timers.arm(Timer::Gathering(round), at);
    }

    /// How many tasks that wait for each other are ready, and of how many.
    pub(crate) fn gathered(&self) -> (u32, u32) {
        let ready = self
            .gatherings
            .values()
            .map(|gathering| gathering.ready)
            .sum();
        let of = self
            .gatherings
            .values()
            .map(|gathering| gathering.members.len() as u32)
            .sum();
        (ready, of)
    }

    /// Begins every round whose members are all ready.
    pub(super) fn start_gathered(&mut self, out: &mut Vec<Action>) {
        let lenient = u32::from(self.mutant.is(Mutant::StartsWithoutTheLast));
        let complete = |gathering: &Gathering| {
            gathering.ready > 0 && gathering.ready + lenient >= gathering.members.len() as u32
        };
        while let Some(round) = self
            .gatherings
            .iter()
            .find(|(_, gathering)| complete(gathering))
            .map(|(at, _)| *at)
        {
            let Some(gathering) = self.forget_gathering(round) else {
                return;
            };
            for key in &gathering.members {
                self.task_mut(*key).gathering = None;
            }
            let because = gathering.members.first().copied();
            if let (Some((role, scope)), Some(because)) = (gathering.joins, because) {
                let role = (scope == Scope::Role).then_some(role);
                self.new_round(role, because, out);
                continue;
            }
            self.gang_tries = 0;
            let tasks = gathering.members.len() as u32;
            self.record(What::RoundStarted { round, tasks }, out);
            let cluster = Arc::new(self.cluster(round));
            for key in gathering.members {
                self.start(key, cluster.clone(), out);
            }
        }
    }

    /// Starts a task that nobody waits for.
    pub(super) fn start_alone(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let cluster = if self.spec.gang.together {
            Arc::new(self.cluster(self.task(key).round))
        } else {
            self.bare.clone()
        };
        self.start(key, cluster, out);
    }

    fn start(&mut self, key: TaskKey, cluster: Arc<Cluster>, out: &mut Vec<Action>) {
        let Place::Ready { on, .. } = &self.task(key).place else {
            return;
        };
        let on = on.clone();
        self.task_mut(key).cluster = Some(cluster);
        self.set_place(
            key,
            Place::Starting {
                on: on.clone(),
                since: self.now,
            },
        );
        out.push(Action::Tell(on));
    }

    fn cluster(&self, round: u32) -> Cluster {
        let roles = self
            .spec
            .roles
            .iter()
            .zip(&self.roles)
            .map(|(spec, role)| Member {
                role: spec.name.clone(),
                instances: role.want,
                endpoints: role.tasks[..role.want as usize]
                    .iter()
                    .map(|task| task.endpoint.clone().unwrap_or_default())
                    .collect(),
            });
        Cluster {
            round,
            roles: roles.collect(),
        }
    }

    /// Tells tasks that start on their own how many they are.
    pub(super) fn tell_sizes(&mut self) {
        let roles = self
            .spec
            .roles
            .iter()
            .zip(&self.roles)
            .map(|(spec, role)| Member {
                role: spec.name.clone(),
                instances: role.want,
                endpoints: Vec::new(),
            });
        self.bare = Arc::new(Cluster {
            round: self.round,
            roles: roles.collect(),
        });
    }

    /// The share of the port range that is this task's. Where a framework sorts its peers by port, ports must
    /// ascend with the index; everybody else may take any.
    pub(super) fn slot(&self, key: TaskKey) -> (u32, u32) {
        if !self.spec.framework.ports_ascend() {
            return (0, 1);
        }
        let before: u32 = self.roles[..key.role].iter().map(|role| role.want).sum();
        (
            before + key.index,
            self.roles.iter().map(|role| role.want).sum(),
        )
    }

    /// Everybody in scope starts again: those with a healthy container in it, the others in a new one.
    pub(super) fn new_round(
        &mut self,
        role: Option<usize>,
        because: TaskKey,
        out: &mut Vec<Action>,
    ) {
        self.round += 1;
        let round = self.round;
        let keys = self.keys(role);
        let what = What::RoundBroken {
            round,
            because: self.id(because),
            tasks: keys.len() as u32,
        };
        self.record(what, out);
        for key in keys {
            self.rewind(key, round, out);
        }
    }

    fn rewind(&mut self, key: TaskKey, round: u32, out: &mut Vec<Action>) {
        let keep_success = self.mutant.is(Mutant::KeepsOldSuccesses);
        let now = self.now;
        match self.task(key).place.clone() {
            Place::Over {
                result: TaskResult::Succeeded,
                ..
            } if !keep_success => {
                self.join_round(key, round);
                self.go_on(key, Then::Again { at: now }, out);
            }
            Place::Over { .. } => {}
            Place::Stopping {
                then: Then::Over(TaskResult::Succeeded),
                ..
            } if keep_success => {}
            Place::Stopping {
                on,
                since,
                then: Then::Over(TaskResult::Succeeded),
                ..
            } => {
                self.join_round(key, round);
                let then = Then::Again { at: now };
                self.set_place(
                    key,
                    Place::Stopping {
                        on,
                        since,
                        save: false,
                        then,
                    },
                );
            }
            Place::Stopping {
                then: Then::Over(_) | Then::Vanish,
                ..
            }
            | Place::Leaving {
                then: Then::Over(_) | Then::Vanish,
                ..
            } => {}
            Place::Starting { on, .. } | Place::Running { on, .. } => {
                self.join_round(key, round);
                let task = self.task(key);
                let what = What::AttemptStopped {
                    task: self.id(key),
                    attempt: task.attempt,
                };
                self.record(what, out);
                self.task_mut(key).attempt += 1;
                self.set_place(
                    key,
                    Place::Rewinding {
                        on: on.clone(),
                        since: now,
                    },
                );
                out.push(Action::Tell(on));
            }
            Place::Launching { on, .. }
            | Place::Joining { on, .. }
            | Place::Ready { on, .. }
            | Place::Rewinding { on, .. } => {
                self.join_round(key, round);
                out.push(Action::Tell(on));
            }
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Stopping {
                then: Then::Again { .. } | Then::Judge,
                ..
            }
            | Place::Leaving {
                then: Then::Again { .. } | Then::Judge,
                ..
            } => {
                self.join_round(key, round);
            }
        }
    }

    fn join_round(&mut self, key: TaskKey, round: u32) {
        self.leave_gathering(key);
        self.task_mut(key).round = round;
        if self.spec.gang.together {
            self.enter_gathering(key, round);
        }
        self.arm(key);
    }

    /// Every task of a role, or of the job.
    pub(super) fn keys(&self, role: Option<usize>) -> Vec<TaskKey> {
        let roles = match role {
            Some(role) => role..role + 1,
            None => 0..self.roles.len(),
        };
        let keys = roles
            .flat_map(|role| (0..self.roles[role].want).map(move |index| TaskKey { role, index }));
        keys.collect()
    }

    /// A gathering has waited too long for containers.
    pub(super) fn on_gathering_due(&mut self, round: u32, out: &mut Vec<Action>) {
        let Some(gathering) = self.gatherings.get(&round) else {
            return;
        };
        let Some(short_since) = gathering.short_since else {
            return;
        };
        let waited = self.now - short_since;
        let late = waited >= self.spec.deadlines.allocation;
        if late || self.gang_tries >= self.spec.gang.retries {
            let missing = self.missing(Some(round));
            self.fail(Cause::NoContainers { missing }, out);
            return;
        }
        let missing = self.missing(Some(round));
        let members: Vec<_> = gathering.members.iter().copied().collect();
        self.gang_tries += 1;
        let backoff = self.spec.gang.backoff.after(self.gang_tries);
        let tries = self.gang_tries;
        self.record(
            What::GangGaveBack {
                tries,
                backoff,
                missing,
            },
            out,
        );
        let until = self.now + backoff;
        for key in members {
            match &self.task(key).place {
                Place::Launching { .. }
                | Place::Joining { .. }
                | Place::Ready { .. }
                | Place::Rewinding { .. } => {
                    self.part(key, Then::Again { at: until }, Gone::Unsure, false, out);
                }
                Place::Asked { .. } => {
                    self.set_place(
                        key,
                        Place::Idle {
                            since: self.now,
                            until,
                        },
                    );
                }
                Place::Idle { .. }
                | Place::Starting { .. }
                | Place::Running { .. }
                | Place::Stopping { .. }
                | Place::Leaving { .. }
                | Place::Over { .. } => {}
            }
        }
        self.arm_gathering(round);
    }

    /// What cannot be had, in one sentence.
    pub(super) fn missing(&self, round: Option<u32>) -> String {
        let mut missing = Vec::new();
        for (spec, role) in self.spec.roles.iter().zip(&self.roles) {
            for (memory_mib, tasks) in &role.asked {
                let size = Resources {
                    memory_mib: *memory_mib,
                    ..spec.resources.clone()
                };
                missing.push(format!("{} × `{}` ({size})", tasks.len(), spec.name));
            }
        }
        let since = match round.and_then(|round| self.gatherings.get(&round)) {
            Some(gathering) => gathering.short_since,
            None => self.starved_since,
        };
        let waited = since
            .map(|since| format!(" after {}", self.now - since))
            .unwrap_or_default();
        let total: u32 = self.roles.iter().map(|role| role.want).sum();
        let avoided = self.nodes.avoided();
        let mut text = format!(
            "{} of {total} containers were there{waited}; missing: {}",
            self.held.len(),
            if missing.is_empty() {
                String::from("none")
            } else {
                missing.join(", ")
            },
        );
        if !avoided.is_empty() {
            let names: Vec<_> = avoided.iter().map(|node| format!("`{node}`")).collect();
            text += &format!("; avoided nodes: {}", names.join(", "));
        }
        text
    }

    /// Tasks that start on their own may wait for each other, but not all of them for nothing.
    pub(super) fn watch_starvation(&mut self) {
        let asked = self.roles.iter().any(|role| !role.asked.is_empty());
        let starved = self.stage == Stage::Active
            && !self.spec.gang.together
            && asked
            && self.held.is_empty();
        if starved {
            self.starved_since.get_or_insert(self.now);
        } else {
            self.starved_since = None;
        }
        let at = self
            .starved_since
            .map(|since| since + self.spec.deadlines.allocation);
        self.timers.arm(Timer::Starved, at);
    }
}
