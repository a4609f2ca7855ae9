//! Invariants of finished and removed tasks: their results are kept, and they are not restarted.

use super::checks::Checks;
use std::collections::{BTreeMap, BTreeSet};
use ydl_core::{
    Action, ContainerId, Event, HistoryKind, Job, NodeName, TaskId, Time,
    history::Disposition,
    spec::{Completion, RestartScope, RoleSpec},
    view::{RoleView, TaskState},
};

/// So long after a failure it is known, in a world where only the cluster takes, that the cluster was its cause.
const CLEARED_AFTER: u64 = 5_000;

/// Finished tasks according to the history so far.
#[derive(Default)]
pub struct Late {
    /// The required tasks are done, and followers run.
    pub followed: bool,
    /// Tasks that have succeeded in the round that runs.
    won: BTreeSet<TaskId>,
    /// Successful programs known to the master.
    heard: BTreeMap<TaskId, ContainerId>,
    /// Nodes that are avoided, and since when.
    avoided: BTreeMap<NodeName, Time>,
}

impl Checks {
    pub fn nobody_is_late(&mut self, job: &Job, event: &Event, actions: &[Action]) {
        // A task that was removed and added again has no outcome any more.
        for action in actions {
            if let Action::Launch { task, .. } = action {
                self.late.won.remove(task);
            }
        }
        let records = actions.iter().filter_map(|action| match action {
            Action::Record(fact) => Some(&fact.kind),
            _ => None,
        });
        let records: Vec<&HistoryKind> = records.collect();
        let lost = records.iter().any(|what| match what {
            HistoryKind::AttemptEnded { disposition: next, .. } => *next != Disposition::Done,
            _ => false,
        });
        let anew = |what: &&HistoryKind| matches!(what, HistoryKind::RoundRestarted { .. });
        let anew = records.iter().any(anew);
        for what in &records {
            self.nothing_is_lost(what, anew);
            self.late_fact(what, event, lost);
        }
        self.success_is_heard(event, actions);
        if !lost {
            self.runners_are_kept(job, &records);
        }
        self.nodes_are_cleared(event);
        self.late.followed = self.is_followed(job);
    }

    fn late_fact(&mut self, what: &HistoryKind, event: &Event, lost: bool) {
        match what {
            HistoryKind::AttemptEnded { task, disposition: next, ending, .. } => match next {
                Disposition::Done => {
                    self.late.won.insert(task.clone());
                }
                Disposition::Retry { .. } if self.late.followed => {
                    // What stands beside the job is there until its end.
                    let kept = [Completion::Follows, Completion::Sidecar];
                    let follows = kept.contains(&self.completion(task));
                    assert!(follows, "{task} {ending}, and nobody needs it any more");
                }
                _ => {}
            },
            HistoryKind::AttemptStarted { task, .. } => {
                self.late.won.remove(task);
            }
            HistoryKind::RoundRestarted { task: because, .. } => {
                self.late_round(because, event, lost)
            }
            HistoryKind::RoleScaled { role, .. } => {
                self.late.heard.retain(|task, _| task.role != *role);
            }
            HistoryKind::NodeExcluded { node, .. } => {
                self.late.avoided.insert(node.clone(), self.now);
            }
            HistoryKind::NodeReadmitted { node } => {
                self.late.avoided.remove(node);
            }
            _ => {}
        }
    }

    /// A restarted round repeats no finished work without need.
    fn late_round(&mut self, because: &TaskId, event: &Event, lost: bool) {
        let role = self.spec.role(&because.role).expect("a role of the job");
        if self.late.followed {
            let follows = role.completion == Completion::Follows;
            assert!(follows, "a new round because of {because}, and all is done");
            return;
        }
        let alone = role.restart.scope == RestartScope::Role;
        let concerned = |task: &TaskId| !alone || task.role == because.role;
        let taken = match event {
            Event::Exited { exit, .. } => exit.container_signalled,
            Event::ScaleRequested { .. } => true,
            _ => false,
        };
        if role.elastic.is_some() && !lost && !taken {
            let beside = [Completion::Service, Completion::Follows, Completion::Sidecar];
            let mut won = self.late.won.iter();
            let won = won.find(|task| concerned(task) && !beside.contains(&self.completion(task)));
            assert!(won.is_none(), "interrupted for newcomers: {won:?}");
        }
        self.late.won.retain(|task| !concerned(task));
        self.late.heard.retain(|task, _| !concerned(task));
    }

