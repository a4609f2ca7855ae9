//! Phases of tasks. All counters about tasks change in [`Job::set_phase`] and nowhere else.

use super::{
    Job, Mutant,
    pending::RoundCounts,
    serving::{ReplicaState, Serving},
};
use crate::{
    action::{Action, AttemptRun},
    cluster::{Cluster, Endpoint},
    ending::TaskResult,
    event::ProgramExit,
    id::{ContainerId, NodeName},
    time::Time,
    view::TaskState,
};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    sync::Arc,
    vec::Vec,
};
use core::mem;

/// Key of a task inside the core. [`crate::id::TaskId`] is its public name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    pub(super) role: usize,
    pub(super) index: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoleState {
    /// Number of desired tasks and those stopped on request; tasks beyond are dropped.
    pub(super) want: u32,
    /// Current tasks, followed by dropped ones.
    pub(super) tasks: Vec<Task>,
    /// Tasks that wait for a container, by memory size.
    pub(super) requested: BTreeMap<u64, BTreeSet<u32>>,
    /// Number of tasks in each state, without dropped ones.
    counts: [u32; STATES],
    /// Times of recent failures, within the restart window.
    pub(super) failures: VecDeque<Time>,
    /// Number of tasks that failed permanently.
    pub(super) failed: u32,
    /// True once every task has run, if other roles depend on it.
    pub(super) all_ran: bool,
    /// State of a serving role.
    pub(super) serving: Option<Serving>,
}

const STATES: usize = TaskState::Stopped as usize + 1;

impl RoleState {
    pub(super) fn count(&self, state: TaskState) -> u32 {
        self.counts[state as usize]
    }

    /// Returns the number of tasks that have an address or need none any more.
    pub(super) fn reachable(&self) -> u32 {
        let with = [
            TaskState::Ready,
            TaskState::Starting,
            TaskState::Running,
            TaskState::Succeeded,
            TaskState::Failed,
            TaskState::Stopped,
        ];
        with.into_iter().map(|state| self.count(state)).sum()
    }

    /// Returns the number of tasks with a container.
    pub(super) fn holding(&self) -> u32 {
        let with = [
            TaskState::Launching,
            TaskState::Ready,
            TaskState::Starting,
            TaskState::Running,
            TaskState::Restarting,
            TaskState::Stopping,
        ];
        with.into_iter().map(|state| self.count(state)).sum()
    }

    pub(super) fn total(&self) -> u32 {
        self.counts.iter().sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) phase: Phase,
    /// Number of the attempt, from 1.
    pub(super) attempt: u32,
    /// Round in which it runs or will run.
    pub(super) round: u32,
    /// Pending round it is a member of.
    pub(super) pending: Option<u32>,
    /// Memory of the next container; it may grow after a memory kill.
    pub(super) memory_mib: u64,
    /// Removed by scaling down.
    pub(super) dropped: bool,
    /// Stopped on request: it does not run again and does not count as an instance.
    pub(super) stopped: bool,
    pub(super) failures: VecDeque<Time>,
    /// Number of consecutive attempts that ended by node faults.
    pub(super) node_faults: u32,
    /// Current or last node.
    pub(super) node: Option<NodeName>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) cluster: Option<Arc<Cluster>>,
    /// Exit of its program, until it is evaluated.
    pub(super) exit: Option<ProgramExit>,
    pub(super) last_ending: Option<String>,
    /// True once its program has run.
    pub(super) has_run: bool,
    /// Time at which its current or last program was reported to run.
    pub(super) ran_from: Option<Time>,
    /// Attempt it was told to run, until it has ended for its peers.
    pub(super) live_run: Option<AttemptRun>,
    /// Variables of this task alone.
    pub(super) env: BTreeMap<String, String>,
    /// Its state as a replica of a serving role.
    pub(super) replica: ReplicaState,
}

