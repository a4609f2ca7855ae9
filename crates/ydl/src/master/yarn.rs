//! Lifecycle of a master in a container of a cluster.
//!
//! The working directory of the container is the job's directory on this node. Data that must outlive the
//! node is in HDFS. If a master dies, its successor recovers from the journal.

mod bootstrap;
mod listeners;
mod tokens;

use super::{
    event_loop::Master,
    inbox::Envelope,
    journal::{HdfsJournal, RecoverError, is_replaced, recover},
    lifecycle::{self, ApiServer, Deployment},
    mlflow,
    publisher::HdfsPublisher,
    recovered::{Recovered, Replay},
};
use crate::backend::yarn::{YarnBackend, YarnSetup};
use bootstrap::MasterBootstrap;
use listeners::{JobPage, listen, public_address, serve_page};
use std::{fs::File, process::ExitCode, time::Duration};
use tokens::TokenRenewer;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep},
};
use ydl_core::Outcome;
use ydl_os::{
    descriptors::Descriptors,
    process,
    report::{Exit, Report},
};
use ydl_proto::{
    files::{JobDir, MasterAddress},
    messages::JobSnapshot,
};
use ydl_storage::{
    data,
    hdfs::{FileSystems, Hdfs, HdfsError, Kind},
};

/// Timeout of name lookups and small requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for an unavailable file system at the start.
const HDFS_RETRY_MAX: Duration = Duration::from_secs(300);
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Interval of checks for a later master. Agents wait for one no longer than the heartbeat timeout.
const TAKEOVER_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Reason why a master ends before its job.
enum MasterError {
    /// No other master could succeed: the job failed.
    JobFailed(Report),
    /// Another master takes over.
    Superseded(Report),
}

impl From<Report> for MasterError {
    fn from(report: Report) -> MasterError {
        MasterError::Superseded(report)
    }
}

/// Runs the master of the job in this container.
pub(crate) fn run() -> ExitCode {
    // Each agent keeps a connection open.
    Descriptors::raise();
    match lifecycle::block_on(run_master()) {
        Ok(outcome) => {
            tracing::info!("the job {outcome}");
            ExitCode::SUCCESS
        }
        Err(report) => {
            tracing::error!("{}", report.what);
            report.exit.into()
        }
    }
}

async fn run_master() -> Result<Outcome, Report> {
    let mut bootstrap = match MasterBootstrap::from_env() {
        Ok(bootstrap) => bootstrap,
        Err(report) => {
            bootstrap::report_failure_from_env(&report.what).await;
            return Err(report);
        }
    };
    let mut terminations = signal(SignalKind::terminate())
        .map_err(|e| Report::internal(format!("cannot listen to signals: {e}")))?;
    let mut tokens = bootstrap.tokens.take();
    let outcome = tokio::select! {
        outcome = run_with_tokens(&bootstrap, &mut tokens) => outcome,
        // The application was killed, the node shuts down, or the container was preempted. The job may continue
        // with another master, so this one does not end it. The journal is durable.
        _ = terminations.recv() => {
            let what = "received SIGTERM".to_owned();
            return Err(Report::new(Exit::Interrupted, what));
        }
    };
    match outcome {
        Ok(outcome) => {
            if let Some(tokens) = tokens {
                tokens.cancel().await;
            }
            Ok(outcome)
        }
        Err(MasterError::Superseded(report)) => Err(report),
        Err(MasterError::JobFailed(report)) => {
            bootstrap.report_failure(&report.what).await;
            Err(report)
        }
    }
}

/// Runs the job while keeping its tokens fresh.
async fn run_with_tokens(
    bootstrap: &MasterBootstrap,
    tokens: &mut Option<TokenRenewer>,
) -> Result<Outcome, MasterError> {
    let Some(tokens) = tokens else {
        return run_job(bootstrap).await;
    };
    // Before any file system access: the tokens of an earlier master may have expired.
    let due = tokens.begin().await?;
    tokio::select! {
        outcome = run_job(bootstrap) => outcome,
        never = tokens.keep_fresh(due) => match never {},
    }
}

