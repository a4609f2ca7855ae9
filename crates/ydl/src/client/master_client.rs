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

/// Maximum time for an answer that need not be waited for.
pub const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Poll interval for a starting or ending master.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum wait for a starting master.
const STARTING_MAX: Duration = Duration::from_secs(15);

/// Maximum time for a master that has written its result to be gone.
const LEAVING_MAX: Duration = Duration::from_secs(10);

/// Connection to one master.
#[derive(Debug)]
pub struct MasterClient {
    client: Mutex<Arc<Client>>,
    pin: Pin,
    token: Token,
}

impl MasterClient {
    /// The master of the job in that directory, which is at that place.
    pub fn to(dir: &JobDir, place: &MasterAddress) -> Result<MasterClient, Report> {
        MasterClient::at(dir, place.address.clone())
    }

    /// The master of the job in that directory, which is at that address.
    pub fn at(dir: &JobDir, address: String) -> Result<MasterClient, Report> {
        MasterClient::new(address, &dir.token_file(), &dir.certificate_file())
    }

    /// The master of the task in whose program we run, if we do.
    pub fn of_this_task() -> Result<Option<MasterClient>, Report> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(at_first) = text(env::MASTER) else {
            return Ok(None);
        };
        let now = text(env::MASTER_FILE).and_then(|file| fs::read_to_string(file).ok());
        let master = now.filter(|now| !now.trim().is_empty()).unwrap_or(at_first);
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
        let pin = Pin::of_pem(&pem).ok_or_else(|| unreadable(&"it holds none"))?;
        let client = Client::new(address, pin, &token)
            .map_err(|error| Report::internal(format!("cannot set up TLS: {error}")))?;
        Ok(MasterClient { client: Mutex::new(Arc::new(client)), pin, token })
    }

    /// Sets the master's address, which changes on a cluster.
    pub fn set_address(&self, address: &str) {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.address() == address {
            return;
        }
        // What could be set up once can be set up again.
        if let Ok(moved) = Client::new(address.to_owned(), self.pin, &self.token) {
            *client = Arc::new(moved);
        }
    }

    /// Returns the HTTP client.
    pub fn client(&self) -> Arc<Client> {
        let client = self.client.lock();
        client.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the job's snapshot once it is newer than `seen`; none if that takes longer than `wait`.
    pub async fn view(&self, seen: u64, wait: Duration) -> Result<Option<JobSnapshot>, CallError> {
        let path = format!("/v1/view?seen={seen}&wait_ms={}", wait.as_millis());
        self.get(&path, wait).await
    }

    /// Returns events from number `after` on; none if there is none within `wait`.
    pub async fn history(
        &self,
        after: u64,
        wait: Duration,
    ) -> Result<Option<HistoryPage>, CallError> {
        let path = format!("/v1/history?after={after}&wait_ms={}", wait.as_millis());
        self.get(&path, wait).await
    }

    /// Asks the job to end.
    pub async fn kill(&self, by: &str, now: bool) -> Result<(), CallError> {
        let kill = Kill { by: by.to_owned(), immediate: now };
        self.post("/v1/kill", &kill).await
    }

    /// Asks for another size of a role.
    pub async fn scale(&self, role: &str, instances: u32) -> Result<(), CallError> {
        let scale = Scale { role: role.to_owned(), instances };
        self.post("/v1/scale", &scale).await
    }

    /// Sends a request, such as one to the key-value store.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        payload: Payload,
        wait: Duration,
    ) -> Result<Response, CallError> {
        let deadline = ANSWER_MAX + wait;
        self.client().call(method, path, payload, deadline).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<T>, CallError> {
        let answer = self.call(Method::GET, path, Payload::Nothing, wait).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(None),
            _ => answer.json().map(Some),
        }
    }

    async fn post(&self, path: &str, what: &impl serde::Serialize) -> Result<(), CallError> {
        let payload =
            Payload::json(what).map_err(|error| CallError::Protocol { what: error.to_string() })?;
        let sent = self.call(Method::POST, path, payload, Duration::ZERO);
        sent.await.map(drop)
    }
}

/// Returns a job's status, allowing its master time to start.
pub async fn settled_status(job: &JobHandle) -> JobStatus {
    let end = Instant::now() + STARTING_MAX;
    loop {
        match job.status() {
            // A cluster has been asked; a master in a queue may take hours.
            status if job.remote.is_some() => return status,
            JobStatus::Starting if Instant::now() < end => sleep(POLL_INTERVAL).await,
            status => return status,
        }
    }
}

/// Waits until the master of a job that is over has left too, so that nothing of the job is left behind a command.
pub async fn wait_for_master_exit(job: &JobHandle) {
    let end = Instant::now() + LEAVING_MAX;
    while job.has_master() && Instant::now() < end {
        sleep(POLL_INTERVAL).await;
    }
}

/// Asks a master that runs and does not answer in the way that needs no answer: a signal ends its job in order, and
/// without a master the agents end their programs themselves.
pub fn signal_master(place: &MasterAddress, now: bool) -> Result<(), Report> {
    let master = Identity { pid: place.pid, started: place.pid_started };
    let signal = if now { Signal::KILL } else { Signal::TERM };
    master.signal(signal).map(drop).map_err(|error| {
        let what =
            format!("cannot signal the job's master, process {}: {}", place.pid, reason(&error));
        Report::internal(what)
    })
}

/// Reports that the request needs a running master.
pub fn no_master(job: &JobHandle) -> Report {
    let what = format!("no master of `{}` runs now", job.id());
    Report::new(Exit::Unreachable, what)
        .hint(format!("it waits for a container or is restarting; see `ydl status {}`", job.id()))
}

/// Converts a failed call to a report.
pub fn call_report(error: CallError) -> Report {
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
                .hint("`ydl status` tells whether it still runs")
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
pub fn block_on<T>(future: impl Future<Output = Result<T, Report>>) -> Result<T, Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Report::internal(format!("cannot start: {}", reason(&error))))?;
    let done = runtime.block_on(future);
    // Whatever is still being read was given up: a job that is refused need not wait until its files are packed.
    runtime.shutdown_background();
    done
}
