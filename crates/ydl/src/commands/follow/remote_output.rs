//! Copies the output of a job on a cluster while it is followed.

use super::super::log_tails::LogTails;
use crate::client::{master_client::MasterClient, mirror::Mirror};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{sync::watch, task::JoinSet};
use ydl_core::TaskId;

/// Running copies of the output of a job on a cluster.
#[derive(Debug)]
pub(crate) struct RemoteOutput {
    pub mirror: Arc<Mirror>,
    copies: JoinSet<(TaskId, u32)>,
    /// Followed attempts, and whether they have ended.
    followed: BTreeMap<(TaskId, u32), watch::Sender<bool>>,
}

impl RemoteOutput {
    pub(crate) fn new(mirror: Arc<Mirror>) -> RemoteOutput {
        RemoteOutput { mirror, copies: JoinSet::new(), followed: BTreeMap::new() }
    }

    /// Starts copying the selected streams of an attempt, once.
    pub(super) fn follow(
        &mut self,
        task: &TaskId,
        attempt: u32,
        tails: &LogTails,
        master: &Arc<MasterClient>,
    ) {
        let streams = tails.streams(task, attempt);
        let id = (task.clone(), attempt);
        if streams.is_empty() || self.followed.contains_key(&id) {
            return;
        }
        let (ended, is_ended) = watch::channel(false);
        self.followed.insert(id, ended);
        let (mirror, master) = (self.mirror.clone(), master.clone());
        let client = move || master.client();
        let copying = mirror.follow_attempt(task.clone(), attempt, streams, client, is_ended);
        self.copies.spawn(copying);
    }

    /// Ends following an attempt whose end is in the history. What its agent no longer has is copied from HDFS.
    pub(super) fn end(&mut self, task: &TaskId, attempt: u32) {
        if let Some(ended) = self.followed.get(&(task.clone(), attempt)) {
            ended.send_replace(true);
        }
    }

    /// Waits until an attempt has been copied completely, and returns it.
    pub(super) async fn next_copied(&mut self) -> (TaskId, u32) {
        loop {
            match self.copies.join_next().await {
                Some(Ok(attempt)) => return attempt,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Copies everything that is left of a finished job. Returns messages about what is unavailable.
    pub(super) async fn finish(&mut self, tails: &LogTails) -> Vec<String> {
        // Two writers to one copy would duplicate its content.
        self.copies.shutdown().await;
        self.mirror.copy_logs(&tails.copy_selection(), None).await
    }
}

/// Waits until an attempt has been copied completely. Never returns for a local job.
pub(super) async fn next_copied(remote_output: &mut Option<RemoteOutput>) -> (TaskId, u32) {
    match remote_output {
        Some(remote_output) => remote_output.next_copied().await,
        None => std::future::pending().await,
    }
}