/// Runs the job to its end.
async fn run_job(bootstrap: &MasterBootstrap) -> Result<Outcome, MasterError> {
    let hdfs = connected(bootstrap).await?;
    let (state, journal) = recover_state(bootstrap, &hdfs).await?;
    let listener = listen(bootstrap.host.as_deref()).await?;
    let address = public_address(bootstrap.host.as_deref(), &listener)?;

    let tls = bootstrap.identity.server();
    let tls = tls.map_err(|e| MasterError::JobFailed(Report::internal(e.to_string())))?;
    let page = serve_page(bootstrap, &listener);
    let yarn = yarn_setup(bootstrap, &hdfs, &address, &page, &state).await?;
    let this = process::Identity::this().ok_or_else(|| Report::internal("cannot read `/proc`"))?;
    let published = MasterAddress {
        address,
        attempt: bootstrap.attempt,
        pid: this.pid,
        pid_started: this.started,
    };
    // Agents of this master know its address, so nothing waits for this.
    let (hdfs_client, layout) = (hdfs.clone(), bootstrap.layout.clone());
    tokio::spawn(async move {
        if let Err(error) = HdfsPublisher::publish_address(&hdfs_client, &layout, &published).await
        {
            tracing::error!(
                "cannot publish the address of this master, only new agents know it: {error}"
            );
            HdfsPublisher::retry_publish_address(hdfs_client, layout, published).await;
        }
    });
    let (submitted, secret) = (bootstrap.submitted.clone(), bootstrap.tracking_secret.clone());
    let tracker = lifecycle::start_tracker(submitted, secret);
    let (backend, live) = YarnBackend::register(yarn).await?;

    let (layout, attempt) = (bootstrap.layout.clone(), bootstrap.attempt);
    let publisher = HdfsPublisher::start(hdfs.clone(), layout, attempt, &bootstrap.dir);
    let mut master = Master::new(state, bootstrap.dir.clone(), backend, journal);
    master.distribute_tokens(bootstrap.agent_credentials.clone());
    if let Some(server) = &page.server {
        master.show_page(server.state());
    }
    if bootstrap.attempt > 1 {
        master.recover(live);
    }
    let api = ApiServer { listener, tls, secret: bootstrap.secret.clone() };
    let deployment = YarnDeployment { bootstrap, hdfs, publisher };
    Ok(lifecycle::run(deployment, master, api, tracker).await?)
}

/// Master in a container of a cluster.
struct YarnDeployment<'a> {
    bootstrap: &'a MasterBootstrap,
    hdfs: Hdfs,
    publisher: HdfsPublisher,
}

impl Deployment for YarnDeployment<'_> {
    type Backend = YarnBackend;
    type Journal = HdfsJournal;
    const TRACKING_TIMEOUT: Duration = REQUEST_TIMEOUT;

    fn dir(&self) -> &JobDir {
        &self.bootstrap.dir
    }

    /// Starts none: signals end this master, not the job.
    fn start_tasks(&mut self, _: &mpsc::Sender<Envelope>) -> JoinSet<()> {
        JoinSet::new()
    }

    async fn superseded(&self) {
        replaced(&self.hdfs, self.bootstrap).await;
    }

    /// Writes the result before the ResourceManager learns of the end: clients look for it then.
    async fn write_result(&mut self, master: &mut Master<YarnBackend, HdfsJournal>, _: &Outcome) {
        master.write_result();
    }

    async fn logs(&self, last: &JobSnapshot) -> mlflow::Artifacts {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        mlflow::yarn_logs(&self.hdfs, &self.bootstrap.layout, last, deadline).await
    }

    async fn finish(self, master: &mut Master<YarnBackend, HdfsJournal>, outcome: &Outcome) {
        let YarnDeployment { bootstrap, publisher, .. } = self;
        if *outcome != Outcome::Succeeded {
            let (submitted, home) = (&bootstrap.submitted, &bootstrap.staged.home);
            let file_systems =
                FileSystems::new(bootstrap.config.clone(), bootstrap.hdfs_identity.clone());
            let deadline = Instant::now() + REQUEST_TIMEOUT;
            data::remove_partial_uploads(
                &submitted.spec,
                &submitted.id,
                Some(home),
                Some(&file_systems),
                deadline,
            )
            .await;
        }
        publisher.end(&bootstrap.dir).await;
        master.close(outcome).await;
    }
}

