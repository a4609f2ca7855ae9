//! Updates of a run on a tracking server, and handling of failures.

use super::{
    artifacts::Artifacts,
    params::{self, JOB_TAG, SentMetrics},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::{Instant, timeout};
use ydl_core::{JobSpec, Outcome, spec::Mlflow};
use ydl_mlflow::{
    api::{METRICS_MAX, PARAMS_MAX, Row, Run},
    server::{Failure, Server},
};
use ydl_os::env;
use ydl_proto::{files::SubmittedJob, messages::JobSnapshot};

/// Timeout of creating the run, for which the job waits.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// Initial and maximum delay before a retry.
pub(super) const RETRY_DELAY: (Duration, Duration) =
    (Duration::from_secs(2), Duration::from_secs(60));
/// Maximum number of values that wait for an unavailable server; the oldest are dropped.
const ROWS_MAX: usize = 20_000;
/// Number of server errors over the same values after which they are dropped.
const BROKE_MAX: u32 = 3;
/// Maximum number of warnings to log.
const WARNINGS_MAX: usize = 10;

/// MLflow run of a job.
#[derive(Debug)]
pub(in crate::master) struct Tracker {
    server: Server,
    wanted: Mlflow,
    id: String,
    pub(super) spec: JobSpec,
    began_ms: u64,
    run: Option<Run>,
    /// True once the parameters were sent.
    params_sent: bool,
    sent: SentMetrics,
    pub(super) rows: VecDeque<Row>,
    /// Number of server errors over the first values.
    broke: u32,
    /// True once the outcome was sent.
    ended: bool,
    /// True if the server was unavailable at the last logged attempt.
    pub(super) away: bool,
    /// Logged warnings.
    pub(super) warnings: BTreeSet<String>,
    pub(super) outages: usize,
    /// Time of the next attempt, and the delay after it.
    pub(super) not_before: Instant,
    retry: Duration,
}

impl Tracker {
    /// Finds or creates the run of a job, if it wants one. Retries later if the server is unavailable.
    pub(in crate::master) async fn start(
        submitted: &SubmittedJob,
        secret: Option<&[u8]>,
    ) -> Option<Tracker> {
        let wanted = submitted.spec.cluster_options.mlflow.clone()?;
        let secret = secret.map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        let server = Server::new(&wanted.uri, wanted.user.as_deref(), secret.as_deref());
        let server = match server {
            Ok(server) => server,
            Err(why) => {
                tracing::warn!("MLflow tracking is disabled: {why}");
                return None;
            }
        };
        let mut tracker = Tracker {
            server,
            wanted,
            id: submitted.id.clone(),
            spec: submitted.spec.clone(),
            began_ms: submitted.at.0,
            run: None,
            params_sent: false,
            sent: SentMetrics::new(),
            rows: VecDeque::new(),
            broke: 0,
            ended: false,
            away: false,
            warnings: BTreeSet::new(),
            outages: 0,
            not_before: Instant::now(),
            retry: RETRY_DELAY.0,
        };
        let pushed = timeout(BEGIN_MAX, tracker.push()).await;
        if let Err(failure) = pushed.unwrap_or_else(|_| Err(late(BEGIN_MAX))) {
            tracker.failed(&failure);
        }
        Some(tracker)
    }

    /// Returns variables with which programs log to the same run.
    pub(in crate::master) fn variables(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        all.insert(env::MLFLOW_TRACKING_URI.to_owned(), self.wanted.uri.clone());
        if let Some(run) = &self.run {
            all.insert(env::MLFLOW_RUN_ID.to_owned(), run.id.clone());
            all.insert(env::MLFLOW_EXPERIMENT_ID.to_owned(), run.experiment.clone());
        }
        all
    }

    /// Adds new metrics.
    pub(super) fn observe(&mut self, viewed: &JobSnapshot, with_usage: bool) {
        self.rows.extend(params::reported(viewed, &mut self.sent));
        if with_usage {
            self.rows.extend(params::used(viewed, now_ms()));
        }
        let over = self.rows.len().saturating_sub(ROWS_MAX);
        self.rows.drain(..over);
    }

    /// Sends everything that is pending.
    pub(super) async fn push(&mut self) -> Result<(), Failure> {
        let run = self.run().await?;
        self.send_params(&run).await?;
        while !self.rows.is_empty() {
            let count = self.rows.len().min(METRICS_MAX);
            let some: Vec<_> = self.rows.iter().take(count).cloned().collect();
            let sent = self.server.metrics(&run, &some).await;
            self.broke += u32::from(matches!(sent, Err(Failure::Broke(_))));
            match sent {
                Ok(()) => {}
                // Do not repeat what the server rejects or fails on.
                Err(failure @ Failure::Refused { .. }) => self.warn_once(&failure),
                Err(Failure::Broke(status)) if self.broke >= BROKE_MAX => {
                    let code = "again and again".to_owned();
                    let what = "values that are given up".to_owned();
                    self.warn_once(&Failure::Refused { status, code, what });
                }
                Err(failure) => return Err(failure),
            }
            self.broke = 0;
            self.rows.drain(..count);
        }
        Ok(())
    }

    /// Sends the parameters once. Repeating those of an earlier master changes nothing.
    async fn send_params(&mut self, run: &Run) -> Result<(), Failure> {
        if self.params_sent {
            return Ok(());
        }
        let params: Vec<_> = params::params(&self.spec).into_iter().collect();
        for some in params.chunks(PARAMS_MAX) {
            match self.server.params(run, some).await {
                Ok(()) => {}
                Err(failure @ Failure::Refused { .. }) => self.warn_once(&failure),
                Err(failure) => return Err(failure),
            }
        }
        self.params_sent = true;
        Ok(())
    }

    /// Returns the job's run. Finds or creates it if needed.
    async fn run(&mut self) -> Result<Run, Failure> {
        match self.run.clone() {
            Some(run) => Ok(run),
            None => self.find_run().await,
        }
    }

    async fn find_run(&mut self) -> Result<Run, Failure> {
        let experiment = self.server.experiment(&self.wanted.experiment).await?;
        let tag = (JOB_TAG, self.id.as_str());
        let found = self.server.run_with(&experiment, tag).await?;
        let run = match found {
            Some(run) => {
                self.server.status(&run, "RUNNING", None).await?;
                run
            }
            None => {
                let user = std::env::var(env::USER).unwrap_or_default();
                let tags = params::tags(&self.wanted, &self.id, &self.spec, &user);
                let name = params::run_name(&self.wanted, &self.id);
                let made = self.server.make_run(&experiment, name, self.began_ms, &tags);
                made.await?
            }
        };
        tracing::info!("MLflow's run is {} at {}", run.id, self.server.uri());
        self.run = Some(run.clone());
        Ok(run)
    }

    pub(super) fn went_well(&mut self) {
        self.retry = RETRY_DELAY.0;
        if std::mem::take(&mut self.away) && self.outages <= WARNINGS_MAX {
            tracing::info!("MLflow at `{}` is available again", self.server.uri());
        }
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        self.warn_once(failure);
        self.not_before = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(RETRY_DELAY.1);
    }

    /// Logs a failure once, until the server has recovered: it may last for days.
    pub(super) fn warn_once(&mut self, failure: &Failure) {
        let is_new = match failure {
            Failure::Away(_) | Failure::Broke(_) => {
                let is_new = !std::mem::replace(&mut self.away, true);
                self.outages += usize::from(is_new);
                is_new && self.outages <= WARNINGS_MAX
            }
            Failure::Refused { .. } | Failure::Nonsense(_) => {
                self.warnings.len() < WARNINGS_MAX && self.warnings.insert(failure.to_string())
            }
        };
        if is_new {
            let uri = self.server.uri();
            tracing::warn!("MLflow at `{uri}` update failed: {failure}");
        }
    }

    /// Sends the outcome and the artifacts. Keeps what was not sent in `left`.
    pub(super) async fn finish(
        &mut self,
        outcome: &Outcome,
        left: &mut Artifacts,
    ) -> Result<(), Failure> {
        let run = self.run().await?;
        // Send the outcome first: the rest is optional and may be large.
        if !self.ended {
            let status = params::status(outcome);
            self.server.status(&run, status, Some(now_ms())).await?;
            self.ended = true;
        }
        self.push().await?;
        let Some(place) = &run.artifacts else {
            tracing::info!("MLflow's server does not accept artifacts; none are uploaded");
            return Ok(());
        };
        while let Some((name, bytes)) = left.last() {
            match self.server.artifact(place, name, bytes.clone()).await {
                Ok(()) => {}
                // One artifact that is too large for a proxy must not block the others.
                Err(failure @ (Failure::Refused { .. } | Failure::Broke(_))) => {
                    self.warn_once(&failure);
                }
                Err(failure) => return Err(failure),
            }
            left.pop();
        }
        Ok(())
    }
}

/// Returns the failure for a timeout.
pub(super) fn late(after: Duration) -> Failure {
    Failure::Away(format!("it has not response in {} s", after.as_secs()))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}
