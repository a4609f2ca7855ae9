//! The thread that carries, and what it can be asked to do.

use super::{
    clients::HdfsClients,
    log_shipper::{LogShipper, LogShipperHandle, lag},
};
use crate::agent::{
    output::Rotation,
    outputs::{ContinuousUpload, Copied, OutputError, Reservations, Restore, UploadLog, send},
};
use std::{path::PathBuf, sync::Arc, thread, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};
use ydl_core::spec::ExistingPolicy;
use ydl_proto::files::{JobDir, Whereabouts};
use ydl_storage::hdfs::{HdfsError, JobPlace};

/// Errands that wait to be begun. An agent has a handful.
const REQUESTS_MAX: usize = 64;
/// Attempts under way at once: those that HDFS has not taken yet. Older ones are given up.
const ATTEMPTS_MAX: usize = 16;
/// How long a look for the master may take.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// The largest `master.json` that is read.
const PLACE_BYTES_MAX: u64 = 64 << 10;

enum WorkerRequest {
    ShipLogs(Box<LogShipper>),
    FindMaster(JobPlace, oneshot::Sender<Option<Whereabouts>>),
    Upload(Box<UploadRequest>, oneshot::Sender<Result<Copied, OutputError>>),
    UploadContinuously(Box<ContinuousUpload>),
    Restore(Box<Restore>, oneshot::Sender<Result<(), String>>),
    RecordAbsent(Box<AbsentOutputs>, oneshot::Sender<()>),
    Flush(oneshot::Sender<()>),
}

/// Which of a task's outputs were not there.
struct AbsentOutputs {
    claims: Reservations,
    outputs: Vec<String>,
    absent: Vec<String>,
}

/// What a task leaves for its user.
#[derive(Debug)]
pub(in crate::agent) struct UploadRequest {
    /// The task, in a word that no other task of any job has.
    pub(in crate::agent) whose: String,
    pub(in crate::agent) outputs: Vec<HdfsUpload>,
    pub(in crate::agent) claims: Reservations,
    pub(in crate::agent) work: PathBuf,
    /// What need not be sent again, and what may be half-written.
    pub(in crate::agent) sent: UploadLog,
    pub(in crate::agent) deadline: Instant,
}

/// One output on its way to HDFS.
#[derive(Debug)]
pub(in crate::agent) struct HdfsUpload {
    /// What, below the working directory.
    pub(in crate::agent) from: String,
    /// A URL.
    pub(in crate::agent) to: String,
    /// What happens if somebody else has put something there.
    pub(in crate::agent) existing: ExistingPolicy,
    /// Whether it was kept up to date while the program ran.
    pub(in crate::agent) kept: bool,
    /// Whether others of the job send to the same place.
    pub(in crate::agent) shared: bool,
}

/// The agent's end of the thread. When it is dropped the thread ends, whatever it is doing.
#[derive(Debug)]
pub(in crate::agent) struct HdfsWorker {
    ways: Arc<HdfsClients>,
    errands: mpsc::Sender<WorkerRequest>,
    lag: Duration,
    hurry: watch::Sender<bool>,
}

impl HdfsWorker {
    /// A thread for one of so many tasks.
    pub(in crate::agent) fn start(job: JobDir, tasks: u64) -> std::io::Result<HdfsWorker> {
        let ways = Arc::new(HdfsClients::new(job));
        let (errands, told) = mpsc::channel(REQUESTS_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let own = Arc::clone(&ways);
        thread::Builder::new()
            .name("carrier".into())
            .spawn(move || runtime.block_on(work(&own, told)))?;
        Ok(HdfsWorker { ways, errands, lag: lag(tasks), hurry: watch::Sender::new(false) })
    }

    /// Carries what a program prints to the directory `remote`, from now until it is over.
    pub(in crate::agent) fn follow(
        &self,
        local: PathBuf,
        remote: String,
        rotation: Rotation,
    ) -> LogShipperHandle {
        let hurry = self.hurry.subscribe();
        let ways = Arc::clone(&self.ways);
        let (attempt, followed) = LogShipper::new(ways, local, remote, rotation, self.lag, hurry);
        self.tell(WorkerRequest::ShipLogs(Box::new(attempt)));
        followed
    }

    /// Where the master says it is, if that can be found out.
    pub(in crate::agent) fn find_master(
        &self,
        place: JobPlace,
    ) -> impl Future<Output = Option<Whereabouts>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.tell(WorkerRequest::FindMaster(place, answer));
        async { answered.await.ok().flatten() }
    }