/// Returns when there is a later master. The ResourceManager and the next write of the journal also detect it. But if
/// the ResourceManager is unreachable and there is nothing to write, agents would never move to their new
/// master.
async fn replaced(hdfs: &Hdfs, bootstrap: &MasterBootstrap) {
    loop {
        sleep(TAKEOVER_CHECK_INTERVAL).await;
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        // An error is retried at the next check.
        if let Ok(true) = is_replaced(hdfs, &bootstrap.layout, bootstrap.attempt, deadline).await {
            return;
        }
    }
}

async fn connected(bootstrap: &MasterBootstrap) -> Result<Hdfs, MasterError> {
    let connect = Hdfs::connect(
        &bootstrap.config,
        Some(bootstrap.layout.dir()),
        &bootstrap.hdfs_identity,
        Instant::now() + REQUEST_TIMEOUT,
    );
    connect.await.map_err(|error| MasterError::JobFailed(error.into()))
}

/// Decides whether another master may succeed: it may if the file system is unavailable or returned an unknown
/// error.
fn classify(error: HdfsError) -> MasterError {
    match error.is_transient() || error.kind == Kind::Other {
        true => MasterError::Superseded(error.into()),
        false => MasterError::JobFailed(error.into()),
    }
}

/// Starts this master's journal and recovers the state of earlier masters.
async fn recover_state(
    bootstrap: &MasterBootstrap,
    hdfs: &Hdfs,
) -> Result<(Recovered, HdfsJournal), MasterError> {
    let path = bootstrap.dir.history_file();
    let events = File::create(&path)
        .map_err(|e| Report::internal(format!("cannot create `{}`: {e}", path.display())))?;
    let mut replay = Replay::new(bootstrap.submitted.spec.clone(), Some(events));
    let recovered = recover(hdfs, &bootstrap.layout, bootstrap.attempt, &mut replay).await;
    let journal = recovered.map_err(|error| match error {
        RecoverError::Fenced => MasterError::Superseded(Report::internal(error.to_string())),
        RecoverError::Hdfs(error) => classify(error),
        RecoverError::Journal(_) | RecoverError::Records(_) => {
            MasterError::JobFailed(Report::internal(error.to_string()))
        }
    })?;
    Ok((replay.finish(), journal))
}

async fn yarn_setup(
    bootstrap: &MasterBootstrap,
    hdfs: &Hdfs,
    address: &str,
    page: &JobPage,
    state: &Recovered,
) -> Result<YarnSetup, MasterError> {
    let end = Instant::now() + HDFS_RETRY_MAX;
    let own = loop {
        match bootstrap.own_files(hdfs, Instant::now() + REQUEST_TIMEOUT).await {
            Ok(own) => break own,
            Err(error) if error.is_transient() && Instant::now() < end => {
                tracing::warn!("cannot read the job's files yet: {error}");
                sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(classify(error)),
        }
    };
    Ok(YarnSetup {
        config: bootstrap.config.clone(),
        token: bootstrap.token.clone(),
        identity: bootstrap.rm_identity.clone(),
        spec: bootstrap.submitted.spec.clone(),
        staged: bootstrap.staged.clone(),
        own,
        secret: bootstrap.secret.clone(),
        agent_credentials: bootstrap.agent_credentials.clone(),
        address: address.to_owned(),
        tracking_url: page.url.clone(),
        final_tracking_url: page.final_url.clone(),
        progress: state.progress.fraction(),
        held: state.containers(),
    })
}
