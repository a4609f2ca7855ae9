//! What is left to do when a task is over: its outputs go where its user wants them, and the last of its logs.

use super::Agent;
use crate::agent::{
    outputs::{self, ContinuousUpload, LocalCopy, ProgramPhase, Reservations, Restore, UploadLog},
    shipping::{HdfsUpload, UploadRequest},
    task_env::{CHECKPOINT, Destination, TaskOutput},
};
use std::{collections::BTreeMap, future::Future, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};
use ydl_core::{
    Order, Run, TaskId,
    spec::{ExistingPolicy, RoleSpec, Timeouts},
};

/// How long the last of the logs may take: HDFS may be away for a moment, and somebody waits.
const LOGS_MAX: Duration = Duration::from_secs(30);
/// The same when outputs are not wanted, which is when something went wrong or somebody is in a hurry.
const LOGS_MAX_UNSAVED: Duration = Duration::from_secs(10);
/// How often checkpoints are looked for that are new and finished.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// How long the last checkpoints of a program may take before the next round begins without them.
const CHECKPOINT_MAX: Duration = Duration::from_secs(600);
/// An agent is gone so long before nobody waits for it any more, or a quarter of `timeouts.stop`.
const SPARE: Duration = Duration::from_secs(2);

/// Those who send a program's outputs while it runs, as their agent sees them.
#[derive(Debug)]
pub(super) struct Uploads {
    /// Dropped, nothing more is sent.
    phase: Arc<watch::Sender<ProgramPhase>>,
    /// The same for its checkpoints.
    checkpoint: Arc<watch::Sender<ProgramPhase>>,
    /// Until when the last ones may take.
    saved_by: Option<Instant>,
    pub(super) sent: UploadLog,
}

impl Default for Uploads {
    fn default() -> Uploads {
        Uploads {
            phase: Arc::new(watch::Sender::new(ProgramPhase::Running)),
            checkpoint: Arc::new(watch::Sender::new(ProgramPhase::Running)),
            saved_by: None,
            sent: UploadLog::default(),
        }
    }
}

impl Uploads {
    /// The program is over.
    pub(super) fn over(&mut self) {
        self.phase.send_replace(ProgramPhase::Ended);
        self.checkpoint.send_replace(ProgramPhase::Ended);
        self.saved_by = Some(Instant::now() + CHECKPOINT_MAX);
    }

    /// Whether the checkpoints of the last program are where the next one finds them, or nobody waits for them any more.
    pub(super) fn is_saved(&self) -> bool {
        let late = self.saved_by.is_none_or(|by| by <= Instant::now());
        self.checkpoint.is_closed() || late
    }

    /// Until that is so.
    pub(super) async fn saved(&self) {
        let by = self.saved_by.unwrap_or_else(Instant::now);
        if timeout_at(by, self.checkpoint.closed()).await.is_err() {
            tracing::warn!("the last checkpoints are not saved");
        }
    }

    /// Waits until all that is theirs is sent, until then at most, and the checkpoints until then.
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
                tracing::warn!("the last checkpoints are not sent");
            }
        }
    }
}

/// How long an agent may stay that is told to leave: as long as the master waits for it.
pub(super) fn patience(deadlines: &Timeouts) -> Duration {
    let stop = Duration::from_millis(deadlines.stop.0);
    let whole = Duration::from_millis(deadlines.grace.0) + stop;
    whole.saturating_sub(SPARE.min(stop / 4))
}

