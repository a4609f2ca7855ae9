//! The failure table, written down a second time: what counts, and what must follow.

use std::collections::{BTreeMap, BTreeSet};
use ydl_core::{
    Ending, JobSpec, RoleName, TaskId, Time,
    ending::TimeoutKind,
    history::Disposition,
    spec::{Completion, RestartScope},
};

/// Returns true if an ending is a failure of the task.
pub fn counts(ending: &Ending) -> bool {
    match ending {
        Ending::Succeeded => false,
        Ending::Preempted | Ending::Lost => false,
        Ending::NodeFault { .. } | Ending::HeartbeatTimeout { .. } | Ending::PortTaken { .. } => {
            false
        }
        Ending::Outdated => false,
        Ending::TimedOut { timeout: wait, .. } => {
            matches!(wait, TimeoutKind::Start | TimeoutKind::Stop | TimeoutKind::Serve)
        }
        Ending::Exited { .. } | Ending::Signalled { .. } | Ending::NotStarted { .. } => true,
        Ending::SetupFailed { .. } | Ending::AgentDied { .. } | Ending::MemoryLimit { .. } => true,
        Ending::UploadFailed { .. } => true,
    }
}

pub struct Failures {
    spec: JobSpec,
    wants: BTreeMap<RoleName, u32>,
    of_roles: BTreeMap<RoleName, Vec<Time>>,
    of_tasks: BTreeMap<TaskId, Vec<Time>>,
    node_faults: BTreeMap<TaskId, u32>,
    lost: BTreeSet<TaskId>,
    /// Number of lost tasks whose peers may have failed because of them.
    excuses: usize,
    /// The service has served, or is updated: failures of its replicas do not end the job.
    pub outlives: bool,
}

impl Failures {
    pub fn new(spec: &JobSpec) -> Failures {
        let sizes = spec.roles.iter();
        Failures {
            wants: sizes.map(|it| (it.name.clone(), it.instances)).collect(),
            spec: spec.clone(),
            of_roles: BTreeMap::new(),
            of_tasks: BTreeMap::new(),
            node_faults: BTreeMap::new(),
            lost: BTreeSet::new(),
            excuses: 0,
            outlives: false,
        }
    }

    pub fn want(&self, role: &RoleName) -> u32 {
        self.wants[role]
    }

    pub fn lost(&self, task: &TaskId) -> bool {
        self.lost.contains(task)
    }

    /// Its node ends a container: failures of its peers may follow from that.
    pub fn excuse(&mut self) {
        self.excuses += 1;
    }

    pub fn charges_node(&self, ending: &Ending) -> bool {
        matches!(
            ending,
            Ending::NodeFault { .. }
                | Ending::PortTaken { .. }
                | Ending::Outdated
                | Ending::HeartbeatTimeout { .. }
                | Ending::TimedOut { timeout: TimeoutKind::Launch | TimeoutKind::Join, .. }
        )
    }

    /// A role has so many tasks, and among them those that were stopped on request.
    pub fn scaled(&mut self, role: &RoleName, to: u32, stopped: &BTreeSet<TaskId>) {
        let from = self.wants[role];
        let is_stopped =
            |index: &u32| stopped.contains(&TaskId { role: role.clone(), index: *index });
        let size = |end: u32| (0..end).filter(|index| !is_stopped(index)).count() as u32;
        let mut end = from;
        while size(end) > to {
            end -= 1;
        }
        while size(end) < to {
            end += 1;
        }
        self.wants.insert(role.clone(), end);
        for index in end..from {
            let task = TaskId { role: role.clone(), index };
            self.lost.remove(&task);
        }
    }

    /// The disposition of an ending matches the policy.
    pub fn ended(&mut self, now: Time, task: &TaskId, ending: &Ending, next: &Disposition) {
        if *next == Disposition::NoAction {
            return;
        }
        if *ending == Ending::Succeeded {
            assert_eq!(*next, Disposition::Done, "after a success");
            return;
        }
        let mut counted = counts(ending);
        if self.charges_node(ending) {
            let faults = self.node_faults.entry(task.clone()).or_default();
            *faults += 1;
            counted = *faults > 5;
        } else {
            self.node_faults.remove(task);
        }
        if !counted {
            self.excuses += 1;
            assert!(matches!(next, Disposition::Retry { .. }), "{ending} is nobody's fault");
            return;
        }
        self.counted(now, task, ending, next);
    }

    fn counted(&mut self, now: Time, task: &TaskId, ending: &Ending, next: &Disposition) {
        let role = self.spec.role(&task.role).expect("every task has a role");
        let failures = match role.restart.scope {
            RestartScope::Task => self.of_tasks.entry(task.clone()).or_default(),
            RestartScope::Role | RestartScope::Job => {
                self.of_roles.entry(task.role.clone()).or_default()
            }
        };
        failures.push(now);
        if let Some(window) = role.restart.window {
            failures.retain(|at| *at + window > now);
        }
        if failures.len() as u32 <= role.restart.limit {
            let again = matches!(next, Disposition::Retry { .. });
            assert!(again, "{task} {ending} within its limit and does not start again");
            return;
        }
        if role.serve.is_some() {
            let ends = *next == Disposition::FailJob && !self.outlives;
            let again = matches!(next, Disposition::Retry { .. });
            assert!(again || ends, "{task} {ending} is not replaced");
            return;
        }
        if *next == Disposition::Suspected {
            assert!(role.elastic.is_some(), "{task} {ending} is doubted");
            failures.pop();
            return;
        }
        // What was counted is forgotten when it turns out that the cluster was the cause.
        let least = failures.len().saturating_sub(self.excuses) as u32;
        if role.elastic.is_some() && least <= role.restart.limit && *next != Disposition::FailJob {
            return;
        }
        let want = self.wants[&task.role];
        let tolerated = match role.completion {
            Completion::Any => role.tolerate.max(want - 1),
            Completion::Sidecar => u32::MAX,
            Completion::All | Completion::Primary | Completion::Service | Completion::Follows => {
                role.tolerate
            }
        };
        let lost = self.lost.iter().filter(|it| it.role == task.role).count() as u32;
        let expected = if lost < tolerated { Disposition::Tolerated } else { Disposition::FailJob };
        assert_eq!(*next, expected, "{task} {ending} beyond its limit");
        self.lost.insert(task.clone());
    }
}
