//! Saves outputs: uploads during and after the program, and restores checkpoints.

use super::Agent;
use crate::agent::{
    outputs::{self, ContinuousUpload, ProgramPhase, Restore, UploadLog},
    shipping::{HdfsClients, UploadRequest},
    task_env::CHECKPOINT,
};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};
use ydl_core::{
    AttemptRun, Order, TaskId,
    spec::{ExistingPolicy, RoleSpec, Timeouts},
};

/// Timeout for the last logs: HDFS may be unavailable for a moment.
const LOGS_MAX: Duration = Duration::from_secs(30);
/// Timeout for the last logs if outputs are not wanted: after an error or a forced stop.
const LOGS_MAX_UNSAVED: Duration = Duration::from_secs(10);
/// Interval of scans for new checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// Timeout for the last checkpoints of a program; the next round starts without them.
const CHECKPOINT_MAX: Duration = Duration::from_secs(600);
/// Safety margin of the agent's exit before the master stops waiting; at most a quarter of `timeouts.stop`.
const SPARE: Duration = Duration::from_secs(2);

/// Continuous uploads of a program.
#[derive(Debug)]
pub(super) struct Uploads {
    /// Phase for the uploads of outputs. Dropping it cancels them.
    phase: Arc<watch::Sender<ProgramPhase>>,
    /// Phase for the upload of checkpoints.
    checkpoint: Arc<watch::Sender<ProgramPhase>>,
    /// Deadline of the last checkpoints.
    saved_by: Option<Instant>,
    pub(super) upload_log: UploadLog,
}

impl Default for Uploads {
    fn default() -> Uploads {
        Uploads {
            phase: Arc::new(watch::Sender::new(ProgramPhase::Running)),
            checkpoint: Arc::new(watch::Sender::new(ProgramPhase::Running)),
            saved_by: None,
            upload_log: UploadLog::default(),
        }
    }
}

impl Uploads {
    /// Signals that the program has ended.
    pub(super) fn program_ended(&mut self) {
        self.phase.send_replace(ProgramPhase::Ended);
        self.checkpoint.send_replace(ProgramPhase::Ended);
        self.saved_by = Some(Instant::now() + CHECKPOINT_MAX);
    }

    /// Returns true if the last program's checkpoints are complete in HDFS, or their deadline has passed.
    pub(super) fn is_saved(&self) -> bool {
        let late = self.saved_by.is_none_or(|by| by <= Instant::now());
        self.checkpoint.is_closed() || late
    }

    /// Waits for the last program's checkpoints, up to their deadline.
    pub(super) async fn saved(&self) {
        let by = self.saved_by.unwrap_or_else(Instant::now);
        if timeout_at(by, self.checkpoint.closed()).await.is_err() {
            tracing::warn!("the last checkpoints were not saved in time");
        }
    }

    /// Waits for the remaining uploads and checkpoints, up to their timeouts.
    pub(super) fn finish(
        &self,
        deadline: Instant,
        saved_by: Instant,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (phase, checkpoint) = (self.phase.clone(), self.checkpoint.clone());
        async move {
            let (sent, saved) = tokio::join!(
                timeout_at(deadline, phase.closed()),
                timeout_at(saved_by, checkpoint.closed())
            );
            if sent.and(saved).is_err() {
                tracing::warn!("the last checkpoints were not uploaded in time");
            }
        }
    }
}

/// Returns how long an agent may stay after it was told to leave: as long as the master waits for it.
pub(super) fn exit_timeout(timeouts: &Timeouts) -> Duration {
    let stop = Duration::from_millis(timeouts.stop.0);
    let whole = Duration::from_millis(timeouts.grace.0) + stop;
    whole.saturating_sub(SPARE.min(stop / 4))
}

impl Agent {
    /// Waits for the last logs and checkpoints, and uploads outputs if wanted. `AgentEvent::Finished` follows, on which the
    /// loop reports `Stopped`. Runs outside the loop: it may take minutes, and the heartbeat must continue.
    pub(super) fn finish(&mut self, wanted: bool) {
        let (done, finishing) = oneshot::channel();
        self.finishing = Some(finishing);
        let outputs = match (&self.order, wanted) {
            (Some(_), true) => self.task_env.outputs(&self.submitted),
            _ => Vec::new(),
        };
        let logs = self.finish_logs(if wanted { LOGS_MAX } else { LOGS_MAX_UNSAVED });
        let save = Duration::from_millis(self.submitted.spec.timeouts.upload.0);
        let deadline = Instant::now() + save;
        // Continuous uploads send the rest themselves, unless all outputs are uploaded now.
        let until = match wanted {
            true => {
                self.uploads.phase.send_replace(ProgramPhase::HandedOver);
                deadline
            }
            false => self.exit_deadline(),
        };
        // A job without outputs waits no longer than this.
        let saved_by = self.exit_deadline();
        let continuous = self.uploads.finish(until, saved_by);
        let request = UploadRequest {
            owner: self.task_env.owner_id(&self.submitted),
            outputs,
            reservations: self.task_env.reservations(&self.submitted),
            work: self.task_env.program_dir(&self.submitted),
            upload_log: self.uploads.upload_log.clone(),
            deadline,
        };
        let worker = self.hdfs_worker.clone();
        let stores = HdfsClients::new(self.task_env.job().clone());
        tokio::spawn(async move {
            let copying = async {
                continuous.await;
                if request.outputs.is_empty() {
                    return Ok(());
                }
                let sent = match &worker {
                    Some(worker) => worker.upload(request).await,
                    None => Some(outputs::upload_outputs(&stores, &request).await),
                };
                let sent = sent.ok_or_else(|| "copying them failed".to_owned())?;
                sent.map(drop).map_err(|error| error.to_string())
            };
            let (copied, ()) = tokio::join!(copying, logs);
            // The receiver is gone if the agent is exiting.
            let _ = done.send(copied.err());
        });
    }

