//! What the master writes down before it acts.
//!
//! A diary is a journal somebody can become the master from: on this machine a file, on a cluster segments in HDFS.

mod parts;
mod segments;
mod take_over;

pub use segments::Segments;
pub use take_over::{Unreadable, is_replaced, take_over};

use super::{journal::Journal, kv::Op};
use crate::backend::Fenced;
use serde::{Deserialize, Serialize};
use std::future::Future;
use ydl_core::{Event, Time};
use ydl_rendezvous::LinkRecord;

/// An entry of the diary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// The job began. The first entry, and the only one of its kind.
    Began(Time),
    /// Something happened to the job.
    Happened(Time, Event),
    /// Somebody changed the key-value store.
    Changed(Op),
    /// A program told its framework's rendezvous something, in that round.
    Linked(u32, LinkRecord),
    /// There was no room for more. What happened later is not known, and nobody can go on from here.
    Full,
}

/// Where a master writes down what happened, before it does what follows from it.
pub trait Diary {
    /// Adds an entry, which is safe after the next flush.
    fn note(&mut self, record: &Record);
    /// How much is not safe yet.
    fn waiting_bytes(&self) -> usize;
    /// Returns when every entry is safe. A master whose diary cannot be written, or is another's by now, is fenced:
    /// nothing may follow from what is not written down.
    fn flush(&mut self) -> impl Future<Output = Result<(), Fenced>>;
}

/// On one machine a master dies with its agents and nobody goes on with the job: it matters more than its diary,
/// which is given up when it cannot be written.
impl Diary for Option<Journal> {
    fn note(&mut self, record: &Record) {
        let Some(journal) = self else {
            return;
        };
        let written = serde_json::to_vec(record)
            .map_err(|error| error.to_string())
            .and_then(|bytes| journal.append(&bytes).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::error!("the journal is no longer written: {error}");
            *self = None;
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.as_ref().map_or(0, Journal::waiting_bytes)
    }

    async fn flush(&mut self) -> Result<(), Fenced> {
        if let Some(Err(error)) = self.as_mut().map(Journal::flush) {
            tracing::error!("the journal is no longer written: {error}");
            *self = None;
        }
        Ok(())
    }
}
