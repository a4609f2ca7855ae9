//! Reported endings of attempts and of the job are true.

use super::{super::count::counts, Checks};
use ydl_core::{
    Action, Cause, ContainerExit, ContainerId, Ending, Event, HistoryKind, Outcome, Time,
};

impl Checks {
    /// A recovered master does not time out agents for the time without a master.
    pub(super) fn no_fault_of_theirs(&self, event: &Event, actions: &[Action]) {
        let Event::MasterRecovered { live } = event else {
            return;
        };
        let ending = self.outcome.is_some()
            || actions.iter().any(|action| match action {
                Action::Record(fact) => matches!(fact.kind, HistoryKind::JobEnding { .. }),
                _ => false,
            });
        for action in actions {
            if let Action::Release(id) = action {
                let ours = self.ran.contains(id) && !self.condemned.contains(id);
                let alive = live.contains(id) && !self.signalled.contains(id);
                assert!(ending || !ours || !alive, "given up for the master's absence: {id}");
            }
        }
    }

    pub(super) fn ending_is_true(&self, container: &ContainerId, ending: &Ending, event: &Event) {
        match ending {
            Ending::HeartbeatTimeout { .. } => {
                let quiet = self.quiet.contains_key(container);
                assert!(quiet, "called silent after it spoke");
            }
            Ending::Exited { .. } | Ending::Signalled { .. } => {
                if !self.signalled.contains(container) {
                    return;
                }
                let ended = match event {
                    Event::Ended { containers } => containers.iter().any(|(id, end)| {
                        id == container && matches!(end, ContainerExit::Completed { .. })
                    }),
                    _ => false,
                };
                assert!(
                    ended,
                    "a program killed with its container was not judged by the container's end"
                );
            }
            _ => {}
        }
    }

    /// The decided outcome is justified.
    pub(super) fn decided(&self, outcome: &Outcome) {
        if self.requested.contains(outcome) {
            return;
        }
        match outcome {
            Outcome::Succeeded => assert!(self.success(), "success without success"),
            Outcome::Killed { .. } => assert!(self.killed, "killed by nobody"),
            Outcome::Failed(Cause::Task { ending, .. }) => {
                assert!(
                    counts(ending) || self.failures.charges_node(ending),
                    "failed for nobody's fault: {ending}"
                );
                assert!(!self.blameless, "failed for nobody's fault: {ending}");
            }
            Outcome::Failed(Cause::RunTimeout { limit }) => {
                assert!(Time(0) + *limit <= self.now, "too long before its time");
            }
            Outcome::Failed(Cause::NoContainers { .. }) => {
                assert!(!self.calm, "no containers in a calm world");
            }
            Outcome::Failed(Cause::Requested { .. }) => {
                panic!("no request to fail was made");
            }
        }
    }
}
