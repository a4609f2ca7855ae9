//! A finished job has released every container, and no program runs.

use super::{
    super::{cluster::Container, shell::Shell},
    Checks,
};
use ydl_core::{ContainerId, Outcome, spec::RoleSpec};

impl Checks {
    pub fn released(&mut self, container: &ContainerId) {
        self.given_back.insert(container.clone());
    }

    pub fn finished(&mut self, now: u64, outcome: &Outcome) {
        self.finishes += 1;
        assert_eq!(self.finishes, 1, "finished twice");
        assert_eq!(Some(outcome), self.outcome.as_ref(), "finished as decided");
        self.finished_at.get_or_insert(now);
    }

    /// A new master finds that the job was over when the old one died.
    pub fn found_finished(&mut self, now: u64, outcome: Option<Outcome>) {
        assert_eq!(outcome, self.outcome, "finished as decided");
        self.finished_at.get_or_insert(now);
    }

    /// Everything is over.
    pub fn at_the_end(&self, containers: &[Container], shell: &Shell) {
        assert!(self.finished_at.is_some(), "the job never finished");
        for container in &self.granted {
            assert!(
                self.given_back.contains(container) || self.told_ended.contains(container),
                "{container} was not given back"
            );
        }
        for container in containers.iter().filter(|it| self.granted.contains(&it.id)) {
            assert!(container.dead, "{} still runs", container.id);
        }
        assert!(self.live.is_empty(), "a program still runs");
        let job = shell.job.as_ref().expect("somebody is there at the end");
        assert!(job.is_finished() && job.asks().asks.is_empty(), "nothing is asked for");
        if self.calm {
            let tasks = self.spec.task_count() as usize;
            // Tasks that start after others may never be requested.
            let waits = |role: &RoleSpec| !role.depends_on.is_empty() || role.is_sidecar();
            let wait = self.spec.roles.iter().any(waits);
            for used in [self.granted.len(), self.launched.len()] {
                let few = used == tasks || (wait && used < tasks);
                assert!(few, "a calm job wastes no container: {used} of {tasks}");
            }
            let failed = matches!(self.outcome, Some(Outcome::Failed(_)));
            assert!(!failed, "a calm job fails");
        }
    }
}
