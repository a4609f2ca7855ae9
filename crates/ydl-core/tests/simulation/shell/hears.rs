//! Input of the master: heartbeats of the cluster, reports of agents, and missed heartbeats.

use super::{
    super::{
        report::Report,
        world::{Happening, World},
    },
    Item,
};
use std::collections::BTreeSet;
use ydl_core::{Event, Grant, Job, spec::Resources};

/// So long may an agent say nothing before it is called quiet.
const QUIET: u64 = 2_000;
const BEAT: u64 = 500;
const BEAT_TIMEOUT: u64 = 2_500;

impl World {
    pub fn beat(&mut self, number: u64) {
        if self.shell.job.is_none() || number != self.shell.beat {
            return;
        }
        self.shell.beat += 1;
        let next = self.shell.beat;
        let asks = self.shell.job.as_ref().map(Job::asks).unwrap_or_default();
        let releases = self.shell.releases.iter().cloned().collect();
        self.shell.beat_sent = (self.shell.acked, asks, releases);
        self.after(BEAT_TIMEOUT, Happening::Beat { number: next });
        let lost = self.faults().beats_lost;
        if !self.struck(lost, 10) {
            let wait = self.random.from(5, 60);
            self.after(wait, Happening::ClusterHears { number: next });
        }
    }

    pub fn hear_cluster(&mut self, items: Vec<(u64, Item)>, number: u64) {
        if self.shell.job.is_none() {
            return;
        }
        if number == self.shell.beat {
            self.shell.acked = items.last().map_or(self.shell.acked, |(n, _)| *n);
            let sent = std::mem::take(&mut self.shell.beat_sent.2);
            for id in sent {
                self.shell.releases.remove(&id);
            }
            self.shell.beat += 1;
            let number = self.shell.beat;
            self.after(BEAT, Happening::Beat { number });
        }
        // An answer that comes after its time is out is heard all the same: then everything in it comes twice.
        let mut grants = Vec::new();
        let mut ended = Vec::new();
        let mut warned = Vec::new();
        for (_, item) in items {
            match item {
                Item::Granted(at) => grants.push(self.grant_of(at)),
                Item::Ended(at, end) => ended.push((self.containers[at].id.clone(), end)),
                Item::Warned(at) => warned.push(self.containers[at].id.clone()),
            }
        }
        if !grants.is_empty() {
            self.handle(Event::Granted { grants });
        }
        for container in warned {
            self.handle(Event::PreemptionWarned { container });
        }
        if !ended.is_empty() {
            self.handle(Event::Ended { containers: ended });
        }
    }

    fn grant_of(&self, at: usize) -> Grant {
        let container = &self.containers[at];
        Grant {
            container: container.id.clone(),
            role: container.role.clone(),
            node: self.nodes[container.node].name.clone(),
            resources: Resources {
                memory_mib: container.memory_mib,
                vcores: 1,
                ..Resources::default()
            },
        }
    }

    pub fn launch_answered(&mut self, at: usize, why: Option<String>) {
        let container = self.containers[at].id.clone();
        match why {
            Some(why) => self.handle(Event::LaunchFailed { container, reason: why }),
            None => self.handle(Event::Launched { container }),
        }
    }

    pub fn hear_agent(&mut self, at: usize, reports: Vec<(u64, Report)>, late: bool) {
        if self.shell.job.is_none() {
            return;
        }
        let id = self.containers[at].id.clone();
        let was = self.shell.heard.insert(id.clone(), (self.now, false));
        if was.is_none_or(|(_, quiet)| quiet) {
            let container = id.clone();
            self.handle(Event::HeartbeatResumed { container });
        }
        let acked = reports.last().map_or(0, |(n, _)| *n);
        for (_, report) in reports {
            self.handle(report.event(id.clone()));
        }
        if !late {
            self.answer(at, acked);
        }
    }

    /// Sends the standing order to an agent.
    pub(super) fn answer(&mut self, at: usize, acked: u64) {
        let Some(job) = &self.shell.job else {
            return;
        };
        let id = &self.containers[at].id;
        let order = job.order(id);
        self.checks.ordered(job, id, &order);
        let lost = self.faults().replies_lost;
        if self.struck(lost, 20) {
            return;
        }
        let stamp = self.stamp();
        let wait = self.random.from(2, 60);
        let hears = Happening::AgentHears { at, order, stamp, acked };
        self.after(wait, hears);
    }

    /// Looks for agents that have missed their beats.
    pub fn watch(&mut self, life: u64) {
        let Some(job) = self.shell.job.as_ref().filter(|_| life == self.shell.life) else {
            return;
        };
        let held: BTreeSet<_> = job.containers().cloned().collect();
        self.shell.heard.retain(|id, _| held.contains(id));
        let mut quiet = Vec::new();
        for (id, (last, called)) in &mut self.shell.heard {
            if !*called && *last + QUIET <= self.now {
                *called = true;
                quiet.push(id.clone());
            }
        }
        for container in quiet {
            self.handle(Event::HeartbeatMissed { container });
        }
        if let Some(job) = &self.shell.job {
            self.checks.watched(self.now, job);
            self.after(1_000, Happening::Watch { life });
        }
    }
}
