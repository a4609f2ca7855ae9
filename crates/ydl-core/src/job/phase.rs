//! Where a task is. Everything that is counted about tasks changes in [`Job::set_place`] and nowhere else.

use super::{Job, Mutant, pending::RoundCounts};
use crate::{
    action::{Action, Run},
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

/// A task inside the core: small, ordered, copied freely. [`crate::id::TaskId`] is its public name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    pub(super) role: usize,
    pub(super) index: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoleState {
    /// How many tasks it should have; those beyond are on their way out, or gone.
    pub(super) want: u32,
    /// Those it has, then those it had when it was larger.
    pub(super) tasks: Vec<Task>,
    /// Tasks that wait for a container, by the memory they need.
    pub(super) asked: BTreeMap<u64, BTreeSet<u32>>,
    /// Tasks in each state, those on their way out left aside.
    counts: [u32; STATES],
    /// When tasks failed, as far as the restart policy remembers.
    pub(super) failures: VecDeque<Time>,
    /// Tasks that failed for good.
    pub(super) failed: u32,
    /// Every task of it has run, where others wait for that.
    pub(super) all_ran: bool,
}

const STATES: usize = TaskState::Stopped as usize + 1;

impl RoleState {
    pub(super) fn count(&self, state: TaskState) -> u32 {
        self.counts[state as usize]
    }

    /// How many tasks are reached by their peers, or need not be any more.
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

    /// How many tasks have a container.
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
    /// Which try this is, from 1.
    pub(super) attempt: u32,
    /// The round it runs in, or will.
    pub(super) round: u32,
    /// The round it waits for together with others; nobody waits for it once that has begun.
    pub(super) pending: Option<u32>,
    /// What the next container must have; it grows after a kill for memory.
    pub(super) memory_mib: u64,
    /// On its way out, or gone: the role was made smaller.
    pub(super) dropped: bool,
    pub(super) failures: VecDeque<Time>,
    /// Attempts in a row that ended through their nodes.
    pub(super) node_faults: u32,
    /// The node it is or was last on.
    pub(super) node: Option<NodeName>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) cluster: Option<Arc<Cluster>>,
    /// How its program ended, until that is judged.
    pub(super) exit: Option<ProgramExit>,
    pub(super) last_ending: Option<String>,
    /// A program of it has run.
    pub(super) has_run: bool,
    /// What it was told to run, until that is over for its peers.
    pub(super) live_run: Option<Run>,
}

/// Where a task is, with what is known there and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits before it asks again.
    BackingOff { since: Time, until: Time },
    /// It waits for a container.
    Asked { since: Time },
    /// Its container is being started.
    Launching { on: ContainerId, since: Time },
    /// Its container runs, its agent has not been heard.
    Joining { on: ContainerId, since: Time },
    /// Its agent holds the ports and waits.
    Ready { on: ContainerId, since: Time },
    /// Its agent was told to run the program.
    Starting { on: ContainerId, since: Time },
    /// Its program runs.
    Running { on: ContainerId, since: Time },
    /// Its agent was told to stop the program and be ready for a new round.
    Restarting {
        on: ContainerId,
        since: Time,
        /// The program has ended, and the task's data is looked at again: since then.
        ended: bool,
    },
    /// Its agent was told to stop the program, to copy the outputs if they are wanted, and to leave.
    Stopping { on: ContainerId, since: Time, save: bool, then: NextStep },
    /// Its container was given back or is being ended; nothing may run in its stead until it is gone, or until
    /// its agent, were it cut off from us, would have stopped by itself.
    Releasing { on: ContainerId, since: Time, until: Time, then: NextStep },
    /// It is over.
    Finished { since: Time, result: TaskResult },
}

/// What a task does once it is rid of its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Nothing more.
    Finish(TaskResult),
    /// Ask for another container at this time.
    Retry { at: Time },
    /// Be judged by how the container ended.
    Diagnose,
}

impl Phase {
    /// Whether its task has failed for good, or has when what is left of it is gone.
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
            Phase::BackingOff { .. } | Phase::Asked { .. } | Phase::Finished { .. } => None,
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

