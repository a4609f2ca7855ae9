//! Events of a job: the newest ones, with consecutive numbers.

use std::collections::VecDeque;

use super::{EVENT_BYTES_MAX, EVENTS_MAX, HISTORY_BYTES_MAX, KvError, Page};
use ydl_proto::kv::{Blob, Emitted, Event, Events};

#[derive(Debug, Default)]
pub(super) struct EventLog {
    /// Events without gaps in their sequence numbers, up to `sequence`.
    events: VecDeque<Event>,
    bytes: usize,
    sequence: u64,
}

impl EventLog {
    pub(super) fn push(
        &mut self,
        name: String,
        data: Blob,
        by: Option<String>,
    ) -> Result<Emitted, KvError> {
        if data.len() > EVENT_BYTES_MAX {
            return Err(KvError::EventTooLong { name, length: data.len() });
        }
        self.sequence += 1;
        self.bytes += data.len();
        self.events.push_back(Event { sequence: self.sequence, name, data, by });
        while self.events.len() > EVENTS_MAX || self.bytes > HISTORY_BYTES_MAX {
            let dropped = self.events.pop_front();
            self.bytes -= dropped.map_or(0, |event| event.data.len());
        }
        Ok(Emitted { sequence: self.sequence })
    }

    pub(super) fn since(&self, after: u64, name: Option<&str>, mut page: Page) -> Events {
        let dropped = self.sequence - self.events.len() as u64;
        let skipped = after.saturating_sub(dropped).min(self.events.len() as u64) as usize;
        let mut events = Vec::new();
        // A number from the future belongs to a log that was lost: continue with the current log.
        let mut through = self.sequence;
        for event in self.events.range(skipped..).filter(|e| name.is_none_or(|n| n == e.name)) {
            if page.is_full() {
                through = events.last().map_or(after, |last: &Event| last.sequence);
                break;
            }
            page.add(event.data.len());
            events.push(event.clone());
        }
        Events { events, through, missed: after < dropped || after > self.sequence }
    }
}
