//! How long containers are waited for, and what happens when they do not come.

use super::{Job, Mutant, Place, Stage, Then, part::Gone, timers::Timer};
use crate::{action::Action, ending::Cause, history::HistoryKind, spec::Resources, time::Time};
use alloc::{format, string::String, vec::Vec};

impl Job {
    /// Since when a gathering waits for what it cannot do without.
    pub(super) fn recount_waits(&mut self, round: u32) {
        let now = self.now;
        let Some(gathering) = self.gatherings.get(&round) else {
            return;
        };
        let asking = gathering.share.asked > 0 && self.is_short(gathering);
        let holding = asking && gathering.share.holds > 0;
        let since = |old: Option<Time>, still: bool| still.then(|| old.unwrap_or(now));
        if let Some(gathering) = self.gatherings.get_mut(&round) {
            gathering.asking_since = since(gathering.asking_since, asking);
            gathering.holding_since = since(gathering.holding_since, holding);
        }
        self.arm_gathering(round);
    }

    /// A new master: the cluster was not asked while there was none.
    pub(super) fn gather_anew(&mut self) {
        let now = self.now;
        let rounds: Vec<_> = self.gatherings.keys().copied().collect();
        for gathering in self.gatherings.values_mut() {
            gathering.asking_since = gathering.asking_since.map(|_| now);
            gathering.holding_since = gathering.holding_since.map(|_| now);
            gathering.changed = now;
        }
        for round in rounds {
            self.arm_gathering(round);
        }
        self.starved_since = self.starved_since.map(|_| now);
        for key in self.keys(None) {
            if let Place::Asked { since } = &mut self.task_mut(key).place {
                *since = now;
                self.arm(key);
            }
        }
    }

    fn arm_gathering(&mut self, round: u32) {
        let Some(gathering) = self.gatherings.get(&round) else {
            return;
        };
        let deadlines = &self.spec.timeouts;
        let allocation = gathering.asking_since.map(|at| at + deadlines.allocation);
        let hold = gathering.holding_since.map(|at| at + self.spec.gang.hold);
        let waits = [allocation, hold].into_iter().flatten();
        let waits = waits.filter(|_| !self.mutant.is(Mutant::NeverGivesBack));
        let at = waits.chain(self.settles_at(gathering)).min();
        self.timers.arm(Timer::Gathering(round), at);
    }

    /// A gathering has waited too long for containers.
    pub(super) fn on_gathering_due(&mut self, round: u32, out: &mut Vec<Action>) {
        let Some(gathering) = self.gatherings.get_mut(&round) else {
            return;
        };
        let asking_since = gathering.asking_since;
        let newcomers = gathering.newcomers;
        let allocation = self.spec.timeouts.allocation;
        let is_over = |since: Option<Time>, wait| since.is_some_and(|it| it + wait <= self.now);
        let late = is_over(asking_since, allocation);
        if !late && !is_over(gathering.holding_since, self.spec.gang.hold) {
            // Nothing has changed for a while: whether it begins is seen when everything has been heard.
            self.arm_gathering(round);
            return;
        }
        let last = late || gathering.tries >= self.spec.gang.retries;
        gathering.tries += 1;
        let tries = gathering.tries;
        let first = gathering.members.first().map(|key| key.index);
        let missing = self.missing(asking_since);
        let give_up = newcomers.filter(|(role, _)| self.spec.roles[*role].elastic.is_none());
        match (last, give_up) {
            (true, Some((role, _))) => {
                // Those who came after them go with them: a role has its first tasks.
                let size = first.unwrap_or(self.roles[role].want);
                self.resize(role, size, Some(missing), out);
            }
            (true, None) => self.fail(Cause::NoContainers { missing }, out),
            (false, _) => self.give_back(round, tries, missing, out),
        }
    }

    /// Half a gang keeps others from theirs: it gives back what it holds and asks again later.
    fn give_back(&mut self, round: u32, tries: u32, missing: String, out: &mut Vec<Action>) {
        let backoff = self.spec.gang.backoff.delay(tries);
        let what = HistoryKind::GangReleased { tries, backoff, missing };
        self.record(what, out);
        let now = self.now;
        let until = now + backoff;
        let members = self.gatherings.get(&round).map(|it| it.members.clone());
        for key in members.unwrap_or_default() {
            match &self.task(key).place {
                Place::Launching { .. }
                | Place::Joining { .. }
                | Place::Ready { .. }
                | Place::Rewinding { .. } => {
                    self.part(key, Then::Again { at: until }, Gone::Unsure, false, out);
                }
                Place::Asked { .. } => self.set_place(key, Place::Idle { since: now, until }),
                Place::Idle { .. }
                | Place::Starting { .. }
                | Place::Running { .. }
                | Place::Stopping { .. }
                | Place::Leaving { .. }
                | Place::Over { .. } => {}
            }
        }
        self.arm_gathering(round);
    }

    /// What cannot be had, in one sentence.
    pub(super) fn missing(&self, since: Option<Time>) -> String {
        let mut missing = Vec::new();
        let roles = self.spec.roles.iter().zip(&self.roles).enumerate();
        for (_, (spec, role)) in roles.filter(|(at, _)| !self.is_held_back(*at)) {
            for (memory_mib, tasks) in &role.asked {
                let size = Resources { memory_mib: *memory_mib, ..spec.resources.clone() };
                missing.push(format!("{} × `{}` ({size})", tasks.len(), spec.name));
            }
        }
        let waited = since.map(|since| format!(" after {}", self.now - since)).unwrap_or_default();
        let mut text = format!(
            "{} of {} containers were there{waited}; missing: {}",
            self.held.len(),
            self.wanted(),
            missing.join(", "),
        );
        if let Some(avoided) = self.said_of_avoided() {
            text += &format!("; {avoided}");
        }
        text
    }

    /// Where containers are not taken, if there are such nodes.
    pub(super) fn said_of_avoided(&self) -> Option<String> {
        let avoided = self.nodes.avoided();
        let names: Vec<_> = avoided.iter().map(|node| format!("`{node}`")).collect();
        (!names.is_empty()).then(|| format!("avoided nodes: {}", names.join(", ")))
    }

    /// Tasks that start on their own may wait for each other's containers, but not all of them for nothing, and
    /// not for those of services, which never end.
    pub(super) fn watch_starvation(&mut self) {
        let alone = self.stage == Stage::Active && !self.spec.gang.together;
        let starved = alone && self.starved();
        self.starved_since = starved.then(|| self.starved_since.unwrap_or(self.now));
        let allocation = self.spec.timeouts.allocation;
        let at = self.starved_since.map(|since| since + allocation);
        self.timers.arm(Timer::Starved, at);
    }
}
