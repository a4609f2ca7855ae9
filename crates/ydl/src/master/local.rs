//! Lifecycle of a master on this machine.

use super::{
    api::serve,
    event_loop::Master,
    inbox::{DurableFlag, Envelope, MasterRequest, inbox},
    journal::{self, FileJournal},
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
/// Timeout for the final report to MLflow: clients that follow the job wait for its master to exit.
const TRACKING_TIMEOUT: Duration = Duration::from_secs(8);
/// File with the credentials for MLflow's server in the job's directory, and the maximum size of a token.
const TRACKING_SECRET: &str = "mlflow.secret";
const SECRET_BYTES_MAX: usize = 64 << 10;
/// Interval of checks that the job's directory exists.
const DIR_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the master of the job in `dir`. Prints its address, or the reason of a failure, as the first line on
/// stdout.
pub fn run(dir: PathBuf) -> ExitCode {
    // Use a single thread: an agent dies with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = match &runtime {
        Ok(runtime) => runtime.block_on(run_master(JobDir::at(dir))),
        Err(error) => Err(Report::internal(format!("cannot start the master: {error}"))),
    };
    if let Ok(runtime) = runtime {
        // Do not wait for name lookups in progress.
        runtime.shutdown_background();
    }
    match ran {
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

    // Create the journal first: it locks the job against a second master.
    let path = dir.journal_file();
    let journal = FileJournal::create(&path, journal::SyncPolicy::OsDefault)
        .map_err(|e| Report::internal(e.to_string()))?;
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
    let backend = LocalBackend::new(dir.clone(), offer, address.clone(), secret.clone())
        .map_err(|e| Report::internal(format!("cannot use this machine: {e}")))?;

    let signals = KillSignals::listen()
        .map_err(|e| Report::internal(format!("cannot listen to signals: {e}")))?;
    write_address(&dir, &address)?;
    print_line(&serde_json::json!({ "address": address }));
    let (requests, inbox) = inbox();
    let kill_signals = tokio::spawn(signals.end(requests.clone()));
    let dir_watch = tokio::spawn(watch_dir(dir.clone(), requests.clone()));
    let images = submitted.spec.images().next().is_some();
    let spec = submitted.spec.clone();
    let tracking = tokio::spawn(track(submitted.clone(), dir.clone()));
    let state = Recovered::new_job(submitted.spec, Some(events));
    let mut master = Master::new(state, dir.clone(), backend, Some(journal));
    let tracking = tracking.await.ok().flatten();
    let tracking = tracking.map(|tracker| {
        master.set_program_env(tracker.variables());
        tracker.follow(requests.clone())
    });
    let (stop, ended) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(serve(listener, tls, secret, requests, async {
        // Sent or dropped, it has the same meaning.
        let _ = ended.await;
    }));
    let outcome = tokio::select! {
        outcome = master.run(inbox) => outcome.map_err(|fenced| Report::internal(fenced.why))?,
        // A master without its API would only wait for the timeouts of its agents.
        ended = &mut serving => {
            let why = ended.map_or_else(|error| error.to_string(), |()| "it closed".to_owned());
            return Err(Report::internal(format!("the API server stopped: {why}")));
        }
    };
    if let Some(tracking) = tracking {
        let last = fs::read(dir.result_file()).ok();
        let last = last.and_then(|bytes| from_json::<JobSnapshot>(&bytes).ok());
        let logs = last.as_ref().map(|last| mlflow::local_logs(&dir, last));
        let logs = logs.unwrap_or_default();
        tracking.end(&outcome, last.as_ref(), logs, &dir, TRACKING_TIMEOUT).await;
    }
    if images {
        docker::clean(&submitted.id).await;
    }
    if outcome != Outcome::Succeeded {
        data::remove_partial_uploads(
            &spec,
            &submitted.id,
            None,
            None,
            Instant::now() + TIDY_TIMEOUT,
        )
        .await;
    }
    kill_signals.abort();
    dir_watch.abort();
    drop(stop);
    if let Err(error) = serving.await {
        tracing::error!("the API server failed: {error}");
    }
    Ok(outcome)
}

/// Starts the job's run in MLflow, if it has one.
async fn track(submitted: SubmittedJob, dir: JobDir) -> Option<mlflow::Tracker> {
    let secret = private::read(&dir.path().join(TRACKING_SECRET), SECRET_BYTES_MAX).ok();
    mlflow::Tracker::start(&submitted, secret.as_deref()).await
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
    let place = MasterAddress {
        address: address.to_owned(),
        attempt: 1,
        pid: this.pid,
        pid_started: this.started,
    };
    let path = dir.master_file();
    write_json(&path, &place)
        .map_err(|e| Report::internal(format!("cannot write `{}`: {e}", path.display())))
}

/// Prints one line for the parent process, which may be gone.
fn print_line(line: &serde_json::Value) {
    let mut out = std::io::stdout();
    let line = to_json_line(line).unwrap_or_default();
    drop(out.write_all(&line).and_then(|()| out.flush()));
}
