//! Last known state of a job on a cluster, updated by the code that polls the cluster.

use super::local::JobStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use ydl_proto::files::MasterAddress;

/// Last known state of a job on a cluster; shared by the poller and its readers.
#[derive(Clone, Debug, Default)]
pub struct RemoteJob {
    seen: Arc<Mutex<RemoteState>>,
    nudge: Arc<Notify>,
}

/// State of a job on a cluster, from its ResourceManager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RemoteState {
    /// Not queried yet.
    #[default]
    Nothing,
    /// Its master does not run yet, or not any more and soon again: why, in YARN's words.
    Waiting(String),
    /// Its master listens there.
    Live(String),
    /// It is over.
    Ended(RemoteEnd),
}

/// The end of a job, as its cluster tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEnd {
    /// `succeeded`, `failed` or `killed`.
    pub state: &'static str,
    /// Why.
    pub why: String,
}

impl RemoteJob {
    /// Returns the last known state.
    pub fn seen(&self) -> RemoteState {
        self.lock().clone()
    }

    /// Writes down what was seen.
    pub fn see(&self, seen: RemoteState) {
        *self.lock() = seen;
    }

    /// Requests an early poll, since the state has probably changed.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Waits for that.
    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    pub(super) fn status(&self) -> JobStatus {
        match self.seen() {
            RemoteState::Nothing | RemoteState::Waiting(_) => JobStatus::Starting,
            RemoteState::Live(address) => {
                JobStatus::Live(MasterAddress { address, attempt: 0, pid: 0, pid_started: 0 })
            }
            RemoteState::Ended(ended) => JobStatus::Ended(ended),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RemoteState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
