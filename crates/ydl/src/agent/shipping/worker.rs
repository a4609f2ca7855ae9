//! The HDFS worker thread and its requests.

use super::{
    clients::HdfsClients,
    log_shipper::{LogShipper, LogShipperHandle, log_delay},
};
use crate::agent::{
    output::Rotation,
    outputs::{
        ContinuousUpload, Copied, OutputError, Reservations, Restore, UploadLog, upload_outputs,
    },
    task_env::TaskOutput,
};
use std::{path::PathBuf, sync::Arc, thread, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};
use ydl_proto::{
    files::{JobDir, MasterAddress},
    version::from_json,
};
use ydl_storage::hdfs::{HdfsError, JobLayout};

/// Maximum number of queued requests. An agent sends a handful.
const REQUESTS_MAX: usize = 64;
/// Maximum number of concurrent attempts. Older ones are aborted.
const ATTEMPTS_MAX: usize = 16;
/// Timeout of a lookup of the master.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Maximum size of `master.json`.
const ADDRESS_BYTES_MAX: u64 = 64 << 10;

enum WorkerRequest {
    ShipLogs(Box<LogShipper>),
    FindMaster(JobLayout, oneshot::Sender<Option<MasterAddress>>),
    Upload(Box<UploadRequest>, oneshot::Sender<Result<Copied, OutputError>>),
    UploadContinuously(Box<ContinuousUpload>),
    Restore(Box<Restore>, oneshot::Sender<Result<(), String>>),
    Flush(oneshot::Sender<()>),
}

/// Outputs of a task to upload.
#[derive(Debug)]
pub(in crate::agent) struct UploadRequest {
    /// Identifier of the task, unique among all tasks of all jobs.
    pub(in crate::agent) owner: String,
    pub(in crate::agent) outputs: Vec<TaskOutput>,
    pub(in crate::agent) reservations: Reservations,
    pub(in crate::agent) work: PathBuf,
    /// Log of files that need no upload, and of files that may be half-written.
    pub(in crate::agent) upload_log: UploadLog,
    pub(in crate::agent) deadline: Instant,
}

/// Handle of the worker thread. Dropping it ends the thread at once.
#[derive(Debug)]
pub(in crate::agent) struct HdfsWorker {
    clients: Arc<HdfsClients>,
    requests: mpsc::Sender<WorkerRequest>,
    delay: Duration,
    hurry: watch::Sender<bool>,
}

