//! Journal of the master: written before it acts.
//!
//! On a cluster it consists of files in HDFS, is synced, and is replayed by the next master. On this machine it is a file
//! that is not replayed: `recover` is for clusters alone.

mod error;
mod file;
mod format;
mod hdfs;
mod parts;
mod recover;

pub use error::JournalError;
pub use file::{FileJournal, JOURNAL_BYTES_MAX, RECORD_BYTES_MAX};
pub use hdfs::HdfsJournal;
pub use recover::{RecoverError, is_replaced, recover};

use super::{kv::Op, progress::JobProgress};
use crate::backend::Fenced;
use serde::{Deserialize, Serialize};
use std::future::Future;
use ydl_core::{Event, Time};
use ydl_rendezvous::LinkRecord;

/// Record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JournalRecord {
    /// The job started. Always the first record.
    Started(Time),
    /// An event of the core.
    Event(Time, Event),
    /// A change of the key-value store.
    Kv(Op),
    /// A record of the rendezvous of a round.
    Link(u32, LinkRecord),
    /// The progress of the job, at each percent.
    Progress(JobProgress),
    /// The journal is full. Later events are lost, so that no master can recover from it.
    Full,
}

/// Write-ahead journal of a master.
pub trait Journal {
    /// Appends a record. The next flush makes it durable.
    fn append(&mut self, record: &JournalRecord);
    /// Returns the size of records that are not durable yet.
    fn pending_bytes(&self) -> usize;
    /// Makes all records durable. Fails for a master that cannot write its journal, or that another one replaced:
    /// nothing may follow from records that are not durable.
    fn flush(&mut self) -> impl Future<Output = Result<(), Fenced>>;
}

/// A local master dies with its agents and has no successor. So it continues without a journal if writing
/// fails.
impl Journal for Option<FileJournal> {
    fn append(&mut self, record: &JournalRecord) {
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

    fn pending_bytes(&self) -> usize {
        self.as_ref().map_or(0, FileJournal::pending_bytes)
    }

    async fn flush(&mut self) -> Result<(), Fenced> {
        if let Some(Err(error)) = self.as_mut().map(FileJournal::flush) {
            tracing::error!("the journal is no longer written: {error}");
            *self = None;
        }
        Ok(())
    }
}