    /// Whether its program has succeeded, and nothing has come between.
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
            | Phase::Asked { since }
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
            Phase::Asked { .. } => TaskState::Asked,
            Phase::Launching { .. } | Phase::Joining { .. } => TaskState::Launching,
            Phase::Ready { .. } => TaskState::Ready,
            Phase::Starting { .. } => TaskState::Starting,
            Phase::Running { .. } => TaskState::Running,
            Phase::Restarting { .. } => TaskState::Restarting,
            Phase::Stopping { .. } | Phase::Releasing { .. } => TaskState::Stopping,
            Phase::Finished { result, .. } => TaskState::from(result),
        }
    }

    /// What the task adds to the numbers of the gathering it is in.
    pub(super) fn share(&self) -> RoundCounts {
        let holds = match self {
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Restarting { .. } => true,
            Phase::BackingOff { .. }
            | Phase::Asked { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. }
            | Phase::Finished { .. } => false,
        };
        let releasing = matches!(self, Phase::Stopping { .. } | Phase::Releasing { .. });
        RoundCounts {
            members: 1,
            ready: u32::from(matches!(self, Phase::Ready { .. })),
            asked: u32::from(matches!(self, Phase::Asked { .. })),
            holds: u32::from(holds),
            restarting: u32::from(matches!(self, Phase::Restarting { .. })),
            releasing: u32::from(releasing),
        }
    }
}

impl Job {
    /// Moves a task, and everything that is counted about it.
    pub(super) fn set_phase(&mut self, key: TaskKey, phase: Phase) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        let old = mem::replace(&mut task.phase, phase);
        let new = &task.phase;
        task.has_run |= matches!(new, Phase::Running { .. });
        if !task.dropped {
            role.counts[old.state() as usize] -= 1;
            role.counts[new.state() as usize] += 1;
        }
        if let Phase::Asked { .. } = old
            && let Some(asked) = role.asked.get_mut(&task.memory_mib)
        {
            asked.remove(&key.index);
            if asked.is_empty() {
                role.asked.remove(&task.memory_mib);
            }
        }
        if let Phase::Asked { .. } = new {
            role.asked.entry(task.memory_mib).or_default().insert(key.index);
        }
        if let Some(gone) = old.container()
            && new.container() != Some(gone)
        {
            self.held.remove(gone);
        }
        let won = old.has_succeeded() != new.has_succeeded();
        // Who is told to stop may need its peers for that, until its program has ended.
        let speaks =
            matches!(new, Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. });
        if let Some(round) = task.pending {
            let share = new.share();
            self.update_counts(round, key.role, old.share(), share);
        }
        if !speaks && !self.mutant.is(Mutant::HidesLostAttempts) {
            self.retire_run(key);
        }
        if won && let Some(round) = self.newcomers_of(key.role) {
            // Whether they can be done without has changed.
            self.update_wait_times(round);
        }
        self.arm(key);
    }

    /// What the task was told to run is over for its peers.
    pub(super) fn retire_run(&mut self, key: TaskKey) {
        let run = self.task_mut(key).live_run.take();
        self.retired.extend(run);
    }

    /// Says which attempts are over.
    pub(super) fn report_retired(&mut self, out: &mut Vec<Action>) {
        out.extend(self.retired.drain(..).map(Action::AttemptOver));
    }

    /// Takes a task out of its role's numbers: it is on its way out, or gone.
    pub(super) fn uncount(&mut self, key: TaskKey) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        if !mem::replace(&mut task.dropped, true) {
            role.counts[task.phase.state() as usize] -= 1;
            role.failed -= u32::from(task.phase.has_failed());
        }
    }

    /// Counts a task again that was on its way out.
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
                phase: Phase::Asked { since: self.now },
                attempt: 1,
                round,
                pending: None,
                memory_mib,
                dropped: false,
                failures: VecDeque::new(),
                node_faults: 0,
                node: None,
                endpoint: None,
                cluster: None,
                exit: None,
                last_ending: None,
                has_run: false,
                live_run: None,
            });
            state.want += 1;
            state.counts[TaskState::Asked as usize] += 1;
            state.asked.entry(memory_mib).or_default().insert(index);
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
        self.set_phase(key, Phase::Asked { since: self.now });
    }

    /// Whether a program may run in the task's container for all we know.
    pub(super) fn may_run(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        match &task.phase {
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Restarting { .. } => true,
            Phase::Stopping { .. } | Phase::Releasing { .. } => task.exit.is_none(),
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::BackingOff { .. }
            | Phase::Asked { .. }
            | Phase::Finished { .. } => false,
        }
    }
}
