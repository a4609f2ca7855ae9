//! What is told to a tracking server, and when.

use super::{
    api::{METRICS_MAX, Row, Run},
    kept::{self, Logs},
    server::{Failure, Server},
    words::{self, JOB_TAG, Told},
};
use crate::{
    env,
    jobs::{JobDir, Submitted},
    master::inbox::{Answer, Kept, Letter, Question},
    talk::Viewed,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at},
};
use ydl_core::{JobSpec, Outcome, spec::Mlflow};

/// How long the job may wait for its run to be there.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// How often it is looked what programs have reported, and every how many looks what they use.
const LOOK: Duration = Duration::from_secs(2);
const USE_EVERY: u32 = 5;
/// How long a look may take.
const VIEW_MAX: Duration = Duration::from_secs(10);
/// Before the next try to reach a server that is away, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Values that wait for a server that is away; the oldest go first.
const ROWS_MAX: usize = 20_000;
/// Complaints that are written down.
const COMPLAINTS_MAX: u32 = 10;

/// A job's run, told from here.
#[derive(Debug)]
pub(in crate::master) struct Tracker {
    server: Server,
    wanted: Mlflow,
    id: String,
    spec: JobSpec,
    began_ms: u64,
    run: Option<Run>,
    /// Whether it knows what the job is.
    introduced: bool,
    told: Told,
    rows: VecDeque<Row>,
    complaints: u32,
    /// When the server is asked again, and how long to wait after that.
    not_before: Instant,
    retry: Duration,
}

impl Tracker {
    /// The run of a job, if it wants one: the one that an earlier master has begun, or a new one. A server that is not there
    /// is asked again later.
    pub(in crate::master) async fn begin(
        submitted: &Submitted,
        secret: Option<&[u8]>,
    ) -> Option<Tracker> {
        let wanted = submitted.spec.on_cluster.mlflow.clone()?;
        let secret = secret.map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        let server = Server::new(&wanted.uri, wanted.user.as_deref(), secret.as_deref());
        let server = match server {
            Ok(server) => server,
            Err(why) => {
                tracing::warn!("MLflow is told nothing: {why}");
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
            introduced: false,
            told: Told::new(),
            rows: VecDeque::new(),
            complaints: 0,
            not_before: Instant::now(),
            retry: RETRY.0,
        };
        match timeout(BEGIN_MAX, tracker.push()).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => tracker.failed(&failure),
            Err(_) => tracker.failed(&Failure::Away("it has not answered in time".to_owned())),
        }
        Some(tracker)
    }

    /// What programs are told, so that what they log themselves goes to the same run.
    pub(in crate::master) fn variables(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        all.insert(env::MLFLOW_TRACKING_URI.to_owned(), self.wanted.uri.clone());
        if let Some(run) = &self.run {
            all.insert(env::MLFLOW_RUN_ID.to_owned(), run.id.clone());
            all.insert(env::MLFLOW_EXPERIMENT_ID.to_owned(), run.experiment.clone());
        }
        all
    }

    /// Tells how the job goes from now on.
    pub(in crate::master) fn follow(self, letters: mpsc::Sender<Letter>) -> Following {
        let (end, ended) = oneshot::channel();
        let following = tokio::spawn(self.tell(letters, ended));
        Following { following, end }
    }

