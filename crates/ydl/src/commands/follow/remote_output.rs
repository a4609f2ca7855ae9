//! Copies the output of a job on a cluster while it is followed.

use super::super::log_tails::LogTails;
use crate::client::{master_client::MasterClient, mirror::Mirror};
use std::{collections::BTreeSet, sync::Arc};
use tokio::task::JoinSet;
use ydl_core::TaskId;

/// Copies of what a job on a cluster prints, on their way.
#[derive(Debug)]
pub struct RemoteOutput {
    pub mirror: Arc<Mirror>,
    coming: JoinSet<(TaskId, u32)>,
    known: BTreeSet<(TaskId, u32)>,
}

impl RemoteOutput {
    pub fn new(mirror: Arc<Mirror>) -> RemoteOutput {
        RemoteOutput { mirror, coming: JoinSet::new(), known: BTreeSet::new() }
    }

    /// Has the wanted streams of an attempt copied, unless they are already.
    pub(super) fn follow(
        &mut self,
        task: &TaskId,
        attempt: u32,
        tails: &LogTails,
        master: &Arc<MasterClient>,
    ) {
        let streams = tails.streams(task, attempt);
        if streams.is_empty() || !self.known.insert((task.clone(), attempt)) {
            return;
        }
        let (mirror, master) = (self.mirror.clone(), master.clone());
        let client = move || master.client();
        let copying = mirror.follow_attempt(task.clone(), attempt, streams, client);
        self.coming.spawn(copying);
    }

    /// The next attempt of which everything has come.
    pub(super) async fn came(&mut self) -> (TaskId, u32) {
        loop {
            match self.coming.join_next().await {
                Some(Ok(attempt)) => return attempt,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// The job is over: whatever is still on its way is fetched whole. What cannot be had is told in sentences.
    pub(super) async fn finish(&mut self, tails: &LogTails) -> Vec<String> {
        // Two who write to one copy would write everything twice.
        self.coming.shutdown().await;
        self.mirror.copy_logs(&tails.wanted(), None).await
    }
}

/// The next attempt on a cluster of which everything has come.
pub(super) async fn came(remote_output: &mut Option<RemoteOutput>) -> (TaskId, u32) {
    match remote_output {
        Some(remote_output) => remote_output.came().await,
        None => std::future::pending().await,
    }
}
