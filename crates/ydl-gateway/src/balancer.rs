//! Picks replicas: power of two choices on requests in flight, with weights, slow start and a limit per replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::health::{Change, Health, Verdict};
use crate::random::Random;
use crate::route_table::{Replica, ReplicaState, RouteTable};

/// Part of its weight that a replica has at first, in percent.
const START_PERCENT: u64 = 10;

/// Replicas with their requests in flight.
#[derive(Debug)]
pub(crate) struct Balancer {
    members: BTreeMap<Arc<str>, Member>,
    slow_start: Duration,
    random: Random,
    /// Kept to avoid an allocation for each request.
    candidates: Vec<Candidate>,
}

#[derive(Debug)]
struct Member {
    replica: Arc<Replica>,
    presence: Presence,
    in_flight: u32,
    health: Health,
    /// Start of the slow start.
    since: Instant,
}

/// State of a member in the route table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Presence {
    Serving,
    Draining,
    /// No longer in the table; kept until its requests have ended.
    Removed,
}

/// State of replicas in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemberState {
    Serving,
    Ejected,
    Draining,
}

#[derive(Debug)]
struct Candidate {
    id: Arc<str>,
    revision: u64,
    weight: u64,
    in_flight: u32,
}

/// Replica that was picked for one request.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub id: Arc<str>,
    pub replica: Arc<Replica>,
    /// The request finds out if an ejected replica works again.
    pub is_probe: bool,
}

impl Balancer {
    pub(crate) fn new(random: Random) -> Balancer {
        Balancer {
            members: BTreeMap::new(),
            slow_start: Duration::ZERO,
            random,
            candidates: Vec::new(),
        }
    }

    /// Takes over the replicas of a table. Known ones keep their requests and their health. The replicas of the first table
    /// need no slow start, since there are no others to take their share.
    pub(crate) fn apply(&mut self, now: Instant, table: &RouteTable) {
        let is_first = self.members.is_empty();
        let slow_start = table.service.slow_start;
        self.slow_start = slow_start;
        let since = match is_first {
            true => now.checked_sub(slow_start).unwrap_or(now),
            false => now,
        };
        for member in self.members.values_mut() {
            member.presence = Presence::Removed;
        }
        for replica in &table.replicas {
            let presence = match replica.state {
                ReplicaState::Serving => Presence::Serving,
                ReplicaState::Draining => Presence::Draining,
            };
            let spec = Arc::new(replica.clone());
            let known = self.members.entry(replica.id.as_str().into());
            let member = known.or_insert_with(|| Member {
                replica: spec.clone(),
                presence,
                in_flight: 0,
                health: Health::new(now),
                since,
            });
            member.presence = presence;
            member.replica = spec;
        }
        self.forget_removed();
    }

    fn forget_removed(&mut self) {
        self.members
            .retain(|_, member| member.presence != Presence::Removed || member.in_flight > 0);
    }

    /// Picks a replica and counts the request. Returns `None` if all are busy, ejected or excluded.
    ///
    /// The first draw by weight decides the revision, so a canary gets exactly its share as long as it has capacity. The
    /// second is among the replicas of that revision, and the less busy of the two gets the request.
    pub(crate) fn pick(&mut self, now: Instant, excluded: &[Arc<str>]) -> Option<Picked> {
        self.candidates.clear();
        for (id, member) in &self.members {
            let is_free = member.presence == Presence::Serving
                && member.in_flight < member.replica.concurrency
                && member.replica.weight > 0
                && member.health.accepts(now)
                && !excluded.contains(id);
            if is_free {
                self.candidates.push(Candidate {
                    id: id.clone(),
                    revision: member.replica.revision,
                    weight: member.weight(now, self.slow_start),
                    in_flight: member.in_flight,
                });
            }
        }
        let first = draw(&mut self.random, self.candidates.iter())?;
        let peers = (self.candidates.iter())
            .filter(|other| other.revision == first.revision && other.id != first.id);
        let chosen = match draw(&mut self.random, peers) {
            Some(second) if second.load(first.weight) < first.load(second.weight) => second,
            Some(_) | None => first,
        };
        let id = chosen.id.clone();
        let member = self.members.get_mut(&id)?;
        member.in_flight += 1;
        let is_probe = member.health.on_picked();
        Some(Picked { id, replica: member.replica.clone(), is_probe })
    }

    /// Notes the end of a request. Returns true if the replica was ejected.
    pub(crate) fn release(&mut self, now: Instant, picked: &Picked, verdict: Verdict) -> bool {
        let (mut serving, mut ejected) = (0, 0);
        for member in self.members.values().filter(|member| member.presence == Presence::Serving) {
            serving += 1;
            ejected += usize::from(member.health.is_ejected());
        }
        let Some(member) = self.members.get_mut(&picked.id) else { return false };
        member.in_flight = member.in_flight.saturating_sub(1);
        let may_eject = member.presence == Presence::Serving && (ejected + 1) * 2 <= serving;
        let change = member.health.on_ended(now, picked.is_probe, verdict, may_eject);
        if change == Change::Readmitted {
            member.since = now;
        }
        if member.presence == Presence::Removed && member.in_flight == 0 {
            self.members.remove(&picked.id);
        }
        change == Change::Ejected
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.members.values().map(|member| u64::from(member.in_flight)).sum()
    }

    /// Counts replicas by state and revision.
    pub(crate) fn states(&self) -> BTreeMap<(MemberState, u64), u64> {
        let mut states = BTreeMap::new();
        for member in self.members.values() {
            let state = match member.presence {
                Presence::Serving if member.health.is_ejected() => MemberState::Ejected,
                Presence::Serving => MemberState::Serving,
                Presence::Draining | Presence::Removed => MemberState::Draining,
            };
            *states.entry((state, member.replica.revision)).or_insert(0) += 1;
        }
        states
    }
}

impl Member {
    /// Weight after the slow start, times 100.
    fn weight(&self, now: Instant, slow_start: Duration) -> u64 {
        let age = now.saturating_duration_since(self.since);
        let percent = match age >= slow_start {
            true => 100,
            false => {
                let part = 100 * age.as_millis() / slow_start.as_millis().max(1);
                u64::try_from(part).unwrap_or(100).max(START_PERCENT)
            }
        };
        u64::from(self.replica.weight) * percent
    }
}

impl Candidate {
    /// Requests in flight, in units that are comparable between two candidates of different weights. Idle replicas are
    /// equal, because the draw has respected their weights already.
    fn load(&self, weight_of_other: u64) -> u128 {
        u128::from(self.in_flight) * u128::from(weight_of_other)
    }
}

fn draw<'a>(
    random: &mut Random,
    candidates: impl Iterator<Item = &'a Candidate> + Clone,
) -> Option<&'a Candidate> {
    let total = candidates.clone().map(|candidate| candidate.weight).sum();
    let mut rest = random.below(total);
    for candidate in candidates {
        match rest.checked_sub(candidate.weight) {
            Some(less) => rest = less,
            None => return Some(candidate),
        }
    }
    None
}

#[cfg(test)]
mod tests;
