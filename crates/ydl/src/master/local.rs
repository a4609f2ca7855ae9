//! Master on this machine.

use super::{
    event_loop::Master,
    inbox::{DurableFlag, Envelope, MasterRequest},
    journal::FileJournal,
    lifecycle::{self, ApiServer, Deployment},
    mlflow,
    recovered::Recovered,
};
use crate::{
    backend::local::{HOST_IP, LocalBackend},
    docker,
};
use std::{
    fs::{self, File},
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use ydl_core::Outcome;
use ydl_net::{
    secret::{Scope, Secret},
    server,
    tls::Identity as Certificate,
};
use ydl_os::{
    private,
    process::{Identity, become_subreaper},
    report::Report,
};
use ydl_proto::{
    files::{JobDir, JobTarget, MasterAddress, SubmittedJob},
    messages::{JobSnapshot, Kill},
    version::{from_json, to_json_line, write_json},
};
use ydl_storage::data;

/// Timeout for removing partial uploads.
const TIDY_TIMEOUT: Duration = Duration::from_secs(20);
/// File with the credentials for MLflow's server in the job's directory, and the maximum size of a token.
const TRACKING_SECRET: &str = "mlflow.secret";
const SECRET_BYTES_MAX: usize = 64 << 10;
/// Interval of checks that the job's directory exists.
const DIR_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the master of the job in `dir`. Prints its address, or the reason of a failure, as the first line on
/// stdout.
pub(crate) fn run(dir: PathBuf) -> ExitCode {
    match lifecycle::block_on(run_master(JobDir::at(dir))) {
        Ok(_) => ExitCode::SUCCESS,
        Err(report) => {
            let line = serde_json::json!({ "error": report.what, "hint": report.hint });
            print_line(&line);
            tracing::error!("{}", report.what);
            report.exit.into()
        }
    }
}

async fn run_master(dir: JobDir) -> Result<Outcome, Report> {
    let failed = |what: &str, path: &Path, why: &dyn std::fmt::Display| {
        Report::internal(format!("cannot {what} `{}`: {why}", path.display()))
    };
    let file = dir.submitted_file();
    let bytes = fs::read(&file).map_err(|e| failed("read", &file, &e))?;
    let submitted: SubmittedJob = from_json(&bytes).map_err(|e| {
        let hint = e.hint().map(str::to_owned);
        Report { hint, ..failed("read", &file, &e) }
    })?;

    let JobTarget::Local(offer) = &submitted.target else {
        let what = format!("`{}` is not a job of this machine", submitted.id);
        return Err(Report::internal(what));
    };

    // Create the journal first: it fails if another master has the job.
    let path = dir.journal_file();
    let journal = FileJournal::create(&path).map_err(|e| Report::internal(e.to_string()))?;
    become_subreaper().map_err(|e| Report::internal(format!("cannot adopt processes: {e}")))?;
    let secret =
        Secret::random().ok_or_else(|| Report::internal("the system returned no random bytes"))?;
    let certificate = Certificate::generate().map_err(|e| Report::internal(e.to_string()))?;
    let tls = certificate.server().map_err(|e| Report::internal(e.to_string()))?;
    let any = SocketAddr::from((HOST_IP, 0));
    let listener = server::listen(any)
        .map_err(|e| Report::internal(format!("cannot listen on {any}: {e}")))?;
    let address = listener.local_addr().map_err(|e| Report::internal(e.to_string()))?.to_string();

    let pem = dir.certificate_file();
    fs::write(&pem, certificate.certificate_pem()).map_err(|e| failed("write", &pem, &e))?;
    let token = secret.token(&Scope::Client).ok_or_else(|| Report::internal("no token"))?;
    token.write(&dir.token_file()).map_err(|e| Report::internal(e.to_string()))?;
    let path = dir.history_file();
    let events = File::create(&path).map_err(|e| failed("create", &path, &e))?;
    let secret = Arc::new(secret);
    let oversubscribe = submitted.spec.local.oversubscribe;
    let secret_of_agents = secret.clone();
    let backend =
        LocalBackend::new(dir.clone(), offer, oversubscribe, address.clone(), secret_of_agents)
            .map_err(|e| Report::internal(format!("cannot use this machine: {e}")))?;

    let signals = KillSignals::listen()
        .map_err(|e| Report::internal(format!("cannot listen to signals: {e}")))?;
    write_address(&dir, &address)?;
    print_line(&serde_json::json!({ "address": address }));
    let secret_of_tracking = private::read(&dir.path().join(TRACKING_SECRET), SECRET_BYTES_MAX);
    let tracker = lifecycle::start_tracker(submitted.clone(), secret_of_tracking.ok());
    let state = Recovered::new_job(submitted.spec.clone(), Some(events));
    let master = Master::new(state, dir.clone(), backend, Some(journal));
    master.reserve_result();
    let deployment = LocalDeployment { dir, submitted, signals: Some(signals) };
    lifecycle::run(deployment, master, ApiServer { listener, tls, secret }, tracker).await
}

/// Master on this machine.
struct LocalDeployment {
    dir: JobDir,
    submitted: SubmittedJob,
    signals: Option<KillSignals>,
}

impl Deployment for LocalDeployment {
    type Backend = LocalBackend;
    type Journal = Option<FileJournal>;
    /// Clients that follow the job wait for its master to exit.
    const TRACKING_TIMEOUT: Duration = Duration::from_secs(8);

    fn dir(&self) -> &JobDir {
        &self.dir
    }

    fn start_tasks(&mut self, requests: &mpsc::Sender<Envelope>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(signals) = self.signals.take() {
            tasks.spawn(signals.end(requests.clone()));
        }
        tasks.spawn(watch_dir(self.dir.clone(), requests.clone()));
        tasks
    }

    /// Never returns: the journal's lock keeps other masters out.
    async fn superseded(&self) {
        std::future::pending().await
    }

    /// Writes the result when no process of the job is left.
    async fn write_result(
        &mut self,
        master: &mut Master<LocalBackend, Option<FileJournal>>,
        outcome: &Outcome,
    ) {
        master.close(outcome).await;
        master.write_result();
    }

    async fn logs(&self, last: &JobSnapshot) -> mlflow::Artifacts {
        mlflow::local_logs(&self.dir, last)
    }

    async fn finish(self, _: &mut Master<LocalBackend, Option<FileJournal>>, outcome: &Outcome) {
        let SubmittedJob { id, spec, .. } = &self.submitted;
        if spec.images().next().is_some() {
            docker::clean(id).await;
        }
        if *outcome != Outcome::Succeeded {
            data::remove_partial_uploads(spec, id, None, None, Instant::now() + TIDY_TIMEOUT).await;
        }
    }
}

/// Signals that end the job: they come from users, or at system shutdown.
struct KillSignals {
    terminations: Signal,
    interrupts: Signal,
}

impl KillSignals {
    fn listen() -> std::io::Result<KillSignals> {
        Ok(KillSignals {
            terminations: signal(SignalKind::terminate())?,
            interrupts: signal(SignalKind::interrupt())?,
        })
    }

    /// Kills the job with grace on the first signal, immediately on later ones.
    async fn end(mut self, requests: mpsc::Sender<Envelope>) {
        for now in std::iter::once(false).chain(std::iter::repeat(true)) {
            let name = tokio::select! {
                Some(()) = self.terminations.recv() => "SIGTERM",
                Some(()) = self.interrupts.recv() => "SIGINT",
                else => return,
            };
            let by = format!("{name} to the master");
            if !kill(&requests, by, now).await {
                return;
            }
        }
    }
}

/// Kills the job when its directory is removed, because no client can find it any more. Checks the job file: an
/// agent that is just starting may recreate directories.
async fn watch_dir(dir: JobDir, requests: mpsc::Sender<Envelope>) {
    let mut dir_check = interval(DIR_CHECK_INTERVAL);
    dir_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        dir_check.tick().await;
        if matches!(dir.submitted_file().try_exists(), Ok(false)) {
            kill(&requests, "the removal of its directory".to_owned(), false).await;
            return;
        }
    }
}

/// Requests the end of the job. Returns false if the master has stopped.
async fn kill(requests: &mpsc::Sender<Envelope>, by: String, now: bool) -> bool {
    // The response is not needed.
    let (respond_to, _) = oneshot::channel();
    let request = MasterRequest::Kill(Kill { by, immediate: now });
    let envelope = Envelope { request, respond_to, durable: DurableFlag::default() };
    requests.send(envelope).await.is_ok()
}

/// Writes the address of this master atomically.
fn write_address(dir: &JobDir, address: &str) -> Result<(), Report> {
    let this = Identity::this().ok_or_else(|| Report::internal("cannot read `/proc`"))?;
    let master_address = MasterAddress {
        address: address.to_owned(),
        attempt: 1,
        pid: this.pid,
        pid_started: this.started,
    };
    let path = dir.master_file();
    write_json(&path, &master_address)
        .map_err(|e| Report::internal(format!("cannot write `{}`: {e}", path.display())))
}

/// Prints one line for the parent process, which may be gone.
fn print_line(line: &serde_json::Value) {
    let mut out = std::io::stdout();
    let line = to_json_line(line).unwrap_or_default();
    drop(out.write_all(&line).and_then(|()| out.flush()));
}
