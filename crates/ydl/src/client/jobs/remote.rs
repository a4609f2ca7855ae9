//! Last known state of a job on a cluster, updated by the code that polls the cluster.

use super::local::JobStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use ydl_proto::files::MasterAddress;

/// Last known state of a job on a cluster; shared by the poller and its readers.
#[derive(Clone, Debug, Default)]
pub struct RemoteJob {
    state: Arc<Mutex<RemoteState>>,
    poll_request: Arc<Notify>,
}

/// State of a job on a cluster, from its ResourceManager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RemoteState {
    /// Not queried yet.
    #[default]
    Unknown,
    /// The master is not running: it waits for its container or for a restart. Holds YARN's diagnostics.
    Waiting(String),
    /// The master listens at this address.
    Running(String),
    /// The job has ended.
    Finished(RemoteEnd),
}

/// End of a job, as reported by its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEnd {
    /// `succeeded`, `failed` or `killed`.
    pub state: &'static str,
    /// YARN's diagnostics.
    pub diagnostics: String,
}

impl RemoteJob {
    /// Returns the last known state.
    pub fn state(&self) -> RemoteState {
        self.lock().clone()
    }

    /// Sets the state after a poll.
    pub(crate) fn set_state(&self, state: RemoteState) {
        *self.lock() = state;
    }

    /// Requests an early poll, since the state has probably changed.
    pub(crate) fn request_poll(&self) {
        self.poll_request.notify_one();
    }

    /// Waits for a request to poll.
    pub(crate) async fn poll_requested(&self) {
        self.poll_request.notified().await;
    }

    pub(super) fn status(&self) -> JobStatus {
        match self.state() {
            RemoteState::Unknown | RemoteState::Waiting(_) => JobStatus::Starting,
            RemoteState::Running(address) => {
                JobStatus::Running(MasterAddress { address, attempt: 0, pid: 0, pid_started: 0 })
            }
            RemoteState::Finished(ended) => JobStatus::NoResult(ended),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RemoteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
