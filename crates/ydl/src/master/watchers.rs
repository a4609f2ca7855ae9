//! Clients that watch the job: each is answered when there is something newer than what it has.

use super::inbox::MasterResponse;
use std::{collections::VecDeque, time::Duration};
use tokio::{sync::oneshot, time::Instant};
use ydl_core::HistoryEvent;
use ydl_net::request::Reply;
use ydl_proto::messages::{HistoryPage, JobSnapshot};

/// Minimum interval between views: the cost of a view grows with the number of tasks.
const VIEW_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of watching clients.
const WATCHERS_MAX: usize = 256;
/// Maximum number of events in memory; older ones are in the history file.
const HISTORY_MAX: usize = 10_000;
/// Maximum number of events in one response.
const PAGE_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Watchers {
    number: u64,
    last_view: Instant,
    views: Vec<(u64, oneshot::Sender<MasterResponse>)>,
    history: VecDeque<HistoryEvent>,
    /// Number of the first event in memory.
    first: u64,
    readers: Vec<(u64, oneshot::Sender<MasterResponse>)>,
}

impl Default for Watchers {
    fn default() -> Self {
        Watchers {
            number: 1,
            last_view: Instant::now(),
            views: Vec::new(),
            history: VecDeque::new(),
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

    /// Returns the number of the current view.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Marks the last view as outdated.
    pub(super) fn changed(&mut self) {
        self.number += 1;
    }

    /// Registers a client that waits for a view newer than number `seen`. `show` answers it.
    pub(super) fn view(&mut self, seen: u64, respond_to: oneshot::Sender<MasterResponse>) {
        self.views.retain(|(_, respond_to)| !respond_to.is_closed());
        if self.views.len() >= WATCHERS_MAX {
            drop(respond_to.send(too_many().into()));
            return;
        }
        self.views.push((seen, respond_to));
    }

    /// Answers with the events from number `after` on; registers the client if there are none yet.
    pub(super) fn history(&mut self, after: u64, respond_to: oneshot::Sender<MasterResponse>) {
        self.readers.retain(|(_, respond_to)| !respond_to.is_closed());
        if self.readers.len() >= WATCHERS_MAX {
            drop(respond_to.send(too_many().into()));
            return;
        }
        self.readers.push((after, respond_to));
        self.send_history();
    }

    /// Adds an event and answers the clients that wait for it.
    pub(super) fn add(&mut self, event: HistoryEvent) {
        self.history.push_back(event);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
            self.first += 1;
        }
        self.send_history();
    }

    /// Returns the time to send the next view, if a client waits for one.
    pub(super) fn show_at(&self) -> Option<Instant> {
        let waits = self.views.iter().any(|(seen, _)| *seen < self.number);
        waits.then(|| self.last_view + VIEW_INTERVAL)
    }

    /// Sends the current view to the clients that have an older one.
    pub(super) fn show(&mut self, view: impl FnOnce(u64) -> JobSnapshot) {
        let number = self.number;
        let stale = self.views.extract_if(.., |(seen, _)| *seen < number);
        let stale: Vec<_> = stale.collect();
        if stale.is_empty() {
            return;
        }
        self.last_view = Instant::now();
        let reply = Reply::json(&view(number));
        for (_, respond_to) in stale {
            // The client may have disconnected.
            let _ = respond_to.send(reply.clone().into());
        }
    }

    fn send_history(&mut self) {
        let next = self.first + self.history.len() as u64;
        let ready = self.readers.extract_if(.., |(after, _)| *after < next);
        for (after, respond_to) in ready {
            let from = after.max(self.first);
            let skip = (from - self.first) as usize;
            let events: Vec<_> = self.history.iter().skip(skip).take(PAGE_MAX).cloned().collect();
            let page = HistoryPage { next: from + events.len() as u64, events };
            let _ = respond_to.send(Reply::json(&page).into());
        }
    }
}

fn too_many() -> Reply {
    Reply::error(429, "too many clients watch this job", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::{Time, history::HistoryKind};

    fn page(watchers: &mut Watchers, after: u64) -> Option<HistoryPage> {
        let (respond_to, mut response) = oneshot::channel();
        watchers.history(after, respond_to);
        match response.try_recv().ok()? {
            MasterResponse::Http(reply) => serde_json::from_slice(&reply.body).ok(),
            MasterResponse::Order(_) | MasterResponse::Requests(_) => None,
        }
    }

    #[test]
    fn history_is_paged_from_the_first_requested_event_in_memory() {
        let mut watchers = Watchers::default();
        let kept = HISTORY_MAX as u64;
        for at in 0..kept + 5 {
            watchers
                .add(HistoryEvent { at: Time(at), kind: HistoryKind::MasterRecovered { live: 0 } });
        }
        let times = |history: &HistoryPage| {
            (history.events[0].at.0, history.events.len() as u64, history.next)
        };
        let limit = PAGE_MAX as u64;
        assert_eq!(times(&page(&mut watchers, 0).unwrap()), (5, limit, 5 + limit));
        assert_eq!(times(&page(&mut watchers, 7).unwrap()), (7, limit, 7 + limit));
        let last = page(&mut watchers, kept + 4).unwrap();
        assert_eq!(times(&last), (kept + 4, 1, kept + 5));
        assert!(page(&mut watchers, kept + 5).is_none(), "a page beyond the end");
        assert!(page(&mut watchers, u64::MAX).is_none());
    }
}
