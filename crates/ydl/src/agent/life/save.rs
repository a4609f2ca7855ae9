//! What is left to do when a task is over: its outputs go where its user wants them, and the last of its logs.

use super::Agent;
use crate::agent::{
    carry::{Going, Outputs},
    outputs::{self, Claims, Kept, Near, Phase, Sent},
    surroundings::{Destination, Leaving},
};
use std::{collections::BTreeMap, future::Future, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};
use ydl_core::spec::Deadlines;

/// How long the last of the logs may take: HDFS may be away for a moment, and somebody waits.
const LOGS_MAX: Duration = Duration::from_secs(30);
/// The same when outputs are not wanted, which is when something went wrong or somebody is in a hurry.
const LOGS_MAX_UNSAVED: Duration = Duration::from_secs(10);
/// An agent is gone so long before nobody waits for it any more, or a quarter of `deadlines.stop`.
const SPARE: Duration = Duration::from_secs(2);

/// Those who send a program's outputs while it runs, as their agent sees them.
#[derive(Debug)]
pub(super) struct Keeping {
    /// Dropped, nothing more is sent.
    phase: Arc<watch::Sender<Phase>>,
    pub(super) sent: Sent,
}

impl Default for Keeping {
    fn default() -> Keeping {
        Keeping {
            phase: Arc::new(watch::Sender::new(Phase::Running)),
            sent: Sent::default(),
        }
    }
}

impl Keeping {
    /// The program is over.
    pub(super) fn over(&self) {
        self.phase.send_replace(Phase::Over);
    }

    /// Waits until all that is theirs is sent, until then at most.
    pub(super) fn finish(&self, deadline: Instant) -> impl Future<Output = ()> + Send + use<> {
        let phase = self.phase.clone();
        async move {
            if timeout_at(deadline, phase.closed()).await.is_err() {
                tracing::warn!("the last checkpoints are not sent");
            }
        }
    }
}

/// How long an agent may stay that is told to leave: as long as the master waits for it.
pub(super) fn patience(deadlines: &Deadlines) -> Duration {
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
        for Leaving {
            from,
            to,
            existing,
            every,
            shared,
        } in outputs
        {
            let kept = every.is_some();
            names.push(from.clone());
            match to {
                Destination::Local(to) => near.push(Near {
                    from,
                    to,
                    existing,
                    kept,
                    shared,
                }),
                Destination::Hdfs(to) => far.push(Going {
                    from,
                    to,
                    existing,
                    kept,
                    shared,
                }),
            }
        }
        let claims = self.surroundings.claims(&self.submitted);
        let logs = self.finish_logs(if wanted { LOGS_MAX } else { LOGS_MAX_UNSAVED });
        let save = Duration::from_millis(self.submitted.spec.deadlines.save.0);
        let deadline = Instant::now() + save;
        let work = self.surroundings.work();
        // Those who sent while the program ran send the rest of theirs, unless all outputs are sent now.
        let until = match wanted {
            true => {
                self.keeping.phase.send_replace(Phase::Handed);
                deadline
            }
            false => self.leave_by(),
        };
        let kept = self.keeping.finish(until);
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
                    let sending = carrier.send(Outputs {
                        whose,
                        outputs: far,
                        claims: claims.clone(),
                        work: work.clone(),
                        sent: sent.clone(),
                        deadline,
                    });
                    match sending.await {
                        Some(sent) => sent
                            .map(|copied| copied.absent)
                            .map_err(|error| error.to_string()),
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
        let patience = patience(&self.submitted.spec.deadlines);
        *self.leaves.get_or_insert_with(|| Instant::now() + patience)
    }

    /// Sends checkpoints of the program that is about to start while it runs. Those of an earlier one are not sent any more
    /// as they were.
    pub(super) fn keep_outputs(&mut self) {
        self.keeping.phase = Arc::new(watch::Sender::new(Phase::Running));
        self.keeping.sent.program(None);
        let Some(carrier) = &self.carrier else {
            return;
        };
        let whose = self.surroundings.whose(&self.submitted);
        let outputs = self.surroundings.outputs(&self.submitted).into_iter();
        for (at, leaving) in outputs.enumerate() {
            if let Some(every) = leaving.every {
                carrier.keep(Kept {
                    // What is half sent at the end of the job, or of another output, is not this one's to remove.
                    whose: format!("kept{at}-{whose}"),
                    work: self.surroundings.work(),
                    from: leaving.from,
                    to: leaving.to,
                    existing: leaving.existing,
                    shared: leaving.shared,
                    claims: self.surroundings.claims(&self.submitted),
                    every: Duration::from_millis(every.0),
                    sent: self.keeping.sent.clone(),
                    phase: self.keeping.phase.subscribe(),
                });
            }
        }
    }

    /// Waits until what programs have printed is where it outlives this container, for so long at most.
    pub(super) fn finish_logs(
        &self,
        patience: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        let deadline = Instant::now() + patience;
        let finish = self
            .carrier
            .as_ref()
            .map(|carrier| carrier.finish(deadline));
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
    claims: &Claims,
    outputs: Vec<Near>,
    sent: &Sent,
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
        Ok(copied) => copied
            .map(|copied| copied.absent)
            .map_err(|error| error.to_string()),
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
            patience(&Deadlines {
                grace: Span::seconds(grace),
                stop: Span::seconds(stop),
                ..Deadlines::default()
            })
        };
        assert_eq!(of(10, 20), Duration::from_secs(28));
        assert_eq!(of(60, 4), Duration::from_secs(63));
    }
}