    /// The master has heard that a program succeeded, and wants its outputs.
    fn success_is_heard(&mut self, event: &Event, actions: &[Action]) {
        let Event::Exited { container, exit, .. } = event else {
            return;
        };
        let told = actions.iter().any(|action| match action {
            Action::OrderChanged(id) => id == container,
            _ => false,
        });
        if let (Some(0), true, Some(task)) = (exit.code, told, self.launched_task(container)) {
            let task = task.clone();
            self.late.heard.insert(task, container.clone());
        }
    }

    /// Tasks that restart together do so when a successful task lost its outputs: its peers may be
    /// about to end without it.
    fn nothing_is_lost(&self, what: &HistoryKind, anew: bool) {
        let HistoryKind::AttemptEnded {
            task,
            container,
            disposition: Disposition::Retry { .. },
            ..
        } = what
        else {
            return;
        };
        let role = self.spec.role(&task.role).expect("a role of the job");
        let together = self.spec.gang.together && role.restart.scope != RestartScope::Task;
        let won = self.late.heard.get(task).is_some_and(|id| id == container);
        assert!(!together || !won || anew, "the others go on without {task}");
    }

    /// Returns true if all of these tasks are done.
    pub fn have_won(&self, role: &RoleSpec, indexes: &[u32]) -> bool {
        indexes
            .iter()
            .all(|index| self.late.won.contains(&TaskId { role: role.name.clone(), index: *index }))
    }

    /// Scaling down an elastic role removes running tasks last.
    fn runners_are_kept(&self, job: &Job, records: &[&HistoryKind]) {
        let scaled = records.iter().find_map(|what| match what {
            HistoryKind::RoleScaled { role, from, to, .. } if to < from => Some(role),
            _ => None,
        });
        let Some(role) = scaled.and_then(|role| self.spec.role(role)) else {
            return;
        };
        let after =
            records.iter().skip_while(|what| !matches!(what, HistoryKind::RoleScaled { .. }));
        let mut first =
            after.take_while(|what| !matches!(what, HistoryKind::RoundRestarted { .. }));
        let ran = first.any(|what| matches!(what, HistoryKind::AttemptStopped { .. }));
        if role.elastic.is_none() || !ran {
            return;
        }
        let view = job.view();
        let mut tasks = view.tasks.iter().filter(|it| it.task.role == role.name);
        // Tasks that had succeeded restart only now.
        let idle = tasks.find(|task| match task.state {
            TaskState::Requested
            | TaskState::BackingOff
            | TaskState::Launching
            | TaskState::Ready => task.since < self.now,
            _ => false,
        });
        assert!(idle.is_none(), "dropped one that ran and kept {idle:?}");
    }

    /// If only the cluster causes failures, no node is excluded for them.
    fn nodes_are_cleared(&mut self, event: &Event) {
        let now = self.now;
        if let Event::MasterRecovered { .. } = event {
            self.late.avoided.values_mut().for_each(|at| *at = now);
        }
        let mut avoided = self.late.avoided.iter();
        let wronged = avoided.find(|(_, since)| since.0 + CLEARED_AFTER < now.0);
        assert!(
            wronged.is_none() || !self.blameless || self.outcome.is_some(),
            "avoided for nothing: {wronged:?}"
        );
    }

    /// Returns true if the required tasks are done and only followers run.
    fn is_followed(&self, job: &Job) -> bool {
        let roles = job.role_views();
        let view = |role: &RoleSpec| roles.iter().find(|it| it.role == role.name);
        let over = |it: &RoleView| it.succeeded + it.failed == it.instances;
        let mut needed = 0;
        for role in &self.spec.roles {
            let view = view(role).expect("every role has a view");
            let done = match role.completion {
                Completion::All | Completion::Primary => over(view),
                Completion::Any => view.succeeded > 0,
                Completion::Service | Completion::Follows | Completion::Sidecar => continue,
            };
            needed += 1;
            if !done {
                return false;
            }
        }
        needed > 0 && job.outcome().is_none()
    }
}
