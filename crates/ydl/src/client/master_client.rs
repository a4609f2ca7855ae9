//! Client of a job's master.

use crate::client::jobs::{JobHandle, JobStatus};
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use ydl_net::{
    client::{CallError, Client, Payload, Response},
    secret::Token,
    tls::Pin,
};
use ydl_os::{
    env,
    process::{Identity, Signal},
    reason,
    report::{Exit, Report},
};
use ydl_proto::{
    files::{JobDir, MasterAddress},
    messages::{HistoryPage, JobSnapshot, Kill, Scale},
    version::VERSION_HINT,
};

/// Maximum time for a response in addition to the long-poll timeout.
pub(crate) const RESPONSE_MAX: Duration = Duration::from_secs(20);
/// Poll interval for a starting or ending master.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum wait for a starting master.
const STARTING_MAX: Duration = Duration::from_secs(15);

/// Maximum time for a master to exit after it has written its result.
const EXIT_MAX: Duration = Duration::from_secs(10);

/// Connection to one master.
#[derive(Debug)]
pub(crate) struct MasterClient {
    client: Mutex<Arc<Client>>,
    pin: Pin,
    token: Token,
}

impl MasterClient {
    /// Creates a client for the master of the job in a directory.
    pub(crate) fn to(dir: &JobDir, master: &MasterAddress) -> Result<MasterClient, Report> {
        MasterClient::at(dir, master.address.clone())
    }

    /// Creates a client for the master at `address` of the job in a directory.
    pub(crate) fn at(dir: &JobDir, address: String) -> Result<MasterClient, Report> {
        MasterClient::new(address, &dir.token_file(), &dir.certificate_file())
    }

    /// Creates a client for the master of the task that this process belongs to, if it belongs to one.
    pub(crate) fn of_this_task() -> Result<Option<MasterClient>, Report> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(initial) = text(env::MASTER) else {
            return Ok(None);
        };
        let current = text(env::MASTER_FILE).and_then(|file| fs::read_to_string(file).ok());
        let master = current.filter(|master| !master.trim().is_empty()).unwrap_or(initial);
        let master = master.trim();
        let file = |name: &str| {
            text(name).map(PathBuf::from).ok_or_else(|| {
                Report::bad_input(format!("`{}` is set and `{name}` is not", env::MASTER))
            })
        };
        let address = master.strip_prefix("https://").unwrap_or(master);
        let (token, certificate) = (file(env::TOKEN_FILE)?, file(env::CERTIFICATE_FILE)?);
        MasterClient::new(address.to_owned(), &token, &certificate).map(Some)
    }

    fn new(address: String, token: &Path, certificate: &Path) -> Result<MasterClient, Report> {
        let token = Token::read(token)
            .map_err(|error| Report::new(Exit::Unreachable, error.to_string()))?;
        let unreadable = |why: &dyn std::fmt::Display| {
            let what = format!("cannot read the certificate `{}`: {why}", certificate.display());
            Report::new(Exit::Unreachable, what)
        };
        let pem = fs::read(certificate).map_err(|error: io::Error| unreadable(&reason(&error)))?;
        let pin = Pin::of_pem(&pem).ok_or_else(|| unreadable(&"the file has no certificate"))?;
        let client = Client::new(address, pin, &token)
            .map_err(|error| Report::internal(format!("cannot set up TLS: {error}")))?;
        Ok(MasterClient { client: Mutex::new(Arc::new(client)), pin, token })
    }

    /// Sets the master's address, which changes on a cluster.
    pub(crate) fn set_address(&self, address: &str) {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.address() == address {
            return;
        }
        // Cannot fail: `new` succeeded with the same certificate and token.
        if let Ok(moved) = Client::new(address.to_owned(), self.pin, &self.token) {
            *client = Arc::new(moved);
        }
    }

    /// Returns the HTTP client.
    pub(crate) fn client(&self) -> Arc<Client> {
        let client = self.client.lock();
        client.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the job's snapshot once it is newer than `seen`, or `None` after `wait`.
    pub(crate) async fn view(
        &self,
        seen: u64,
        wait: Duration,
    ) -> Result<Option<JobSnapshot>, CallError> {
        let path = format!("/v1/view?seen={seen}&wait_ms={}", wait.as_millis());
        self.get(&path, wait).await
    }

    /// Returns events from number `after` on, or `None` after `wait`.
    pub(crate) async fn history(
        &self,
        after: u64,
        wait: Duration,
    ) -> Result<Option<HistoryPage>, CallError> {
        let path = format!("/v1/history?after={after}&wait_ms={}", wait.as_millis());
        self.get(&path, wait).await
    }

    /// Stops the job.
    pub(crate) async fn kill(&self, by: &str, now: bool) -> Result<(), CallError> {
        let kill = Kill { by: by.to_owned(), immediate: now };
        self.post("/v1/kill", &kill).await
    }

    /// Changes the number of a role's tasks.
    pub(crate) async fn scale(&self, role: &str, instances: u32) -> Result<(), CallError> {
        let scale = Scale { role: role.to_owned(), instances };
        self.post("/v1/scale", &scale).await
    }

    /// Sends a request, such as one to the key-value store.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        payload: Payload,
        wait: Duration,
    ) -> Result<Response, CallError> {
        let deadline = RESPONSE_MAX + wait;
        self.client().call(method, path, payload, deadline).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<T>, CallError> {
        let response = self.call(Method::GET, path, Payload::Nothing, wait).await?;
        match response.status {
            StatusCode::NO_CONTENT => Ok(None),
            _ => response.json().map(Some),
        }
    }

    async fn post(&self, path: &str, body: &impl serde::Serialize) -> Result<(), CallError> {
        let payload =
            Payload::json(body).map_err(|error| CallError::Protocol { what: error.to_string() })?;
        let request = self.call(Method::POST, path, payload, Duration::ZERO);
        request.await.map(drop)
    }
}

