//! Clients that watch the job: each is answered when there is something newer than what it has.

use super::inbox::Answer;
use std::{collections::VecDeque, time::Duration};
use tokio::{sync::oneshot, time::Instant};
use ydl_core::HistoryEvent;
use ydl_net::request::Reply;
use ydl_proto::messages::{HistoryPage, JobSnapshot};

/// Minimum interval between views: the cost of a view grows with the number of tasks.
const PACE: Duration = Duration::from_millis(50);
/// Maximum number of watching clients.
const WATCHERS_MAX: usize = 256;
/// Maximum number of events in memory; older ones are in the history file.
const FACTS_KEPT: usize = 10_000;
/// Maximum number of events in one response.
const FACTS_TOLD: usize = 1000;

#[derive(Debug)]
pub(super) struct Watchers {
    number: u64,
    shown: Instant,
    views: Vec<(u64, oneshot::Sender<Answer>)>,
    facts: VecDeque<HistoryEvent>,
    /// Number of the first event in memory.
    first: u64,
    readers: Vec<(u64, oneshot::Sender<Answer>)>,
}

impl Default for Watchers {
    fn default() -> Self {
        Watchers {
            number: 1,
            shown: Instant::now(),
            views: Vec::new(),
            facts: VecDeque::new(),
            first: 0,
            readers: Vec::new(),
        }
    }
}

impl Watchers {
    /// Raises the number of the next view: it must be higher than those of an earlier master.
    pub(super) fn number_from(&mut self, number: u64) {
        self.number = self.number.max(number);
    }

    /// Marks the last view as outdated.
    pub(super) fn changed(&mut self) {
        self.number += 1;
    }

    pub(super) fn view(&mut self, seen: u64, answer: oneshot::Sender<Answer>) {
        self.views.retain(|(_, answer)| !answer.is_closed());
        if self.views.len() >= WATCHERS_MAX {
            drop(answer.send(crowded().into()));
            return;
        }
        self.views.push((seen, answer));
    }

    pub(super) fn facts(&mut self, after: u64, answer: oneshot::Sender<Answer>) {
        self.readers.retain(|(_, answer)| !answer.is_closed());
        if self.readers.len() >= WATCHERS_MAX {
            drop(answer.send(crowded().into()));
            return;
        }
        self.readers.push((after, answer));
        self.tell_facts();
    }

    pub(super) fn add(&mut self, fact: HistoryEvent) {
        self.facts.push_back(fact);
        if self.facts.len() > FACTS_KEPT {
            self.facts.pop_front();
            self.first += 1;
        }
        self.tell_facts();
    }

    /// Returns the time to send the next view, if a client waits for one.
    pub(super) fn show_at(&self) -> Option<Instant> {
        let waits = self.views.iter().any(|(seen, _)| *seen < self.number);
        waits.then(|| self.shown + PACE)
    }

    pub(super) fn show(&mut self, view: impl FnOnce(u64) -> JobSnapshot) {
        let number = self.number;
        let stale = self.views.extract_if(.., |(seen, _)| *seen < number);
        let stale: Vec<_> = stale.collect();
        if stale.is_empty() {
            return;
        }
        self.shown = Instant::now();
        let reply = Reply::json(&view(number));
        for (_, answer) in stale {
            // The client may have disconnected.
            let _ = answer.send(reply.clone().into());
        }
    }

    fn tell_facts(&mut self) {
        let next = self.first + self.facts.len() as u64;
        let ready = self.readers.extract_if(.., |(after, _)| *after < next);
        for (after, answer) in ready {
            let from = after.max(self.first);
            let skip = (from - self.first) as usize;
            let events: Vec<_> = self.facts.iter().skip(skip).take(FACTS_TOLD).cloned().collect();
            let told = HistoryPage { next: from + events.len() as u64, events };
            let _ = answer.send(Reply::json(&told).into());
        }
    }
}

fn crowded() -> Reply {
    Reply::error(429, "too many are looking at this job", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::{Time, history::HistoryKind};

    fn told(watchers: &mut Watchers, after: u64) -> Option<HistoryPage> {
        let (answer, mut answered) = oneshot::channel();
        watchers.facts(after, answer);
        match answered.try_recv().ok()? {
            Answer::Reply(reply) => serde_json::from_slice(&reply.body).ok(),
            Answer::Order(_) | Answer::Wishes(_) => None,
        }
    }

    #[test]
    fn facts_are_told_from_the_first_that_is_wanted_and_still_kept() {
        let mut watchers = Watchers::default();
        let kept = FACTS_KEPT as u64;
        for at in 0..kept + 5 {
            watchers
                .add(HistoryEvent { at: Time(at), kind: HistoryKind::MasterRecovered { live: 0 } });
        }
        let times =
            |facts: &HistoryPage| (facts.events[0].at.0, facts.events.len() as u64, facts.next);
        let page = FACTS_TOLD as u64;
        assert_eq!(times(&told(&mut watchers, 0).unwrap()), (5, page, 5 + page));
        assert_eq!(times(&told(&mut watchers, 7).unwrap()), (7, page, 7 + page));
        let last = told(&mut watchers, kept + 4).unwrap();
        assert_eq!(times(&last), (kept + 4, 1, kept + 5));
        assert!(told(&mut watchers, kept + 5).is_none(), "there is none yet");
        assert!(told(&mut watchers, u64::MAX).is_none());
    }
}
