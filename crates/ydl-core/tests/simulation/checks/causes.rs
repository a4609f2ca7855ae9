//! A job that fails because of a program fails because of the first one.

use super::Checks;
use std::collections::BTreeSet;
use ydl_core::{
    Action, Cause, ContainerId, Ending, Event, HistoryKind, Job, Outcome, ProgramExit,
    spec::RoleSpec, view::TaskState,
};

/// Output of a program that lost a peer.
pub const PEER_LOSS: &str = "RuntimeError: Connection closed by peer";
/// Output of a program that fails by itself.
pub const OWN_ERROR: &str =
    "Traceback (most recent call last):\n  File \"a.py\"\nOSError: disk full";

/// Returns the output of a program that ends with this code.
pub fn stderr_tail(code: Option<i32>) -> &'static str {
    match code {
        Some(1) => PEER_LOSS,
        Some(2) => OWN_ERROR,
        _ => "",
    }
}

/// Exits that the core has heard of.
#[derive(Default)]
pub struct Causes {
    heard: BTreeSet<(ContainerId, u32)>,
}

impl Checks {
    /// An error of a program itself replaces the loss of a peer.
    pub(super) fn cause_is_first(
        &mut self,
        job: &Job,
        event: &Event,
        before: Option<&Outcome>,
        actions: &[Action],
    ) {
        let Event::Exited { container, round, exit } = event else {
            return;
        };
        let new = self.causes_heard.heard.insert((container.clone(), *round));
        let stopped = job.view().tasks.into_iter().find(|task| {
            let here = task.container.as_ref() == Some(container) && task.round == *round;
            here && task.state == TaskState::Stopping
        });
        let Some(task) = stopped.filter(|_| new && is_own(exit) && is_peer_loss(before)) else {
            return;
        };
        if self.spec.role(&task.task.role).is_some_and(RoleSpec::is_sidecar) {
            return;
        }
        let found = actions.iter().any(|action| match action {
            Action::Record(fact) => matches!(fact.kind, HistoryKind::CauseFound { .. }),
            _ => false,
        });
        assert!(found, "{} failed by itself, and is not the cause", task.task);
    }

    /// A cause is replaced only by one that precedes it.
    pub(super) fn cause_found(&mut self, cause: &Cause) {
        let Some(Outcome::Failed(Cause::Task { stderr_tail, container, .. })) = &self.outcome
        else {
            panic!("a cause was found for {:?}", self.outcome);
        };
        let Cause::Task { stderr_tail: found, container: by, ending, .. } = cause else {
            panic!("found a cause that is no task: {cause}");
        };
        // A program may exit because a process of it was killed for its memory.
        let explains = matches!(ending, Ending::MemoryLimit { .. });
        assert!(container != by || explains, "the cause is the same");
        let later = stderr_tail == OWN_ERROR && found == PEER_LOSS;
        assert!(!later, "a lost peer replaced an error of a program itself");
        let outcome = Outcome::Failed(cause.clone());
        self.decided(&outcome);
        self.outcome = Some(outcome);
    }
}

fn is_own(exit: &ProgramExit) -> bool {
    exit.stderr_tail == OWN_ERROR && exit.port_taken.is_none() && !exit.outdated
}

fn is_peer_loss(outcome: Option<&Outcome>) -> bool {
    match outcome {
        Some(Outcome::Failed(Cause::Task { ending, stderr_tail, .. })) => {
            let exited = matches!(ending, Ending::Exited { .. });
            exited && stderr_tail == PEER_LOSS
        }
        _ => false,
    }
}
