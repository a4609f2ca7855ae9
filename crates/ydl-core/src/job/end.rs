//! End of a job: the outcome is decided once, then every task is stopped, its outputs uploaded and
//! its container released.

use super::{Job, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate, timers::Timer};
use crate::{
    action::Action,
    ending::{Cause, Outcome, TaskResult},
    history::HistoryKind,
    spec::{Completion, RoleSpec},
    view::TaskState,
};
use alloc::vec::Vec;

/// Progress of the required roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobProgress {
    Incomplete,
    /// All required roles except followers are done.
    OnlyFollowers,
    Complete,
}

impl Job {
    /// Evaluates the completion rules.
    pub(super) fn done(&self) -> JobProgress {
        if self.suspicion.is_some() {
            return JobProgress::Incomplete;
        }
        let mut needed = 0;
        let mut done = 0;
        let mut others = 0;
        let mut following = false;
        for (at, (spec, role)) in self.spec.roles.iter().zip(&self.roles).enumerate() {
            let succeeded = role.count(TaskState::Succeeded);
            let all = self.is_through(at);
            let role_done = match spec.completion {
                Completion::All | Completion::Primary => {
                    all || (succeeded > 0 && self.mutant.is(Mutant::FirstSuccessIsEnough))
                }
                Completion::Any => succeeded > 0,
                Completion::Service => {
                    others += u32::from(all);
                    continue;
                }
                // A job of sidecars alone ends with them.
                Completion::Sidecar => {
                    others += u32::from(all && !self.stands_beside(at));
                    continue;
                }
                Completion::Follows => {
                    following |= !all;
                    others += u32::from(all);
                    continue;
                }
            };
            if role_done && spec.completion == Completion::Primary {
                return JobProgress::Complete;
            }
            needed += 1;
            done += u32::from(role_done);
        }
        // A job of services or followers alone runs until it is killed or until all of them have
        // ended.
        let ended = match needed {
            0 => {
                let has_say = |at: &usize| !self.stands_beside(*at);
                others as usize == (0..self.roles.len()).filter(has_say).count()
            }
            _ => needed == done,
        };
        match (ended, following) {
            (false, _) => JobProgress::Incomplete,
            (true, true) => JobProgress::OnlyFollowers,
            (true, false) => JobProgress::Complete,
        }
    }

    /// Returns true if the role is a sidecar of other roles. Sidecars without other roles are the
    /// job themselves.
    pub(super) fn stands_beside(&self, role: usize) -> bool {
        let mut roles = self.spec.roles.iter();
        self.spec.roles[role].is_sidecar() && !roles.all(RoleSpec::is_sidecar)
    }

    /// Returns true if every member of the role's round has finished its work.
    pub(super) fn is_through(&self, at: usize) -> bool {
        let role = &self.roles[at];
        // A serving role has no end of its own, even without replicas.
        if role.serving.is_some() {
            return false;
        }
        let forgets = self.mutant.is(Mutant::WaitsForStoppedTasks);
        let stopped = if forgets { 0 } else { role.count(TaskState::Stopped) };
        let over = role.count(TaskState::Succeeded) + role.count(TaskState::Failed) + stopped;
        over == role.want - self.deferred_count(at)
    }

    /// Returns true if the task is not needed any more. Running tasks may continue until the job
    /// ends: some serve the followers.
    pub(super) fn is_spare(&self, key: TaskKey) -> bool {
        let completion = self.spec.roles[key.role].completion;
        match self.done() {
            _ if self.mutant.is(Mutant::RestartsUnneededTasks) => false,
            JobProgress::Incomplete => false,
            JobProgress::OnlyFollowers => {
                matches!(completion, Completion::Service | Completion::Any)
            }
            // A role is done without its newcomers.
            JobProgress::Complete => self.task(key).pending.is_none(),
        }
    }

    /// Stops tasks that need not run and do not run yet: the job must not fail for lack of their
    /// containers.
    fn stop_the_spare(&mut self, out: &mut Vec<Action>) {
        for key in self.task_keys(None) {
            let phase = &self.task(key).phase;
            let runs = matches!(phase, Phase::Starting { .. } | Phase::Running { .. });
            if !runs && self.is_spare(key) {
                self.leave_pending_round(key);
                self.stop_for_good(key, out);
            }
        }
        // Pending rounds may have waited for them.
        self.start_complete_rounds(out);
    }