    /// Returns the deadline of the exit after the agent was told to leave.
    pub(super) fn exit_deadline(&mut self) -> Instant {
        let timeout = exit_timeout(&self.submitted.spec.timeouts);
        *self.exits_at.get_or_insert_with(|| Instant::now() + timeout)
    }

    /// Uploads outputs of the program that is about to start while it runs. Cancels the uploads of an earlier program.
    pub(super) fn start_output_uploads(&mut self) {
        self.uploads.phase = Arc::new(watch::Sender::new(ProgramPhase::Running));
        self.uploads.upload_log.set_outside_process(None);
        let Some(worker) = &self.hdfs_worker else {
            return;
        };
        let owner = self.task_env.owner_id(&self.submitted);
        let outputs = self.task_env.outputs(&self.submitted).into_iter();
        for (at, output) in outputs.enumerate() {
            if let Some(every) = output.every {
                worker.upload_continuously(ContinuousUpload {
                    // A separate owner: half-uploaded files of the final upload or of another output must not be
                    // removed.
                    owner: format!("kept{at}-{owner}"),
                    work: self.task_env.program_dir(&self.submitted),
                    from: output.from,
                    to: output.to,
                    existing: output.existing,
                    shared: output.shared,
                    mirror: false,
                    reservations: self.task_env.reservations(&self.submitted),
                    every: Duration::from_millis(every.0),
                    upload_log: self.uploads.upload_log.clone(),
                    phase: self.uploads.phase.subscribe(),
                });
            }
        }
    }

    /// Uploads checkpoints of the program that is about to start while it runs.
    pub(super) fn start_checkpoint_upload(&mut self) {
        self.uploads.checkpoint = Arc::new(watch::Sender::new(ProgramPhase::Running));
        let (Some(worker), Some(url)) =
            (&self.hdfs_worker, self.task_env.checkpoint(&self.submitted).url)
        else {
            return;
        };
        worker.upload_continuously(ContinuousUpload {
            owner: format!("saved-{}", self.task_env.owner_id(&self.submitted)),
            work: self.task_env.dir().to_owned(),
            from: CHECKPOINT.to_owned(),
            to: url,
            existing: ExistingPolicy::Overwrite,
            shared: false,
            mirror: true,
            reservations: self.task_env.reservations(&self.submitted),
            every: CHECKPOINT_EVERY,
            upload_log: self.uploads.upload_log.clone(),
            phase: self.uploads.checkpoint.subscribe(),
        });
    }

    /// Returns true for a sidecar: it only reads what the job's tasks save.
    pub(super) fn is_sidecar(&self, task: &TaskId) -> bool {
        let role = self.submitted.spec.role(&task.role);
        role.is_some_and(RoleSpec::is_sidecar)
    }

    /// Returns true if the program's checkpoint is restored; otherwise starts the restore.
    pub(super) fn has_checkpoint(&mut self, run: &AttemptRun) -> bool {
        if self.restored_round == Some(run.round) {
            return true;
        }
        if self.restore.is_some() {
            return false;
        }
        if self.is_sidecar(&run.task) {
            return true;
        }
        let checkpoint = self.task_env.checkpoint(&self.submitted);
        // A job's own directory is empty before its first programs have run.
        let own = self.submitted.spec.cluster_options.checkpoint.is_none();
        let first = own && run.round == 1 && run.attempt == 1;
        let (Some(worker), Some(from), false) = (&self.hdfs_worker, checkpoint.url, first) else {
            self.restored_round = Some(run.round);
            return true;
        };
        let start = Duration::from_millis(self.submitted.spec.timeouts.start.0);
        let restored = worker.restore(Restore {
            from,
            to: checkpoint.dir,
            upload_log: self.uploads.upload_log.clone(),
            deadline: Instant::now() + start.saturating_sub(SPARE),
        });
        let round = run.round;
        self.restore = Some(tokio::spawn(async move { (round, restored.await) }));
        false
    }

    /// Handles the end of a restore.
    pub(super) fn on_restored(&mut self, restored: Option<(u32, Result<(), String>)>) {
        self.restore = None;
        let Some((round, restored)) = restored else {
            return;
        };
        self.restored_round = Some(round);
        if let (Err(why), Some(Order::Run(run))) = (restored, self.order.clone())
            && run.round == round
        {
            self.fail_start(run, why);
        }
    }

    /// Waits until the logs are in HDFS, up to the timeout.
    pub(super) fn finish_logs(&self, timeout: Duration) -> impl Future<Output = ()> + Send + use<> {
        let deadline = Instant::now() + timeout;
        let finish = self.hdfs_worker.as_ref().map(|worker| worker.finish(deadline));
        async {
            if let Some(finish) = finish
                && !finish.await
            {
                tracing::warn!("the end of the logs was not shipped to HDFS in time");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::Span;

    #[test]
    fn an_agent_exits_shortly_before_the_stop_timeout() {
        let of = |grace, stop| {
            exit_timeout(&Timeouts {
                grace: Span::seconds(grace),
                stop: Span::seconds(stop),
                ..Timeouts::default()
            })
        };
        assert_eq!(of(10, 20), Duration::from_secs(28));
        assert_eq!(of(60, 4), Duration::from_secs(63));
    }
}
