//! Allocation timeouts and the release of incomplete gangs.

use super::{Job, Mutant, NextStep, Phase, Stage, release::ContainerFate, timers::Timer};
use crate::{action::Action, ending::Cause, history::HistoryKind, spec::Resources, time::Time};
use alloc::{format, string::String, vec::Vec};

impl Job {
    /// Updates the start of the allocation and hold waits of a pending round.
    pub(super) fn update_wait_times(&mut self, round: u32) {
        let now = self.now;
        let Some(pending) = self.pending_rounds.get(&round) else {
            return;
        };
        let asking = pending.share.requested > 0 && self.lacks_containers(pending);
        let holding = asking && pending.share.holds > 0;
        let since = |old: Option<Time>, still: bool| still.then(|| old.unwrap_or(now));
        if let Some(pending) = self.pending_rounds.get_mut(&round) {
            pending.asking_since = since(pending.asking_since, asking);
            pending.holding_since = since(pending.holding_since, holding);
        }
        self.arm_pending_round(round);
    }

    /// Restarts allocation waits after a master recovery: no asks were sent without a master.
    pub(super) fn restart_allocation_waits(&mut self) {
        let now = self.now;
        let rounds: Vec<_> = self.pending_rounds.keys().copied().collect();
        for pending in self.pending_rounds.values_mut() {
            pending.asking_since = pending.asking_since.map(|_| now);
            pending.holding_since = pending.holding_since.map(|_| now);
            pending.changed = now;
        }
        for round in rounds {
            self.arm_pending_round(round);
        }
        self.starvation_since = self.starvation_since.map(|_| now);
        for key in self.task_keys(None) {
            if let Phase::Requested { since } = &mut self.task_mut(key).phase {
                *since = now;
                self.arm(key);
            }
        }
    }

    fn arm_pending_round(&mut self, round: u32) {
        let Some(pending) = self.pending_rounds.get(&round) else {
            return;
        };
        let timeouts = &self.spec.timeouts;
        let allocation = pending.asking_since.map(|at| at + timeouts.allocation);
        let hold = pending.holding_since.map(|at| at + self.spec.gang.hold);
        let waits = [allocation, hold].into_iter().flatten();
        let waits = waits.filter(|_| !self.mutant.is(Mutant::NeverReleasesGang));
        let at = waits.chain(self.settles_at(pending)).min();
        self.timers.arm(Timer::PendingRound(round), at);
    }

    /// Handles the timer of a pending round.
    pub(super) fn on_pending_round_timer(&mut self, round: u32, out: &mut Vec<Action>) {
        let Some(pending) = self.pending_rounds.get_mut(&round) else {
            return;
        };
        let asking_since = pending.asking_since;
        let newcomers = pending.newcomers;
        let allocation = self.spec.timeouts.allocation;
        let is_over = |since: Option<Time>, wait| since.is_some_and(|it| it + wait <= self.now);
        let late = is_over(asking_since, allocation);
        if !late && !is_over(pending.holding_since, self.spec.gang.hold) {
            // The settle time has passed; `settle` decides whether the round starts.
            self.arm_pending_round(round);
            return;
        }
        let last = late || pending.tries >= self.spec.gang.retries;
        pending.tries += 1;
        let tries = pending.tries;
        let first = pending.members.first().map(|key| key.index);
        let missing = self.describe_missing(asking_since);
        let give_up = newcomers.filter(|(role, _)| self.spec.roles[*role].elastic.is_none());
        match (last, give_up) {
            (true, Some((role, _))) => {
                // Tasks that were added later are removed with them: a role keeps its first tasks.
                let size = first.unwrap_or(self.roles[role].want);
                self.resize(role, size, Some(missing), out);
            }
            (true, None) => self.fail(Cause::NoContainers { missing }, out),
            (false, _) => self.release_gang(round, tries, missing, out),
        }
    }

    /// Releases the containers of an incomplete gang, which block other jobs, and asks again later.
    fn release_gang(&mut self, round: u32, tries: u32, missing: String, out: &mut Vec<Action>) {
        let backoff = self.spec.gang.backoff.delay(tries);
        let kind = HistoryKind::GangReleased { tries, backoff, missing };
        self.record(kind, out);
        let now = self.now;
        let until = now + backoff;
        let members = self.pending_rounds.get(&round).map(|it| it.members.clone());
        for key in members.unwrap_or_default() {
            match &self.task(key).phase {
                Phase::Launching { .. }
                | Phase::Joining { .. }
                | Phase::Ready { .. }
                | Phase::Restarting { .. } => {
                    self.release(
                        key,
                        NextStep::Retry { at: until },
                        ContainerFate::Unknown,
                        false,
                        out,
                    );
                }
                Phase::Requested { .. } => {
                    self.set_phase(key, Phase::BackingOff { since: now, until })
                }
                Phase::BackingOff { .. }
                | Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Stopping { .. }
                | Phase::Releasing { .. }
                | Phase::Finished { .. } => {}
            }
        }
        self.arm_pending_round(round);
    }

    /// Describes the missing containers.
    pub(super) fn describe_missing(&self, since: Option<Time>) -> String {
        let mut missing = Vec::new();
        let roles = self.spec.roles.iter().zip(&self.roles).enumerate();
        for (_, (spec, role)) in roles.filter(|(at, _)| !self.is_blocked(*at)) {
            for (memory_mib, tasks) in &role.requested {
                let size = Resources { memory_mib: *memory_mib, ..spec.resources.clone() };
                missing.push(format!("{} × `{}` ({size})", tasks.len(), spec.name));
            }
        }
        let waited = since.map(|since| format!(" after {}", self.now - since)).unwrap_or_default();
        let mut text = format!(
            "{} of {} containers granted{waited}; missing: {}",
            self.held.len(),
            self.wanted_tasks(),
            missing.join(", "),
        );
        if let Some(excluded) = self.describe_excluded() {
            text += &format!("; {excluded}");
        }
        text
    }

    /// Describes the excluded nodes, if any.
    pub(super) fn describe_excluded(&self) -> Option<String> {
        let excluded = self.nodes.excluded();
        let names: Vec<_> = excluded.iter().map(|node| format!("`{node}`")).collect();
        (!names.is_empty()).then(|| format!("excluded nodes: {}", names.join(", ")))
    }

    /// Arms the allocation timeout of a job whose tasks start on their own. They may wait for each
    /// other's containers, but not if none makes progress, and not for those of services, which
    /// never end.
    pub(super) fn update_starvation(&mut self) {
        let starts_apart = self.stage == Stage::Active && !self.spec.gang.together;
        let starved = starts_apart && self.is_starved();
        self.starvation_since = starved.then(|| self.starvation_since.unwrap_or(self.now));
        let allocation = self.spec.timeouts.allocation;
        let at = self.starvation_since.map(|since| since + allocation);
        self.timers.arm(Timer::Starvation, at);
    }
}