    /// Returns true if the follow timeout has expired.
    pub(super) fn update_followers(&mut self, done: JobProgress, out: &mut Vec<Action>) -> bool {
        let following = done == JobProgress::OnlyFollowers;
        if following && self.followers_since.is_none() {
            self.stop_the_spare(out);
        }
        self.followers_since = following.then(|| self.followers_since.unwrap_or(self.now));
        let follow = self.spec.timeouts.follow;
        let end = self.followers_since.map(|since| since + follow);
        let end = end.filter(|_| !self.mutant.is(Mutant::NoFollowTimeout));
        self.timers.arm(Timer::Followers, end);
        end.is_some_and(|end| end <= self.now)
    }

    pub(super) fn fail(&mut self, cause: Cause, out: &mut Vec<Action>) {
        if self.stage == Stage::Active {
            self.begin_ending(Outcome::Failed(cause), out);
        }
    }

    /// Decides the outcome, and stops what still runs.
    pub(super) fn begin_ending(&mut self, outcome: Outcome, out: &mut Vec<Action>) {
        let kind = HistoryKind::JobEnding { outcome: outcome.clone() };
        self.record(kind, out);
        self.stage = Stage::Ending(outcome);
        self.timers.clear();
        self.pending_rounds.clear();
        self.suspicion = None;
        for task in self.roles.iter_mut().flat_map(|role| &mut role.tasks) {
            task.pending = None;
        }
        for role in 0..self.roles.len() {
            for index in 0..self.roles[role].tasks.len() as u32 {
                self.stop_for_good(TaskKey { role, index }, out);
            }
        }
    }

    pub(super) fn stop_for_good(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let stopped = NextStep::Finish(TaskResult::Stopped);
        let service = self.spec.roles[key.role].completion == Completion::Service;
        if service && self.mutant.is(Mutant::LeavesServicesRunning) {
            self.advance(key, stopped, out);
            return;
        }
        match self.task(key).phase.clone() {
            Phase::BackingOff { .. } | Phase::Requested { .. } => self.advance(key, stopped, out),
            // No program runs there yet.
            Phase::Launching { .. } | Phase::Joining { .. } | Phase::Ready { .. } => {
                self.release(key, stopped, ContainerFate::Unknown, false, out);
            }
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Restarting { .. } => {
                self.record_stopped(key, out);
                self.release(key, stopped, ContainerFate::AgentAlive, true, out);
            }
            Phase::Stopping { on, since, save, then } => {
                let then = match then {
                    NextStep::Finish(result) => NextStep::Finish(result),
                    NextStep::Retry { .. } | NextStep::Diagnose => stopped,
                };
                let phase = Phase::Stopping { on, since, save, then };
                self.set_phase(key, phase);
            }
            // It has not been released yet.
            Phase::Releasing { then: NextStep::Diagnose, .. } => {
                self.release(key, stopped, ContainerFate::Unknown, false, out)
            }
            // It has been released; no later task can conflict with it.
            Phase::Releasing { then, .. } => {
                let then = match then {
                    NextStep::Finish(result) => NextStep::Finish(result),
                    NextStep::Retry { .. } | NextStep::Diagnose => stopped,
                };
                self.advance(key, then, out);
            }
            Phase::Finished { .. } => {}
        }
    }

    pub(super) fn record_stopped(&self, key: TaskKey, out: &mut Vec<Action>) {
        let kind =
            HistoryKind::AttemptStopped { task: self.id(key), attempt: self.task(key).attempt };
        self.record(kind, out);
    }

    /// Releases containers that still stop, without waiting for the grace period.
    pub(super) fn stop_waiting(&mut self, out: &mut Vec<Action>) {
        let held: Vec<_> = self.held.values().map(|held| held.task).collect();
        for key in held {
            if let Phase::Stopping { then, .. } = self.task(key).phase.clone() {
                self.on_stopped(key, then, ContainerFate::Unknown, None, out);
            }
        }
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Action>) {
        let Stage::Ending(outcome) = self.stage.clone() else {
            return;
        };
        let kind = HistoryKind::JobFinished { outcome: outcome.clone() };
        self.record(kind, out);
        self.report_retired(out);
        self.stage = Stage::Finished(outcome.clone());
        self.timers.clear();
        out.push(Action::Finish(outcome));
    }
}
