//! Invariants of elastic roles.

use super::{
    checks::Checks,
    world::{Happening, World},
};
use ydl_core::{
    Action, Cluster, Event, HistoryKind, Job, ProgramExit,
    history::Disposition,
    spec::{ResizePolicy, RoleSpec},
    view::{TaskState, TaskView},
};

/// Time in milliseconds after the last fault until an elastic role has all tasks there is room for:
/// its nodes are back and readmitted, and every wait for lost containers is over.
pub const WHOLE_AFTER: u64 = 300_000;

impl Checks {
    /// Returns true if running tasks of this role are notified of other members.
    pub fn is_told(&self, role: &RoleSpec) -> bool {
        role.elastic.is_some() && self.spec.gang.resize == ResizePolicy::Notify
    }

    /// Notified rounds have a valid size and ranks without gaps, unless a notified task is done, as
    /// the event may just have reported, and the others are about to be.
    pub fn sizes_are_right(&self, event: Option<&Event>, cluster: &Cluster) {
        let just = match event {
            Some(Event::Exited { container, exit, .. }) => {
                (exit.code == Some(0)).then_some(container)
            }
            _ => None,
        };
        let done = self.done.iter().map(|(id, _)| id).chain(just);
        let done: Vec<_> = done.filter_map(|id| self.launched_as(id)).collect();
        let almost = |role: &RoleSpec| self.is_told(role) && done.contains(&&role.name);
        self.sizes_fit(cluster, almost);
    }

    fn sizes_fit(&self, cluster: &Cluster, almost_done: impl Fn(&RoleSpec) -> bool) {
        let roles = self.spec.roles.iter();
        for role in roles.filter(|role| !role.is_sidecar()) {
            let member = cluster.role(role.name.as_str());
            let member = member.expect("every role is in a cluster");
            let indexes: Vec<u32> = member.indexes().collect();
            let count = member.instances as usize;
            assert_eq!(indexes.len(), count, "a cluster knows its numbers");
            assert_eq!(member.endpoints.len(), count, "a cluster knows its numbers");
            assert!(indexes.is_sorted() || self.is_told(role), "indexes ascend");
            if let Some(range) = role.elastic {
                let fits = (range.min..=range.max).contains(&member.instances);
                // Finished notified tasks keep their number, whatever tasks were lost before.
                let done = self.is_told(role) && self.have_won(role, &indexes);
                assert!(
                    fits || done || almost_done(role),
                    "a round of {} {}s",
                    member.instances,
                    role.name
                );
            }
        }
        let ranks = cluster.tasks().map(|task| cluster.rank(&task));
        let dense = ranks.eq(0..cluster.world_size());
        assert!(dense, "ranks without holes: {cluster:?}");
    }

    /// Restarts and notifications happen only after a change, and not too early.
    pub fn changes_have_causes(&mut self, job: &Job, event: &Event, actions: &[Action]) {
        let mut lost = matches!(event, Event::ScaleRequested { .. });
        for action in actions {
            let Action::Record(fact) = action else {
                continue;
            };
            match &fact.kind {
                HistoryKind::AttemptEnded { disposition: next, .. } => {
                    self.causes += u64::from(*next != Disposition::Done);
                    lost |= *next != Disposition::Done;
                }
                HistoryKind::RoleScaled { .. } => {
                    self.causes += 1;
                    lost = true;
                }
                HistoryKind::RoundRestarted { task: because, .. } => {
                    self.broken += 1;
                    let role = self.spec.role(&because.role);
                    let signalled = matches!(
                        event,
                        Event::Exited { exit: ProgramExit { container_signalled: true, .. }, .. }
                    );
                    self.causes += u64::from(signalled);
                    if role.is_some_and(|it| it.elastic.is_some()) && !lost && !signalled {
                        self.newcomers_interrupt(job, event, because.role.as_str());
                    }
                }
                HistoryKind::MembersChanged { .. } => self.broken += 1,
                _ => {}
            }
        }
        let causes = self.causes + self.launches();
        assert!(
            self.broken <= causes,
            "{} new rounds or changes, and {causes} causes",
            self.broken
        );
        if let Event::Ready { container, round, .. } = event {
            self.ready.insert((container.clone(), *round));
        }
        if let Event::Exited { container, round, exit } = event
            && exit.code == Some(0)
        {
            self.done.insert((container.clone(), *round));
        }
    }

    fn newcomers_interrupt(&self, job: &Job, event: &Event, role: &str) {
        let view = job.view();
        let theirs = |task: &&TaskView| task.task.role.as_str() == role;
        // Members of earlier orders may be gone: the running round is the newest one ordered.
        if let Some(newest) = self.newest_round() {
            let mut done = self.done.iter();
            let done = done.find(|(id, round)| {
                let of_role = self.launched_as(id).is_some_and(|it| it.as_str() == role);
                *round == newest && of_role && !self.is_condemned(id)
            });
            assert!(done.is_none(), "those who are done start again: {done:?}");
        }
        let Event::Ready { container, round, .. } = event else {
            return;
        };
        if self.ready.contains(&(container.clone(), *round)) {
            return;
        }
        let mut tasks = view.tasks.iter().filter(theirs);
        let missing = tasks.find(|task| {
            matches!(
                task.state,
                TaskState::Requested | TaskState::BackingOff | TaskState::Launching
            )
        });
        assert!(missing.is_none(), "interrupted for one while others may come: {missing:?}");
    }
}

impl World {
    /// Long after the last fault, elastic roles have all tasks there is room for.
    pub fn must_be_whole(&mut self) {
        let Some(job) = self.shell.job.as_ref().filter(|_| self.plan.patient) else {
            return;
        };
        if job.outcome().is_some() || self.checks.any_done() {
            return;
        }
        let avoided = job.asks().avoid;
        let usable = self.nodes.iter().filter(|node| {
            let there = !node.lost && !node.dead && node.cut.is_none();
            there && !avoided.contains(&node.name)
        });
        let room: u32 = usable.map(|node| node.slots).sum();
        let view = job.view();
        let want: u32 = view.roles.iter().map(|role| role.instances).sum();
        if room < want {
            return;
        }
        let elastic = |task: &&TaskView| {
            let role = self.plan.spec.role(&task.task.role);
            role.is_some_and(|it| it.elastic.is_some())
        };
        let mut tasks = view.tasks.iter().filter(elastic);
        let missing = tasks.find(|task| task.state != TaskState::Running);
        assert!(
            missing.is_none(),
            "there is room, and one is still missing: {missing:?}; {}",
            view.reason
        );
    }

    /// Time of the check.
    pub fn plan_whole(&mut self) {
        if self.plan.patient {
            self.after(WHOLE_AFTER, Happening::Whole);
        }
    }
}
