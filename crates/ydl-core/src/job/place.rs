//! Where a task is. Everything that is counted about tasks changes in [`Job::set_place`] and nowhere else.

use super::{Job, Mutant, gather::Share};
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
    pub(super) lost: u32,
    /// Every task of it has run, where others wait for that.
    pub(super) begun: bool,
}

const STATES: usize = TaskState::Stopped as usize + 1;

impl RoleState {
    pub(super) fn count(&self, state: TaskState) -> u32 {
        self.counts[state as usize]
    }

    /// How many tasks are reached by their peers, or need not be any more.
    pub(super) fn there(&self) -> u32 {
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

    pub(super) fn counted(&self) -> u32 {
        self.counts.iter().sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) place: Place,
    /// Which try this is, from 1.
    pub(super) attempt: u32,
    /// The round it runs in, or will.
    pub(super) round: u32,
    /// The round it waits for together with others; nobody waits for it once that has begun.
    pub(super) gathering: Option<u32>,
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
    pub(super) ran: bool,
    /// What it was told to run, until that is over for its peers.
    pub(super) speaks: Option<Run>,
}

/// Where a task is, with what is known there and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits before it asks again.
    Idle { since: Time, until: Time },
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
    Rewinding {
        on: ContainerId,
        since: Time,
        /// The program has ended, and the task's data is looked at again: since then.
        ended: bool,
    },
    /// Its agent was told to stop the program, to copy the outputs if they are wanted, and to leave.
    Stopping { on: ContainerId, since: Time, save: bool, then: Then },
    /// Its container was given back or is being ended; nothing may run in its stead until it is gone, or until
    /// its agent, were it cut off from us, would have stopped by itself.
    Leaving { on: ContainerId, since: Time, until: Time, then: Then },
    /// It is over.
    Over { since: Time, result: TaskResult },
}

/// What a task does once it is rid of its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing more.
    Over(TaskResult),
    /// Ask for another container at this time.
    Again { at: Time },
    /// Be judged by how the container ended.
    Judge,
}

impl Place {
    /// Whether its task has failed for good, or has when what is left of it is gone.
    pub(super) fn failed_for_good(&self) -> bool {
        match self {
            Place::Over { result, .. }
            | Place::Stopping { then: Then::Over(result), .. }
            | Place::Leaving { then: Then::Over(result), .. } => {
                matches!(result, TaskResult::Failed(_))
            }
            _ => false,
        }
    }

    pub(super) fn container(&self) -> Option<&ContainerId> {
        match self {
            Place::Idle { .. } | Place::Asked { .. } | Place::Over { .. } => None,
            Place::Launching { on, .. }
            | Place::Joining { on, .. }
            | Place::Ready { on, .. }
            | Place::Starting { on, .. }
            | Place::Running { on, .. }
            | Place::Rewinding { on, .. }
            | Place::Stopping { on, .. }
            | Place::Leaving { on, .. } => Some(on),
        }
    }

    /// Whether its program has succeeded, and nothing has come between.
    pub(super) fn has_won(&self) -> bool {
        match self {
            Place::Over { result, .. } | Place::Stopping { then: Then::Over(result), .. } => {
                *result == TaskResult::Succeeded
            }
            _ => false,
        }
    }

    pub(super) fn since(&self) -> Time {
        match self {
            Place::Idle { since, .. }
            | Place::Asked { since }
            | Place::Launching { since, .. }
            | Place::Joining { since, .. }
            | Place::Ready { since, .. }
            | Place::Starting { since, .. }
            | Place::Running { since, .. }
            | Place::Rewinding { since, .. }
            | Place::Stopping { since, .. }
            | Place::Leaving { since, .. }
            | Place::Over { since, .. } => *since,
        }
    }

    pub(super) fn state(&self) -> TaskState {
        match self {
            Place::Idle { .. } => TaskState::BackingOff,
            Place::Asked { .. } => TaskState::Asked,
            Place::Launching { .. } | Place::Joining { .. } => TaskState::Launching,
            Place::Ready { .. } => TaskState::Ready,
            Place::Starting { .. } => TaskState::Starting,
            Place::Running { .. } => TaskState::Running,
            Place::Rewinding { .. } => TaskState::Restarting,
            Place::Stopping { .. } | Place::Leaving { .. } => TaskState::Stopping,
            Place::Over { result, .. } => TaskState::from(result),
        }
    }