/// Returns a job's status, allowing its master time to start.
pub(crate) async fn settled_status(job: &JobHandle) -> JobStatus {
    let end = Instant::now() + STARTING_MAX;
    loop {
        match job.status() {
            // On a cluster the status is final: a master may wait in its queue for hours.
            status if job.remote.is_some() => return status,
            JobStatus::Starting if Instant::now() < end => sleep(POLL_INTERVAL).await,
            status => return status,
        }
    }
}

/// Waits until the master of a finished job has exited, so that no process of the job outlives the command.
pub(crate) async fn wait_for_master_exit(job: &JobHandle) {
    let end = Instant::now() + EXIT_MAX;
    while job.has_master() && Instant::now() < end {
        sleep(POLL_INTERVAL).await;
    }
}

/// Signals a local master that does not respond. SIGTERM makes it stop its job; after SIGKILL the agents stop their
/// programs themselves.
pub(crate) fn signal_master(address: &MasterAddress, now: bool) -> Result<(), Report> {
    let master = Identity { pid: address.pid, started: address.pid_started };
    let signal = if now { Signal::KILL } else { Signal::TERM };
    master.signal(signal).map(drop).map_err(|error| {
        let what =
            format!("cannot signal the job's master, process {}: {}", address.pid, reason(&error));
        Report::internal(what)
    })
}

/// Reports that the request needs a running master.
pub(crate) fn no_master(job: &JobHandle) -> Report {
    let what = format!("the master of `{}` is not running", job.id());
    Report::new(Exit::Unreachable, what)
        .hint(format!("it waits for a container or restarts; see `ydl status {}`", job.id()))
}

/// Converts a failed call to a report.
pub(crate) fn call_report(error: CallError) -> Report {
    match error {
        CallError::Refused { error, hint, status } => {
            let exit = match status {
                400..=499 => Exit::BadInput,
                _ => Exit::Internal,
            };
            Report { what: error, hint, exit }
        }
        CallError::Unreachable { .. } | CallError::Timeout { .. } => {
            Report::new(Exit::Unreachable, format!("the job's master: {error}"))
                .hint("check whether the job still runs with `ydl status`")
        }
        CallError::Version { .. } => {
            let what = format!("the job's master has another version: {error}");
            Report::new(Exit::BadInput, what).hint(VERSION_HINT)
        }
        CallError::WrongCertificate { .. } | CallError::Protocol { .. } => {
            Report::new(Exit::Unreachable, format!("the job's master: {error}"))
        }
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Report>>) -> Result<T, Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Report::internal(format!("cannot start: {}", reason(&error))))?;
    let output = runtime.block_on(future);
    // Do not wait for blocking tasks: a rejected job does not need its files to be packed.
    runtime.shutdown_background();
    output
}