    /// Copies outputs to their URLs.
    pub(in crate::agent) fn send(
        &self,
        outputs: UploadRequest,
    ) -> impl Future<Output = Option<Result<Copied, OutputError>>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.tell(WorkerRequest::Upload(Box::new(outputs), answer));
        async { answered.await.ok() }
    }

    /// Notes which outputs were not there.
    pub(in crate::agent) fn note(
        &self,
        claims: &Reservations,
        outputs: &[String],
        absent: &[String],
    ) -> impl Future<Output = ()> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let (claims, outputs, absent) = (claims.clone(), outputs.to_vec(), absent.to_vec());
        let noting = AbsentOutputs { claims, outputs, absent };
        self.tell(WorkerRequest::RecordAbsent(Box::new(noting), answer));
        async { drop(answered.await) }
    }

    /// Keeps an output up to date until its program is over.
    pub(in crate::agent) fn keep(&self, kept: ContinuousUpload) {
        self.tell(WorkerRequest::UploadContinuously(Box::new(kept)));
    }

    /// Makes a directory what was saved of it.
    pub(in crate::agent) fn fill(
        &self,
        fill: Restore,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.tell(WorkerRequest::Restore(Box::new(fill), answer));
        async {
            let lost = Err("bringing its checkpoint failed".to_owned());
            answered.await.unwrap_or(lost)
        }
    }

    /// The container is about to be killed: what was printed last goes first, and at once.
    pub(in crate::agent) fn hurry(&self) {
        self.hurry.send_replace(true);
    }

    /// Waits until all that was printed by programs that are over is where it belongs, for so long at most.
    pub(in crate::agent) fn finish(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = bool> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.tell(WorkerRequest::Flush(answer));
        async move { matches!(timeout_at(deadline, answered).await, Ok(Ok(()))) }
    }

    fn tell(&self, errand: WorkerRequest) {
        if self.errands.try_send(errand).is_err() {
            tracing::warn!("nothing can be carried to HDFS: there is too much to do");
        }
    }
}

async fn work(ways: &Arc<HdfsClients>, mut errands: mpsc::Receiver<WorkerRequest>) {
    let mut attempts = JoinSet::new();
    let mut handles = std::collections::VecDeque::new();
    let mut others = JoinSet::new();
    let mut finishing: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        if attempts.is_empty() {
            for answer in finishing.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = answer.send(());
            }
        }
        let errand = tokio::select! {
            errand = errands.recv() => errand,
            Some(_) = attempts.join_next() => continue,
            Some(_) = others.join_next() => continue,
        };
        match errand {
            None => return,
            Some(WorkerRequest::ShipLogs(attempt)) => {
                handles.push_back(attempts.spawn(attempt.carry()));
                handles.retain(|handle: &tokio::task::AbortHandle| !handle.is_finished());
                if handles.len() > ATTEMPTS_MAX
                    && let Some(oldest) = handles.pop_front()
                {
                    tracing::warn!("the logs of an attempt stay incomplete: HDFS is away too long");
                    oldest.abort();
                }
            }
            Some(WorkerRequest::FindMaster(place, answer)) => {
                let ways = Arc::clone(ways);
                others.spawn(async move {
                    let found = find(&ways, &place).await;
                    if let Err(error) = &found {
                        tracing::debug!("the master is not found: {error}");
                    }
                    let _ = answer.send(found.ok().flatten());
                });
            }
            Some(WorkerRequest::Upload(it, answer)) => {
                let ways = Arc::clone(ways);
                others.spawn(async move {
                    let _ = answer.send(send(&ways, &it).await);
                });
            }
            Some(WorkerRequest::RecordAbsent(it, answer)) => {
                let ways = Arc::clone(ways);
                others.spawn(async move {
                    let noted = it.claims.note(Some(&ways), &it.outputs, &it.absent);
                    noted.await;
                    let _ = answer.send(());
                });
            }
            Some(WorkerRequest::UploadContinuously(kept)) => {
                drop(others.spawn(kept.run(Arc::clone(ways))))
            }
            Some(WorkerRequest::Restore(fill, answer)) => {
                let ways = Arc::clone(ways);
                others.spawn(async move {
                    let _ = answer.send(fill.run(ways).await);
                });
            }
            Some(WorkerRequest::Flush(answer)) => finishing.push(answer),
        }
    }
}

async fn find(ways: &HdfsClients, place: &JobPlace) -> Result<Option<Whereabouts>, HdfsError> {
    let deadline = Instant::now() + LOOK_MAX;
    let hdfs = ways.to(place.dir(), deadline).await?;
    let found = hdfs.read_if_there(&place.master(), PLACE_BYTES_MAX, deadline).await?;
    Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}