    async fn tell(
        mut self,
        letters: mpsc::Sender<Letter>,
        mut ended: oneshot::Receiver<()>,
    ) -> Tracker {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                _ = &mut ended => return self,
                _ = look.tick() => {}
            }
            let viewed = tokio::select! {
                _ = &mut ended => return self,
                viewed = view(&letters) => viewed,
            };
            if let Some(viewed) = viewed {
                self.look(&viewed, looks.is_multiple_of(USE_EVERY));
                looks = looks.wrapping_add(1);
            }
            if Instant::now() < self.not_before {
                continue;
            }
            let pushed = tokio::select! {
                _ = &mut ended => return self,
                pushed = self.push() => pushed,
            };
            match pushed {
                Ok(()) => self.retry = RETRY.0,
                Err(failure) => self.failed(&failure),
            }
        }
    }

    /// Takes in what is new.
    fn look(&mut self, viewed: &Viewed, use_too: bool) {
        self.rows.extend(words::reported(viewed, &mut self.told));
        if use_too {
            self.rows.extend(words::used(viewed, now_ms()));
        }
        let over = self.rows.len().saturating_sub(ROWS_MAX);
        self.rows.drain(..over);
    }

    /// Tells everything that is not told yet.
    async fn push(&mut self) -> Result<(), Failure> {
        let run = match self.run.clone() {
            Some(run) => run,
            None => self.find_run().await?,
        };
        if !self.introduced {
            let params = words::params(&self.spec);
            match self.server.params(&run, &params).await {
                // A run that was begun before has them, perhaps of an earlier size.
                Ok(()) | Err(Failure::Refused { .. }) => self.introduced = true,
                Err(failure) => return Err(failure),
            }
        }
        while !self.rows.is_empty() {
            let count = self.rows.len().min(METRICS_MAX);
            let some: Vec<_> = self.rows.iter().take(count).cloned().collect();
            match self.server.metrics(&run, &some).await {
                Ok(()) => {}
                // What it will not take it is not told again.
                Err(failure @ Failure::Refused { .. }) => self.complain(&failure),
                Err(failure) => return Err(failure),
            }
            self.rows.drain(..count);
        }
        Ok(())
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
                let tags = words::tags(&self.wanted, &self.id, &self.spec, &user);
                let name = words::run_name(&self.wanted, &self.id);
                let made = self
                    .server
                    .make_run(&experiment, name, self.began_ms, &tags);
                made.await?
            }
        };
        tracing::info!("MLflow's run is {} at {}", run.id, self.server.uri());
        self.run = Some(run.clone());
        Ok(run)
    }

    fn failed(&mut self, failure: &Failure) {
        self.complain(failure);
        self.not_before = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(RETRY.1);
    }

    fn complain(&mut self, failure: &Failure) {
        self.complaints += 1;
        if self.complaints <= COMPLAINTS_MAX {
            let uri = self.server.uri();
            tracing::warn!("MLflow at `{uri}` was not told everything yet: {failure}");
        }
    }

    /// How it ended, and what is left of it.
    async fn finish(&mut self, outcome: &Outcome, left: Logs) -> Result<(), Failure> {
        let pushed = self.push().await;
        let Some(run) = self.run.clone() else {
            return pushed;
        };
        // First of all: the rest is good to have.
        let status = words::status(outcome);
        self.server.status(&run, status, Some(now_ms())).await?;
        let Some(place) = &run.artifacts else {
            tracing::info!("MLflow's server takes no artifacts itself, and gets none");
            return pushed;
        };
        for (name, bytes) in left {
            self.server.artifact(place, &name, bytes).await?;
        }
        pushed
    }
}

/// A run that is told how its job goes.
#[derive(Debug)]
pub(in crate::master) struct Following {
    following: JoinHandle<Tracker>,
    end: oneshot::Sender<()>,
}

impl Following {
    /// The job is over. `last` is its last view, `logs` what its tasks printed last. It takes so long at most.
    pub(in crate::master) async fn end(
        self,
        outcome: &Outcome,
        last: Option<&Viewed>,
        logs: Logs,
        dir: &JobDir,
        patience: Duration,
    ) {
        let deadline = Instant::now() + patience;
        // Dropped or sent, it means the same.
        let _ = self.end.send(());
        let Ok(Ok(mut tracker)) = timeout_at(deadline, self.following).await else {
            return;
        };
        if let Some(last) = last {
            tracker.look(last, false);
        }
        let mut left = kept::about(&tracker.spec, dir);
        left.extend(logs);
        let told = async {
            let Err(failure) = tracker.finish(outcome, left.clone()).await else {
                return;
            };
            tracker.failed(&failure);
            // It may have been away for a moment; then it is worth one more.
            sleep_until(tracker.not_before.min(Instant::now() + RETRY.0)).await;
            if let Err(failure) = tracker.finish(outcome, left).await {
                tracker.complain(&failure);
            }
        };
        if timeout_at(deadline, told).await.is_err() {
            tracing::warn!("MLflow was not told everything in time");
        }
    }
}

/// The job as everybody sees it.
async fn view(letters: &mpsc::Sender<Letter>) -> Option<Viewed> {
    let (answer, answered) = oneshot::channel();
    let letter = Letter {
        question: Question::View { seen: 0 },
        answer,
        kept: Kept::default(),
    };
    let asking = async {
        letters.send(letter).await.ok()?;
        answered.await.ok()
    };
    match timeout(VIEW_MAX, asking).await {
        Ok(Some(Answer::Reply(reply))) => serde_json::from_slice(&reply.body).ok(),
        _ => None,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}