/// Phase of a task, with the data of that phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for its backoff.
    BackingOff { since: Time, until: Time },
    /// Waits for a container.
    Requested { since: Time },
    /// Its container is being launched.
    Launching { on: ContainerId, since: Time },
    /// Its launch was accepted, and its agent is not ready.
    Joining { on: ContainerId, since: Time },
    /// Its agent holds the ports and waits for the round.
    Ready { on: ContainerId, since: Time },
    /// Its agent was told to run the program.
    Starting { on: ContainerId, since: Time },
    /// Its program runs.
    Running { on: ContainerId, since: Time },
    /// Its agent was told to stop the program and be ready for a new round.
    Restarting {
        on: ContainerId,
        since: Time,
        /// True once the program has ended and the agent checks the inputs again, since then.
        ended: bool,
    },
    /// Its agent was told to stop the program, upload the outputs if requested, and exit.
    Stopping { on: ContainerId, since: Time, save: bool, then: NextStep },
    /// Its container is being released. The task is not replaced until the container has ended or
    /// its agent, if partitioned, has stopped by itself.
    Releasing { on: ContainerId, since: Time, until: Time, then: NextStep },
    /// The task has finished.
    Finished { since: Time, result: TaskResult },
}

/// Next step of a task after the release of its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Finish with this result.
    Finish(TaskResult),
    /// Ask for another container at this time.
    Retry { at: Time },
    /// Determine the ending from the exit of the container.
    Diagnose,
}

impl Phase {
    /// Returns true if the task has failed permanently, or will have once its container is
    /// released.
    pub(super) fn has_failed(&self) -> bool {
        match self {
            Phase::Finished { result, .. }
            | Phase::Stopping { then: NextStep::Finish(result), .. }
            | Phase::Releasing { then: NextStep::Finish(result), .. } => {
                matches!(result, TaskResult::Failed(_))
            }
            _ => false,
        }
    }

    pub(super) fn container(&self) -> Option<&ContainerId> {
        match self {
            Phase::BackingOff { .. } | Phase::Requested { .. } | Phase::Finished { .. } => None,
            Phase::Launching { on, .. }
            | Phase::Joining { on, .. }
            | Phase::Ready { on, .. }
            | Phase::Starting { on, .. }
            | Phase::Running { on, .. }
            | Phase::Restarting { on, .. }
            | Phase::Stopping { on, .. }
            | Phase::Releasing { on, .. } => Some(on),
        }
    }

    /// Returns true if the program has succeeded.
    pub(super) fn has_succeeded(&self) -> bool {
        match self {
            Phase::Finished { result, .. }
            | Phase::Stopping { then: NextStep::Finish(result), .. } => {
                *result == TaskResult::Succeeded
            }
            _ => false,
        }
    }

    pub(super) fn since(&self) -> Time {
        match self {
            Phase::BackingOff { since, .. }
            | Phase::Requested { since }
            | Phase::Launching { since, .. }
            | Phase::Joining { since, .. }
            | Phase::Ready { since, .. }
            | Phase::Starting { since, .. }
            | Phase::Running { since, .. }
            | Phase::Restarting { since, .. }
            | Phase::Stopping { since, .. }
            | Phase::Releasing { since, .. }
            | Phase::Finished { since, .. } => *since,
        }
    }

    pub(super) fn state(&self) -> TaskState {
        match self {
            Phase::BackingOff { .. } => TaskState::BackingOff,
            Phase::Requested { .. } => TaskState::Requested,
            Phase::Launching { .. } | Phase::Joining { .. } => TaskState::Launching,
            Phase::Ready { .. } => TaskState::Ready,
            Phase::Starting { .. } => TaskState::Starting,
            Phase::Running { .. } => TaskState::Running,
            Phase::Restarting { .. } => TaskState::Restarting,
            Phase::Stopping { .. } | Phase::Releasing { .. } => TaskState::Stopping,
            Phase::Finished { result, .. } => TaskState::from(result),
        }
    }

    /// Returns the task's contribution to the counts of its pending round.
    pub(super) fn share(&self) -> RoundCounts {
        let holds = match self {
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Restarting { .. } => true,
            Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. }
            | Phase::Finished { .. } => false,
        };
        let releasing = matches!(self, Phase::Stopping { .. } | Phase::Releasing { .. });
        RoundCounts {
            members: 1,
            ready: u32::from(matches!(self, Phase::Ready { .. })),
            requested: u32::from(matches!(self, Phase::Requested { .. })),
            holds: u32::from(holds),
            restarting: u32::from(matches!(self, Phase::Restarting { .. })),
            releasing: u32::from(releasing),
        }
    }
}

