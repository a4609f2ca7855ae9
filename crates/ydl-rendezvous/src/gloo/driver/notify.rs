//! How those who train hear of newcomers.
//!
//! Rank 0 is told, and tells the others at their next commit. It takes what it is told also while it does not heed it yet,
//! because it has only just said where it listens, or forgets it, because it is just beginning in a world. So it is told again
//! until somebody asks for its number. What it has heeded already it knows by its time, and leaves aside.

use std::time::Duration;

use ydl_core::TaskId;

use super::{GlooDriver, PlannedWorld};
use crate::{
    Effects, RetryTimer,
    gloo::{limits::WorldEvent, notification::HostChange},
};

/// So often rank 0 is told at once again when it could not be. After that it is told when anything else happens.
const TOLD_MAX: u32 = 5;

/// Rank 0 is told again when it has not heeded what it was told for so long, then for twice as long, and so on.
const HEEDED_WITHIN: Duration = Duration::from_secs(1);

/// So often, which takes more than an hour: programs that heed nothing until then do not mean to.
const REPEATED_MAX: u32 = 12;

impl GlooDriver {
    /// Tells rank 0 that newcomers are there, once it has said where it listens. Where somebody has gone the others see
    /// that by themselves, or have already.
    pub(super) fn announce(&mut self, effects: &mut Effects) {
        let Some(plan) = self.plans.front() else {
            return;
        };
        if plan.announced || !self.is_to_be_told(plan) {
            return;
        }
        let stays = |task: &TaskId| plan.world.has(task);
        let change = match self.world().tasks().keys().all(stays) {
            true => HostChange::Added,
            false => HostChange::Both,
        };
        // Times need only grow.
        let time = i32::try_from(plan.number).unwrap_or(i32::MAX);
        if let Some(plan) = self.plans.front_mut() {
            plan.announced = true;
        }
        self.store.hear(WorldEvent::HostsChanged(change, time), effects);
    }

    /// Whether rank 0 listens, and has newcomers to hear of whom nobody has heeded yet.
    fn is_to_be_told(&self, plan: &PlannedWorld) -> bool {
        let first = self.world().members().first();
        let listens = first.is_some_and(|first| self.store.worker(&first.slot).is_some());
        let heeded = !self.gone.is_empty() || self.store.asking().next().is_some();
        listens && !heeded && self.has_newcomers(plan)
    }

    /// Rank 0 was not told: it does not listen, or went away before it answered.
    pub(super) fn untold(&mut self, effects: &mut Effects) {
        if let Some(plan) = self.plans.front_mut() {
            plan.announced = false;
            plan.untold += 1;
            if plan.untold <= TOLD_MAX {
                self.step(effects);
            }
        }
    }

    /// What rank 0 was told, or was to be, and has not heeded.
    pub(super) fn unheeded(&self) -> Option<RetryTimer> {
        let plan = self.plans.front()?;
        let was_told = plan.announced || plan.untold > 0;
        let waits = self.can_be(plan) && self.is_there(&plan.world) && self.is_to_be_told(plan);
        if !was_told || !waits || plan.repeated == REPEATED_MAX {
            return None;
        }
        Some(RetryTimer { id: self.store.told()?, delay: HEEDED_WITHIN * 2_u32.pow(plan.repeated) })
    }

    pub(super) fn announce_again(&mut self, effects: &mut Effects) {
        if self.unheeded().is_none() {
            return;
        }
        if let Some(plan) = self.plans.front_mut() {
            plan.announced = false;
            plan.repeated += 1;
        }
        self.step(effects);
    }
}
