//! Where a task is. Everything that is counted about tasks changes in [`Job::set_place`] and nowhere else.

use super::{Job, Mutant, timers::Timer};
use crate::{
    cluster::{Cluster, Endpoint},
    ending::{TaskResult, Wait},
    event::Exit,
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
    /// How many tasks it should have; those beyond are on their way out.
    pub(super) want: u32,
    pub(super) tasks: Vec<Task>,
    /// Tasks that wait for a container, by the memory they need.
    pub(super) asked: BTreeMap<u64, BTreeSet<u32>>,
    /// Tasks in each state, those on their way out left aside.
    counts: [u32; STATES],
    /// When tasks failed, as far as the restart policy remembers.
    pub(super) failures: VecDeque<Time>,
    /// Tasks that failed for good.
    pub(super) lost: u32,
}

const STATES: usize = TaskState::Stopped as usize + 1;

impl RoleState {
    pub(super) fn count(&self, state: TaskState) -> u32 {
        self.counts[state as usize]
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
    /// On its way out: the role was made smaller.
    pub(super) dropped: bool,
    pub(super) failures: VecDeque<Time>,
    /// Containers in a row in which its agent never got as far as the program.
    pub(super) false_starts: u32,
    /// The node it is or was last on.
    pub(super) node: Option<NodeName>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) cluster: Option<Arc<Cluster>>,
    /// How its program ended, until that is judged.
    pub(super) exit: Option<Exit>,
    pub(super) last_ending: Option<String>,
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
    Rewinding { on: ContainerId, since: Time },
    /// Its agent was told to stop the program, to copy the outputs if they are wanted, and to leave.
    Stopping {
        on: ContainerId,
        since: Time,
        save: bool,
        then: Then,
    },
    /// Its container was given back or is being ended; nothing may run in its stead until it is gone.
    Leaving {
        on: ContainerId,
        since: Time,
        then: Then,
    },
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
    /// Disappear: the role was made smaller.
    Vanish,
    /// Be judged by how the container ended.
    Judge,
}

impl Place {
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
            Place::Rewinding { .. } => TaskState::Rewinding,
            Place::Stopping { .. } | Place::Leaving { .. } => TaskState::Stopping,
            Place::Over { result, .. } => TaskState::from(result),
        }
    }

    /// What it waits for, where that wait has a deadline of its own.
    pub(super) fn wait(&self) -> Option<Wait> {
        match self {
            Place::Launching { .. } => Some(Wait::Launch),
            Place::Joining { .. } => Some(Wait::Join),
            Place::Starting { .. } => Some(Wait::Start),
            Place::Rewinding { .. } | Place::Stopping { .. } => Some(Wait::Stop),
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Ready { .. }
            | Place::Running { .. }
            | Place::Leaving { .. }
            | Place::Over { .. } => None,
        }
    }

    /// Whether it still needs a container that it does not have.
    pub(super) fn short(&self) -> bool {
        match self {
            Place::Idle { .. } | Place::Asked { .. } | Place::Leaving { .. } => true,
            Place::Stopping { .. } => true,
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Starting { .. }
            | Place::Running { .. }
            | Place::Rewinding { .. }
            | Place::Over { .. } => false,
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
            role.asked
                .entry(task.memory_mib)
                .or_default()
                .insert(key.index);
        }
        if let Some(gone) = old.container()
            && new.container() != Some(gone)
        {
            self.held.remove(gone);
        }
        let (ready, short) = (matches!(new, Place::Ready { .. }), new.short());
        if let Some(round) = task.gathering {
            let was = (matches!(old, Place::Ready { .. }), old.short());
            self.recount(round, was, (ready, short));
        }
        self.arm(key);
    }

    /// Takes a task out of its role's numbers: it is on its way out, or gone.
    pub(super) fn uncount(&mut self, key: TaskKey) {
        let role = &mut self.roles[key.role];
        let task = &mut role.tasks[key.index as usize];
        if !mem::replace(&mut task.dropped, true) {
            role.counts[task.place.state() as usize] -= 1;
            let lost = match &task.place {
                Place::Over { result, .. }
                | Place::Stopping {
                    then: Then::Over(result),
                    ..
                } => {
                    matches!(result, TaskResult::Failed(_))
                }
                _ => false,
            };
            role.lost -= u32::from(lost);
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
                false_starts: 0,
                node: None,
                endpoint: None,
                cluster: None,
                exit: None,
                last_ending: None,
            });
            state.want += 1;
            state.counts[TaskState::Asked as usize] += 1;
            state.asked.entry(memory_mib).or_default().insert(index);
            let key = TaskKey { role, index };
            if self.spec.gang.together {
                self.enter_gathering(key, round);
            }
            self.arm(key);
        }
    }

    /// Asks for a container.
    pub(super) fn ask(&mut self, key: TaskKey) {
        self.set_place(key, Place::Asked { since: self.now });
    }

    /// When the task's present state must have ended.
    pub(super) fn deadline(&self, key: TaskKey) -> Option<Time> {
        let d = &self.spec.deadlines;
        let task = self.task(key);
        let place = match &task.place {
            Place::Idle { until, .. } => Some(*until),
            // A gathering has a deadline for all of its members, and tasks that start on their own may wait for
            // each other's containers as long as any of them has one.
            Place::Asked { since } => {
                let alone = task.gathering.is_none() && self.spec.gang.together;
                alone.then(|| *since + d.allocation)
            }
            Place::Launching { since, .. } => Some(*since + d.launch),
            Place::Joining { since, .. } => Some(*since + d.join),
            Place::Starting { .. } if self.mutant.is(Mutant::NoStartDeadline) => None,
            Place::Starting { since, .. } => Some(*since + d.start),
            Place::Rewinding { since, .. } => Some(*since + (d.grace + d.stop)),
            Place::Stopping { since, save, .. } => {
                let saving = *save && !self.spec.outputs.is_empty();
                let end = *since + (d.grace + d.stop);
                Some(if saving { end + d.save } else { end })
            }
            Place::Leaving { since, .. } => Some(*since + (d.grace + d.stop)),
            Place::Ready { .. } | Place::Running { .. } | Place::Over { .. } => None,
        };
        let leaving = matches!(task.place, Place::Leaving { .. });
        let held = task.place.container().and_then(|on| self.held.get(on));
        let quiet = held.and_then(|held| held.quiet).filter(|_| !leaving);
        let silence = quiet.map(|since| since + d.silence);
        if self.mutant.is(Mutant::WaitsForTheSilent) {
            return place;
        }
        match (place, silence) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn arm(&mut self, key: TaskKey) {
        let at = self.deadline(key);
        self.timers.arm(Timer::Task(key), at);
    }
}