    /// What the task adds to the numbers of the gathering it is in.
    pub(super) fn share(&self) -> Share {
        let holds = match self {
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Starting { .. }
            | Place::Running { .. }
            | Place::Rewinding { .. } => true,
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Stopping { .. }
            | Place::Leaving { .. }
            | Place::Over { .. } => false,
        };
        let parting = matches!(self, Place::Stopping { .. } | Place::Leaving { .. });
        Share {
            members: 1,
            ready: u32::from(matches!(self, Place::Ready { .. })),
            asked: u32::from(matches!(self, Place::Asked { .. })),
            holds: u32::from(holds),
            rewinding: u32::from(matches!(self, Place::Rewinding { .. })),
            parting: u32::from(parting),
        }
    }
}

impl Job {
    /// Moves a task, and everything that is counted about it.
    pub(super) fn set_place(&mut self, key: TaskKey, place: Place) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        let old = mem::replace(&mut task.place, place);
        let new = &task.place;
        task.ran |= matches!(new, Place::Running { .. });
        if !task.dropped {
            role.counts[old.state() as usize] -= 1;
            role.counts[new.state() as usize] += 1;
        }
        if let Place::Asked { .. } = old
            && let Some(asked) = role.asked.get_mut(&task.memory_mib)
        {
            asked.remove(&key.index);
            if asked.is_empty() {
                role.asked.remove(&task.memory_mib);
            }
        }
        if let Place::Asked { .. } = new {
            role.asked.entry(task.memory_mib).or_default().insert(key.index);
        }
        if let Some(gone) = old.container()
            && new.container() != Some(gone)
        {
            self.held.remove(gone);
        }
        let won = old.has_won() != new.has_won();
        // Who is told to stop may need its peers for that, until its program has ended.
        let speaks =
            matches!(new, Place::Starting { .. } | Place::Running { .. } | Place::Stopping { .. });
        if let Some(round) = task.gathering {
            let share = new.share();
            self.recount(round, key.role, old.share(), share);
        }
        if !speaks && !self.mutant.is(Mutant::HidesTheGone) {
            self.fall_silent(key);
        }
        if won && let Some(round) = self.newcomers_of(key.role) {
            // Whether they can be done without has changed.
            self.recount_waits(round);
        }
        self.arm(key);
    }

    /// What the task was told to run is over for its peers.
    pub(super) fn fall_silent(&mut self, key: TaskKey) {
        let run = self.task_mut(key).speaks.take();
        self.over.extend(run);
    }

    /// Says which attempts are over.
    pub(super) fn say_over(&mut self, out: &mut Vec<Action>) {
        out.extend(self.over.drain(..).map(Action::AttemptOver));
    }

    /// Takes a task out of its role's numbers: it is on its way out, or gone.
    pub(super) fn uncount(&mut self, key: TaskKey) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        if !mem::replace(&mut task.dropped, true) {
            role.counts[task.place.state() as usize] -= 1;
            role.lost -= u32::from(task.place.failed_for_good());
        }
    }

    /// Counts a task again that was on its way out.
    pub(super) fn recount_task(&mut self, key: TaskKey) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        if mem::replace(&mut task.dropped, false) {
            role.counts[task.place.state() as usize] += 1;
        }
    }

    /// Appends tasks to a role, in the given round.
    pub(super) fn add_tasks(&mut self, role: usize, count: u32, round: u32) {
        let memory_mib = self.spec.roles[role].resources.memory_mib;
        for _ in 0..count {
            let state = &mut self.roles[role];
            let index = state.tasks.len() as u32;
            state.tasks.push(Task {
                place: Place::Asked { since: self.now },
                attempt: 1,
                round,
                gathering: None,
                memory_mib,
                dropped: false,
                failures: VecDeque::new(),
                node_faults: 0,
                node: None,
                endpoint: None,
                cluster: None,
                exit: None,
                last_ending: None,
                ran: false,
                speaks: None,
            });
            state.want += 1;
            state.counts[TaskState::Asked as usize] += 1;
            state.asked.entry(memory_mib).or_default().insert(index);
            let key = TaskKey { role, index };
            if self.gathers(role) {
                self.enter_gathering(key, round);
            }
            self.arm(key);
        }
    }

    /// Ends a task.
    pub(super) fn set_over(&mut self, key: TaskKey, result: TaskResult) {
        let since = self.now;
        self.set_place(key, Place::Over { since, result });
    }

    /// Asks for a container.
    pub(super) fn ask(&mut self, key: TaskKey) {
        self.set_place(key, Place::Asked { since: self.now });
    }

    /// Whether a program may run in the task's container for all we know.
    pub(super) fn may_run(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        match &task.place {
            Place::Starting { .. } | Place::Running { .. } | Place::Rewinding { .. } => true,
            Place::Stopping { .. } | Place::Leaving { .. } => task.exit.is_none(),
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Over { .. } => false,
        }
    }
}