impl HdfsWorker {
    /// Starts a worker for one of that many tasks.
    pub(in crate::agent) fn start(job: JobDir, tasks: u64) -> std::io::Result<HdfsWorker> {
        let clients = Arc::new(HdfsClients::new(job));
        let (requests, requests_rx) = mpsc::channel(REQUESTS_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let own = Arc::clone(&clients);
        thread::Builder::new()
            .name("hdfs".into())
            .spawn(move || runtime.block_on(work(&own, requests_rx)))?;
        Ok(HdfsWorker {
            clients,
            requests,
            delay: log_delay(tasks),
            hurry: watch::Sender::new(false),
        })
    }

    /// Ships the output of a program to the directory `remote` until the program has ended.
    pub(in crate::agent) fn ship_logs(
        &self,
        local: PathBuf,
        remote: String,
        rotation: Rotation,
    ) -> LogShipperHandle {
        let hurry = self.hurry.subscribe();
        let clients = Arc::clone(&self.clients);
        let (shipper, handle) =
            LogShipper::new(clients, local, remote, rotation, self.delay, hurry);
        self.send_request(WorkerRequest::ShipLogs(Box::new(shipper)));
        handle
    }

    /// Reads the address of the master from the job's directory.
    pub(in crate::agent) fn find_master(
        &self,
        layout: JobLayout,
    ) -> impl Future<Output = Option<MasterAddress>> + Send + use<> {
        let (respond_to, response) = oneshot::channel();
        self.send_request(WorkerRequest::FindMaster(layout, respond_to));
        async { response.await.ok().flatten() }
    }

    /// Uploads outputs to their destinations.
    pub(in crate::agent) fn upload(
        &self,
        outputs: UploadRequest,
    ) -> impl Future<Output = Option<Result<Copied, OutputError>>> + Send + use<> {
        let (respond_to, response) = oneshot::channel();
        self.send_request(WorkerRequest::Upload(Box::new(outputs), respond_to));
        async { response.await.ok() }
    }

    /// Uploads an output continuously until its program has ended.
    pub(in crate::agent) fn upload_continuously(&self, upload: ContinuousUpload) {
        self.send_request(WorkerRequest::UploadContinuously(Box::new(upload)));
    }

    /// Restores a checkpoint directory.
    pub(in crate::agent) fn restore(
        &self,
        restore: Restore,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let (respond_to, response) = oneshot::channel();
        self.send_request(WorkerRequest::Restore(Box::new(restore), respond_to));
        async {
            let lost = Err("restoring its checkpoint failed".to_owned());
            response.await.unwrap_or(lost)
        }
    }

    /// Switches to a short delay because the container is about to be killed. Ships the newest output first.
    pub(in crate::agent) fn hurry(&self) {
        self.hurry.send_replace(true);
    }

    /// Waits until the output of all ended programs is in HDFS, up to the deadline.
    pub(in crate::agent) fn finish(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = bool> + Send + use<> {
        let (respond_to, response) = oneshot::channel();
        self.send_request(WorkerRequest::Flush(respond_to));
        async move { matches!(timeout_at(deadline, response).await, Ok(Ok(()))) }
    }

    fn send_request(&self, request: WorkerRequest) {
        if self.requests.try_send(request).is_err() {
            tracing::warn!("HDFS request dropped: too many pending requests");
        }
    }
}

async fn work(clients: &Arc<HdfsClients>, mut requests: mpsc::Receiver<WorkerRequest>) {
    let mut attempts = JoinSet::new();
    let mut handles = std::collections::VecDeque::new();
    let mut others = JoinSet::new();
    let mut finishing: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        if attempts.is_empty() {
            for respond_to in finishing.drain(..) {
                // The caller may have stopped waiting.
                let _ = respond_to.send(());
            }
        }
        let request = tokio::select! {
            request = requests.recv() => request,
            Some(_) = attempts.join_next() => continue,
            Some(_) = others.join_next() => continue,
        };
        match request {
            None => return,
            Some(WorkerRequest::ShipLogs(attempt)) => {
                handles.push_back(attempts.spawn(attempt.ship()));
                handles.retain(|handle: &tokio::task::AbortHandle| !handle.is_finished());
                if handles.len() > ATTEMPTS_MAX
                    && let Some(oldest) = handles.pop_front()
                {
                    tracing::warn!(
                        "logs of an attempt stay incomplete: HDFS unavailable for too long"
                    );
                    oldest.abort();
                }
            }
            Some(WorkerRequest::FindMaster(layout, respond_to)) => {
                let clients = Arc::clone(clients);
                others.spawn(async move {
                    let found = find(&clients, &layout).await;
                    if let Err(error) = &found {
                        tracing::debug!("cannot look up the master: {error}");
                    }
                    let _ = respond_to.send(found.ok().flatten());
                });
            }
            Some(WorkerRequest::Upload(outputs, respond_to)) => {
                let clients = Arc::clone(clients);
                others.spawn(async move {
                    let _ = respond_to.send(upload_outputs(&clients, &outputs).await);
                });
            }
            Some(WorkerRequest::UploadContinuously(upload)) => {
                drop(others.spawn(upload.run(Arc::clone(clients))))
            }
            Some(WorkerRequest::Restore(restore, respond_to)) => {
                let clients = Arc::clone(clients);
                others.spawn(async move {
                    let _ = respond_to.send(restore.run(clients).await);
                });
            }
            Some(WorkerRequest::Flush(respond_to)) => finishing.push(respond_to),
        }
    }
}

async fn find(
    clients: &HdfsClients,
    layout: &JobLayout,
) -> Result<Option<MasterAddress>, HdfsError> {
    let deadline = Instant::now() + LOOKUP_MAX;
    let hdfs = clients.to(layout.dir(), deadline).await?;
    let found = hdfs.read_if_exists(&layout.master(), ADDRESS_BYTES_MAX, deadline).await?;
    let Some(bytes) = found else {
        return Ok(None);
    };
    match from_json(&bytes) {
        Ok(address) => Ok(Some(address)),
        Err(error) => {
            tracing::warn!("cannot read `{}`: {error}", layout.master());
            Ok(None)
        }
    }
}
