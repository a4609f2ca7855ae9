//! What is left to do when a task is over: its outputs go where its user wants them, and the last of its logs.

use super::Agent;
use crate::agent::{
    carry::Outputs,
    outputs::{self, Claims, Kept},
    surroundings::{Destination, Leaving},
};
use std::{future::Future, path::PathBuf, time::Duration};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use ydl_core::spec::Existing;

/// How long the last of the logs may take: HDFS may be away for a moment, and somebody waits.
const LOGS_MAX: Duration = Duration::from_secs(30);
/// The same when outputs are not wanted, which is when something went wrong or somebody is in a hurry.
const LOGS_MAX_UNSAVED: Duration = Duration::from_secs(10);

impl Agent {
    /// Copies the outputs beside the loop: it may take minutes, and the agent must go on beating.
    pub(super) fn save(&mut self, wanted: bool) {
        let (done, saving) = oneshot::channel();
        self.saving = Some(saving);
        let outputs = match (&self.order, wanted) {
            (Some(_), true) => self.surroundings.outputs(&self.submitted),
            _ => Vec::new(),
        };
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for Leaving {
            from, to, existing, ..
        } in outputs
        {
            match to {
                Destination::Local(path) => near.push((from, path, existing)),
                Destination::Hdfs(url) => far.push((from, url, existing)),
            }
        }
        let claims = self.surroundings.claims(&self.submitted);
        let logs = self.finish_logs(if wanted { LOGS_MAX } else { LOGS_MAX_UNSAVED });
        let deadline = Duration::from_millis(self.submitted.spec.deadlines.save.0);
        let deadline = Instant::now() + deadline;
        let work = self.surroundings.work();
        let far = match (&self.carrier, far.is_empty()) {
            (_, true) => None,
            (Some(carrier), false) => Some(carrier.send(Outputs {
                whose: self.surroundings.whose(&self.submitted),
                outputs: far,
                claims: claims.clone(),
                work: work.clone(),
                deadline,
            })),
            (None, false) => {
                let why = "there is no way to HDFS from here".to_owned();
                // The receiver is in our hands.
                let _ = done.send(Some(why));
                return;
            }
        };
        tokio::spawn(async move {
            let far = async {
                match far?.await {
                    Some(sent) => sent.err().map(|error| error.to_string()),
                    None => Some("copying them failed".to_owned()),
                }
            };
            let (near, far, ()) = tokio::join!(copy(work, claims, near), far, logs);
            // Nobody listens only when the agent is ending anyway.
            let _ = done.send(near.or(far));
        });
    }

    /// Sends checkpoints of the program that is about to start while it runs; until what this gives is told or dropped.
    pub(super) fn keep_outputs(&self) -> watch::Sender<bool> {
        let over = watch::Sender::new(false);
        let Some(carrier) = &self.carrier else {
            return over;
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
                    claims: self.surroundings.claims(&self.submitted),
                    every: Duration::from_millis(every.0),
                    over: over.subscribe(),
                });
            }
        }
        over
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

/// Copies on this node; says what went wrong.
async fn copy(
    work: PathBuf,
    claims: Claims,
    outputs: Vec<(String, PathBuf, Existing)>,
) -> Option<String> {
    let (mut settled, mut refused) = (Vec::new(), None);
    for (from, to, existing) in outputs {
        match claims.here(existing, &to).await {
            Ok(to) => settled.push((from, to)),
            Err(why) => refused = Some(format!("cannot copy `{from}`: {why}")),
        }
    }
    if settled.is_empty() {
        return refused;
    }
    let copying = tokio::task::spawn_blocking(move || outputs::copy(&work, &settled));
    let failed = match copying.await {
        Ok(copied) => copied.err().map(|error| error.to_string()),
        Err(_) => Some("copying them failed".to_owned()),
    };
    refused.or(failed)
}
