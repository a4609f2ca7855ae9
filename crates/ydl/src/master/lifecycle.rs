//! Lifecycle that masters on this machine and on a cluster share: serve the API, run the event loop until the job is
//! over, report to MLflow, and release everything.

use super::{
    api::serve,
    event_loop::Master,
    inbox::{Envelope, inbox},
    journal::Journal,
    mlflow,
};
use crate::backend::Backend;
use std::{fs, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
};
use ydl_core::Outcome;
use ydl_net::secret::Secret;
use ydl_os::report::Report;
use ydl_proto::{
    files::{JobDir, SubmittedJob},
    messages::JobSnapshot,
    version::from_json,
};

/// Differences between a master on this machine and one on a cluster.
pub(super) trait Deployment {
    /// Source of containers.
    type Backend: Backend;
    /// Journal of the job.
    type Journal: Journal;
    /// Timeout for the final report to MLflow.
    const TRACKING_TIMEOUT: Duration;

    /// Returns the directory of the job on this node.
    fn dir(&self) -> &JobDir;

    /// Starts tasks that request the end of the job. They are aborted once the job is over.
    fn start_tasks(&mut self, requests: &mpsc::Sender<Envelope>) -> JoinSet<()>;

    /// Returns once another master has taken over, possibly never.
    async fn superseded(&self);

    /// Writes the result once the outcome is decided.
    async fn write_result(
        &mut self,
        master: &mut Master<Self::Backend, Self::Journal>,
        outcome: &Outcome,
    );

    /// Returns the logs for MLflow.
    async fn logs(&self, last: &JobSnapshot) -> mlflow::Artifacts;

    /// Removes what the job leaves and releases the rest.
    async fn finish(self, master: &mut Master<Self::Backend, Self::Journal>, outcome: &Outcome);
}

/// API server of a master before it starts.
pub(super) struct ApiServer {
    pub(super) listener: TcpListener,
    pub(super) tls: Arc<rustls::ServerConfig>,
    pub(super) secret: Arc<Secret>,
}

/// Start of the job's run in MLflow, if it has one.
pub(super) type TrackerStart = JoinHandle<Option<mlflow::Tracker>>;

/// Starts the job's run in MLflow, if it has one.
pub(super) fn start_tracker(submitted: SubmittedJob, secret: Option<Vec<u8>>) -> TrackerStart {
    tokio::spawn(async move { mlflow::Tracker::start(&submitted, secret.as_deref()).await })
}

/// Runs a master on this thread alone: an agent dies with the thread that started it.
pub(super) fn block_on(
    master: impl Future<Output = Result<Outcome, Report>>,
) -> Result<Outcome, Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Report::internal(format!("cannot start the master: {error}")))?;
    let ended = runtime.block_on(master);
    // Do not wait for name lookups and file system calls in progress.
    runtime.shutdown_background();
    ended
}

/// Runs the job to its end.
pub(super) async fn run<D: Deployment>(
    mut deployment: D,
    mut master: Master<D::Backend, D::Journal>,
    api: ApiServer,
    tracker: TrackerStart,
) -> Result<Outcome, Report> {
    let (requests, mut inbox) = inbox();
    let tasks = deployment.start_tasks(&requests);
    let tracker = tracker.await.ok().flatten();
    let tracking = tracker.map(|tracker| {
        master.set_program_env(tracker.variables());
        tracker.follow(requests.clone())
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let ApiServer { listener, tls, secret } = api;
    let mut serving = tokio::spawn(serve(listener, tls, secret, requests, async {
        // Sent or dropped, it has the same meaning.
        let _ = stopped.await;
    }));
    let outcome = tokio::select! {
        outcome = master.run(&mut inbox) => {
            outcome.map_err(|fenced| Report::internal(fenced.why))?
        }
        () = deployment.superseded() => {
            return Err(Report::internal("another master has taken over"));
        }
        // A master without its API would only wait for the timeouts of its agents.
        ended = &mut serving => {
            let why = ended.map_or_else(|error| error.to_string(), |()| "it closed".to_owned());
            return Err(Report::internal(format!("the API server stopped: {why}")));
        }
    };
    deployment.write_result(&mut master, &outcome).await;
    if let Some(tracking) = tracking {
        let last = fs::read(deployment.dir().result_file()).ok();
        let last = last.and_then(|bytes| from_json::<JobSnapshot>(&bytes).ok());
        let logs = match &last {
            Some(last) => deployment.logs(last).await,
            None => mlflow::Artifacts::new(),
        };
        let dir = deployment.dir();
        tracking.end(&outcome, last.as_ref(), logs, dir, D::TRACKING_TIMEOUT).await;
    }
    deployment.finish(&mut master, &outcome).await;
    drop(tasks);
    drop(stop);
    if let Err(error) = serving.await {
        tracing::error!("the API server failed: {error}");
    }
    Ok(outcome)
}