impl Job {
    /// Sets the phase of a task and updates all counters.
    pub(super) fn set_phase(&mut self, key: TaskKey, phase: Phase) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        let old = mem::replace(&mut task.phase, phase);
        let new = &task.phase;
        task.has_run |= matches!(new, Phase::Running { .. });
        match new {
            Phase::Starting { .. } => task.ran_from = None,
            Phase::Running { since, .. } => task.ran_from = Some(*since),
            _ => {}
        }
        let keeps_served = self.mutant.is(Mutant::KeepsServedReplicas);
        task.replica.phase_changed(&old, new, keeps_served);
        if !task.dropped {
            role.counts[old.state() as usize] -= 1;
            role.counts[new.state() as usize] += 1;
        }
        if let Phase::Requested { .. } = old
            && let Some(tasks) = role.requested.get_mut(&task.memory_mib)
        {
            tasks.remove(&key.index);
            if tasks.is_empty() {
                role.requested.remove(&task.memory_mib);
            }
        }
        if let Phase::Requested { .. } = new {
            role.requested.entry(task.memory_mib).or_default().insert(key.index);
        }
        if let Some(old_container) = old.container()
            && new.container() != Some(old_container)
        {
            self.held.remove(old_container);
        }
        let success_changed = old.has_succeeded() != new.has_succeeded();
        // A task that is told to stop may need its peers until its program has ended.
        let may_need_peers =
            matches!(new, Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. });
        if let Some(round) = task.pending {
            let share = new.share();
            self.update_counts(round, key.role, old.share(), share);
        }
        if !may_need_peers && !self.mutant.is(Mutant::HidesLostAttempts) {
            self.retire_run(key);
        }
        if success_changed && let Some(round) = self.newcomers_of(key.role) {
            // The minimum of the newcomers may have changed.
            self.update_wait_times(round);
        }
        self.arm(key);
    }

    /// Marks the task's attempt as ended for its peers.
    pub(super) fn retire_run(&mut self, key: TaskKey) {
        let run = self.task_mut(key).live_run.take();
        self.retired.extend(run);
    }

    /// Emits the attempts that ended for their peers.
    pub(super) fn report_retired(&mut self, out: &mut Vec<Action>) {
        out.extend(self.retired.drain(..).map(Action::AttemptOver));
    }

    /// Removes a dropped task from the counters of its role.
    pub(super) fn uncount(&mut self, key: TaskKey) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        if !mem::replace(&mut task.dropped, true) {
            role.counts[task.phase.state() as usize] -= 1;
            role.failed -= u32::from(task.phase.has_failed());
        }
    }

    /// Returns a dropped task to the counters of its role.
    pub(super) fn recount_task(&mut self, key: TaskKey) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        if mem::replace(&mut task.dropped, false) {
            role.counts[task.phase.state() as usize] += 1;
        }
    }

    /// Appends tasks to a role, in the given round.
    pub(super) fn add_tasks(&mut self, role: usize, count: u32, round: u32) {
        let memory_mib = self.spec.roles[role].resources.memory_mib;
        for _ in 0..count {
            let state = &mut self.roles[role];
            let index = state.tasks.len() as u32;
            state.tasks.push(Task {
                phase: Phase::Requested { since: self.now },
                attempt: 1,
                round,
                pending: None,
                memory_mib,
                dropped: false,
                stopped: false,
                failures: VecDeque::new(),
                node_faults: 0,
                node: None,
                endpoint: None,
                cluster: None,
                exit: None,
                last_ending: None,
                has_run: false,
                ran_from: None,
                live_run: None,
                env: BTreeMap::new(),
                replica: ReplicaState::default(),
            });
            state.want += 1;
            state.counts[TaskState::Requested as usize] += 1;
            state.requested.entry(memory_mib).or_default().insert(index);
            let key = TaskKey { role, index };
            if self.starts_together(role) {
                self.join_pending_round(key, round);
            }
            self.arm(key);
        }
    }

    /// Ends a task.
    pub(super) fn finish_task(&mut self, key: TaskKey, result: TaskResult) {
        let since = self.now;
        self.set_phase(key, Phase::Finished { since, result });
    }

    /// Asks for a container.
    pub(super) fn ask(&mut self, key: TaskKey) {
        self.set_phase(key, Phase::Requested { since: self.now });
    }

    /// Returns true if a program may run in the task's container.
    pub(super) fn may_run(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        match &task.phase {
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Restarting { .. } => true,
            Phase::Stopping { .. } | Phase::Releasing { .. } => task.exit.is_none(),
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Finished { .. } => false,
        }
    }
}