impl Agent {
    /// Copies the outputs beside the loop: it may take minutes, and the agent must go on beating.
    pub(super) fn save(&mut self, wanted: bool) {
        let (done, saving) = oneshot::channel();
        self.saving = Some(saving);
        let outputs = match (&self.order, wanted) {
            (Some(_), true) => self.surroundings.outputs(&self.submitted),
            _ => Vec::new(),
        };
        let (mut near, mut far, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for TaskOutput { from, to, existing, every, shared } in outputs {
            let kept = every.is_some();
            names.push(from.clone());
            match to {
                Destination::Local(to) => near.push(LocalCopy { from, to, existing, kept, shared }),
                Destination::Hdfs(to) => far.push(HdfsUpload { from, to, existing, kept, shared }),
            }
        }
        let claims = self.surroundings.claims(&self.submitted);
        let logs = self.finish_logs(if wanted { LOGS_MAX } else { LOGS_MAX_UNSAVED });
        let save = Duration::from_millis(self.submitted.spec.timeouts.upload.0);
        let deadline = Instant::now() + save;
        let work = self.surroundings.work();
        // Those who sent while the program ran send the rest of theirs, unless all outputs are sent now.
        let until = match wanted {
            true => {
                self.keeping.phase.send_replace(ProgramPhase::HandedOver);
                deadline
            }
            false => self.leave_by(),
        };
        // A job without outputs waits for no more than this.
        let saved_by = self.leave_by();
        let kept = self.keeping.finish(until, saved_by);
        let sent = self.keeping.sent.clone();
        let carrier = self.carrier.clone();
        let whose = self.surroundings.whose(&self.submitted);
        tokio::spawn(async move {
            let copying = async {
                kept.await;
                let far = async {
                    if far.is_empty() {
                        return Ok(Vec::new());
                    }
                    let Some(carrier) = &carrier else {
                        return Err("there is no way to HDFS from here".to_owned());
                    };
                    let sending = carrier.send(UploadRequest {
                        whose,
                        outputs: far,
                        claims: claims.clone(),
                        work: work.clone(),
                        sent: sent.clone(),
                        deadline,
                    });
                    match sending.await {
                        Some(sent) => {
                            sent.map(|copied| copied.absent).map_err(|error| error.to_string())
                        }
                        None => Err("copying them failed".to_owned()),
                    }
                };
                let near = copy(&work, &claims, near, &sent);
                let (near, far) = tokio::join!(near, far);
                let mut absent = near?;
                absent.extend(far?);
                if let Some(carrier) = &carrier {
                    carrier.note(&claims, &names, &absent).await;
                } else {
                    claims.note(None, &names, &absent).await;
                }
                Ok::<(), String>(())
            };
            let (copied, ()) = tokio::join!(copying, logs);
            // Nobody listens only when the agent is ending anyway.
            let _ = done.send(copied.err());
        });
    }

    /// When an agent that is told to leave must be gone.
    pub(super) fn leave_by(&mut self) -> Instant {
        let patience = patience(&self.submitted.spec.timeouts);
        *self.leaves.get_or_insert_with(|| Instant::now() + patience)
    }

    /// Sends checkpoints of the program that is about to start while it runs. Those of an earlier one are not sent any more
    /// as they were.
    pub(super) fn keep_outputs(&mut self) {
        self.keeping.phase = Arc::new(watch::Sender::new(ProgramPhase::Running));
        self.keeping.sent.program(None);
        let Some(carrier) = &self.carrier else {
            return;
        };
        let whose = self.surroundings.whose(&self.submitted);
        let outputs = self.surroundings.outputs(&self.submitted).into_iter();
        for (at, leaving) in outputs.enumerate() {
            if let Some(every) = leaving.every {
                carrier.keep(ContinuousUpload {
                    // What is half sent at the end of the job, or of another output, is not this one's to remove.
                    whose: format!("kept{at}-{whose}"),
                    work: self.surroundings.work(),
                    from: leaving.from,
                    to: leaving.to,
                    existing: leaving.existing,
                    shared: leaving.shared,
                    mirror: false,
                    claims: self.surroundings.claims(&self.submitted),
                    every: Duration::from_millis(every.0),
                    sent: self.keeping.sent.clone(),
                    phase: self.keeping.phase.subscribe(),
                });
            }
        }
    }

    /// Saves the checkpoints of the program that is about to start while it runs.
    pub(super) fn keep_checkpoint(&mut self) {
        self.keeping.checkpoint = Arc::new(watch::Sender::new(ProgramPhase::Running));
        let (Some(carrier), Some(url)) =
            (&self.carrier, self.surroundings.checkpoint(&self.submitted).url)
        else {
            return;
        };
        carrier.keep(ContinuousUpload {
            whose: format!("saved-{}", self.surroundings.whose(&self.submitted)),
            work: self.surroundings.dir().to_owned(),
            from: CHECKPOINT.to_owned(),
            to: Destination::Hdfs(url),
            existing: ExistingPolicy::Overwrite,
            shared: false,
            mirror: true,
            claims: self.surroundings.claims(&self.submitted),
            every: CHECKPOINT_EVERY,
            sent: self.keeping.sent.clone(),
            phase: self.keeping.checkpoint.subscribe(),
        });
    }

    /// Whether a task is no part of the job: it only looks at what others save.
    pub(super) fn is_beside(&self, task: &TaskId) -> bool {
        let role = self.submitted.spec.role(&task.role);
        role.is_some_and(RoleSpec::is_sidecar)
    }

    /// Whether the program of that run finds what was saved; if not, it is brought.
    pub(super) fn has_checkpoint(&mut self, run: &Run) -> bool {
        if self.filled == Some(run.round) {
            return true;
        }
        if self.filling.is_some() {
            return false;
        }
        if self.is_beside(&run.task) {
            return true;
        }
        let place = self.surroundings.checkpoint(&self.submitted);
        // In a job's own directory there is nothing before its first programs have run.
        let own = self.submitted.spec.cluster_options.checkpoint.is_none();
        let first = own && run.round == 1 && run.attempt == 1;
        let (Some(carrier), Some(from), false) = (&self.carrier, place.url, first) else {
            self.filled = Some(run.round);
            return true;
        };
        let start = Duration::from_millis(self.submitted.spec.timeouts.start.0);
        let fill = carrier.fill(Restore {
            from,
            to: place.dir,
            sent: self.keeping.sent.clone(),
            deadline: Instant::now() + start.saturating_sub(SPARE),
        });
        let round = run.round;
        self.filling = Some(tokio::spawn(async move { (round, fill.await) }));
        false
    }

    /// What was saved is here, or cannot be had.
    pub(super) fn on_filled(&mut self, filled: Option<(u32, Result<(), String>)>) {
        self.filling = None;
        let Some((round, filled)) = filled else {
            return;
        };
        self.filled = Some(round);
        if let (Err(why), Some(Order::Run(run))) = (filled, self.order.clone())
            && run.round == round
        {
            self.give_up(run, why);
        }
    }

    /// Waits until what programs have printed is where it outlives this container, for so long at most.
    pub(super) fn finish_logs(
        &self,
        patience: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        let deadline = Instant::now() + patience;
        let finish = self.carrier.as_ref().map(|carrier| carrier.finish(deadline));
        async {
            if let Some(finish) = finish
                && !finish.await
            {
                tracing::warn!("the last of the logs is not in HDFS");
            }
        }
    }
}

/// Copies on this node; says what was not there, or what went wrong.
async fn copy(
    work: &Path,
    claims: &Reservations,
    outputs: Vec<LocalCopy>,
    sent: &UploadLog,
) -> Result<Vec<String>, String> {
    let (mut settled, mut refused) = (Vec::new(), None);
    for mut output in outputs {
        let taken = match output.shared {
            true => outputs::taken_here(claims, work, &output).await,
            false => Ok(BTreeMap::new()),
        };
        let to = match taken {
            Ok(taken) => (claims.here(output.existing, &output.to).await).map(|to| (to, taken)),
            Err(why) => Err(why),
        };
        match to {
            Ok((to, taken)) => {
                output.to = to;
                settled.push((output, taken));
            }
            Err(why) => refused = Some(format!("cannot copy `{}`: {why}", output.from)),
        }
    }
    if settled.is_empty() {
        return refused.map_or(Ok(Vec::new()), Err);
    }
    let (work, sent, own) = (work.to_owned(), sent.clone(), settled.clone());
    let copying = tokio::task::spawn_blocking(move || outputs::copy_rest(&work, &own, &sent));
    let copied = copying.await;
    for (output, _) in &settled {
        claims.placed_here(output.existing, &output.to).await;
    }
    let copied = match copied {
        Ok(copied) => copied.map(|copied| copied.absent).map_err(|error| error.to_string()),
        Err(_) => Err("copying them failed".to_owned()),
    };
    match refused {
        Some(why) => Err(why),
        None => copied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::Span;

    #[test]
    fn an_agent_is_gone_a_moment_before_nobody_waits_for_it() {
        let of = |grace, stop| {
            patience(&Timeouts {
                grace: Span::seconds(grace),
                stop: Span::seconds(stop),
                ..Timeouts::default()
            })
        };
        assert_eq!(of(10, 20), Duration::from_secs(28));
        assert_eq!(of(60, 4), Duration::from_secs(63));
    }
}
