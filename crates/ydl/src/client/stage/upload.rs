//! Uploads missing files to HDFS, several at a time.
//!
//! To avoid races with a cleaner: the names of all that a job needs are written down first, then the
//! job waits for a running cleaner, then it lists the files there. A cleaner that begins later reads the names; one
//! that began earlier has ended.

use super::{
    clean::{STALE, is_stale, use_names},
    need::{Need, Purpose, content},
    plan::{CHANGING_HINT, Needed, StagingPlan, by_name},
    source::Hashed,
    staging_dir::StagingDir,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use ydl_os::report::Report;
use ydl_proto::files::{StagedFile, StagedFiles};
use ydl_storage::hdfs::{Entry, Hdfs, JobLayout, Kind, UploadTotals, layout};

/// Files that are read and sent at the same time.
pub(super) const UPLOADS_MAX: usize = 4;
/// Maximum wait for a cleaner: longer than a dead one's lock stays valid.
const CLEANUP_MAX: Duration = Duration::from_secs(STALE.as_secs() + 30);
/// Interval between checks for the cleaner's end.
const CLEANUP_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time for removing what a failure left behind.
const ROLLBACK_MAX: Duration = Duration::from_secs(5);
/// Result of an upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Description for the master.
    pub staged: StagedFiles,
    /// Locations of the input files, in their order.
    pub inputs: Vec<StagedFile>,
    /// Shared files that were not there yet.
    pub sent: UploadTotals,
    /// Notes on the environment for the user.
    pub notes: Vec<String>,
}

/// Upload progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes to send, as far as that is known: it grows while files are looked through.
    pub total: u64,
}

/// A need whose content is known, and perhaps sent.
struct HashedNeed {
    need: Need,
    hashed: Hashed,
    temporary: Option<String>,
}

impl HashedNeed {
    fn name(&self) -> String {
        format!("{}.{}", self.hashed.hash, self.need.ending)
    }
}

/// State shared by the uploads of one job.
struct UploadContext {
    hdfs: Hdfs,
    staging_dir: StagingDir,
    /// The job's id.
    id: String,
    permits: Semaphore,
    sent_files: AtomicU64,
    sent: AtomicU64,
    total: AtomicU64,
    progress_sink: Box<dyn Fn(Progress) + Send + Sync>,
    temporaries: Mutex<BTreeSet<String>>,
    deadline: Instant,
}

impl fmt::Debug for UploadContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UploadContext({:?})", self.staging_dir)
    }
}

/// Uploads the files of a job that are not in HDFS yet. `progress_sink` receives the progress.
pub async fn stage(
    plan: StagingPlan,
    id: &str,
    progress_sink: impl Fn(Progress) + Send + Sync + 'static,
    deadline: Instant,
) -> Result<Upload, Report> {
    let shared = Arc::new(UploadContext {
        hdfs: plan.staging_dir.hdfs.clone(),
        staging_dir: plan.staging_dir.clone(),
        id: id.to_owned(),
        permits: Semaphore::new(UPLOADS_MAX),
        sent_files: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        total: AtomicU64::new(0),
        progress_sink: Box::new(progress_sink),
        temporaries: Mutex::default(),
        deadline,
    });
    let result = run(plan, &shared).await;
    if result.is_err() {
        let until = Instant::now() + ROLLBACK_MAX;
        for temporary in shared.temporaries() {
            // Report the first failure; a later cleanup removes the rest.
            let _ = shared.hdfs.delete(&temporary, until).await;
        }
    }
    result
}

async fn run(plan: StagingPlan, shared: &Arc<UploadContext>) -> Result<Upload, Report> {
    let (staging_dir, deadline) = (&shared.staging_dir, shared.deadline);
    if !plan.exists {
        staging_dir.create(deadline).await?;
    }
    if plan.is_empty {
        let contents = staging_dir.layout.contents();
        shared.hdfs.mkdirs(&contents, 0o700, deadline).await?;
    }
    let job = staging_dir.job(&shared.id);
    let mut tasks = JoinSet::new();
    for needed in plan.needs {
        tasks.spawn(shared.clone().hash(needed));
    }
    let hashed_need: Vec<HashedNeed> = all(tasks).await?;
    write_uses(shared, &job, &hashed_need).await?;
    let stored = shared.hdfs.list(&staging_dir.layout.contents(), deadline).await?;
    let stored = by_name(stored);
    let mut tasks = JoinSet::new();
    for one in hashed_need {
        let entry = stored.get(&one.name()).cloned();
        tasks.spawn(shared.clone().publish(one, entry));
    }
    let mut contents = all(tasks).await?;
    contents.extend(plan.remote);
    let mut staged = StagedFiles {
        dir: job.dir().to_owned(),
        home: shared.staging_dir.home.clone(),
        binary: StagedFile {
            url: String::new(),
            bytes: 0,
            modified_ms: 0,
            unpack: false,
            own: false,
        },
        files: BTreeMap::new(),
        environment: BTreeMap::new(),
    };
    let mut inputs = BTreeMap::new();
    for (purpose, content) in contents {
        match purpose {
            Purpose::Input(at) => drop(inputs.insert(at, content)),
            Purpose::Binary => staged.binary = content,
            Purpose::File(name) => drop(staged.files.insert(name, content)),
            Purpose::Environment(name) => drop(staged.environment.insert(name, content)),
        }
    }
    let sent = UploadTotals {
        files: shared.sent_files.load(Ordering::Relaxed),
        bytes: shared.sent.load(Ordering::Relaxed),
    };
    Ok(Upload { staged, inputs: inputs.into_values().collect(), sent, notes: plan.notes })
}

/// Records the files that the job uses, then waits for a running cleaner.
async fn write_uses(
    shared: &UploadContext,
    job: &JobLayout,
    hashed_need: &[HashedNeed],
) -> Result<(), Report> {
    let (hdfs, deadline) = (&shared.hdfs, shared.deadline);
    let mut tasks = JoinSet::new();
    for name in use_names(hashed_need.iter().map(|one| one.hashed.hash.as_str())) {
        let (hdfs, dir) = (hdfs.clone(), format!("{}/{name}", job.uses()));
        tasks.spawn(async move { Ok(hdfs.mkdirs(&dir, 0o700, deadline).await?) });
    }
    all(tasks).await?;
    let lock = shared.staging_dir.layout.cleaning();
    let began = Instant::now();
    let until = deadline.min(began + CLEANUP_MAX);
    let mut written_ms = None;
    while let Some(entry) = hdfs.stat(&lock, deadline).await? {
        let written_ms = match written_ms {
            Some(known) => known,
            // The file system's clock, read from what it has just written.
            None => {
                let written = hdfs.stat(&job.uses(), deadline).await?;
                *written_ms.insert(written.map_or(0, |entry| entry.modified_ms))
            }
        };
        let now_ms = written_ms + began.elapsed().as_millis() as u64;
        if is_stale(&entry, now_ms) {
            break;
        }
        if Instant::now() > until {
            let what =
                format!("`{lock}` has existed for too long: it marks a cleanup of old files");
            return Err(Report::internal(what).hint("try again, or delete it if nothing cleans"));
        }
        sleep(CLEANUP_POLL_INTERVAL).await;
    }
    Ok(())
}

impl UploadContext {
    fn temporaries(&self) -> BTreeSet<String> {
        let temporaries = self.temporaries.lock();
        temporaries.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn mark(&self, temporary: &str, stored: bool) {
        let mut temporaries = self.temporaries.lock().unwrap_or_else(PoisonError::into_inner);
        match stored {
            true => drop(temporaries.insert(temporary.to_owned())),
            false => drop(temporaries.remove(temporary)),
        }
    }

    fn progress(&self, sent: u64, total: u64) {
        let sent = self.sent.fetch_add(sent, Ordering::Relaxed) + sent;
        let total = self.total.fetch_add(total, Ordering::Relaxed) + total;
        (self.progress_sink)(Progress { sent, total });
    }

    async fn hash(self: Arc<Self>, needed: Needed) -> Result<HashedNeed, Report> {
        let Needed { need, hashed } = needed;
        if let Some(hashed) = hashed {
            return Ok(HashedNeed { need, hashed, temporary: None });
        }
        let _permit = self.permits.acquire().await;
        let bytes = need.source.bytes().unwrap_or_default();
        let (temporary, hashed) = self.send(&need, bytes).await?;
        Ok(HashedNeed { need, hashed, temporary: Some(temporary) })
    }

    async fn send(&self, need: &Need, bytes: u64) -> Result<(String, Hashed), Report> {
        let temporary = self.staging_dir.layout.temporary(&self.id)?;
        self.mark(&temporary, true);
        self.progress(0, bytes);
        let source = need.source.clone();
        let produce = move |out: &mut ydl_storage::hdfs::UploadBuffer| source.send(out);
        let progress_sink = |more| self.progress(more, 0);
        let sent =
            self.hdfs.send(produce, &temporary, layout::PRIVATE, &progress_sink, self.deadline);
        let (_, hashed) = sent.await?;
        self.sent_files.fetch_add(1, Ordering::Relaxed);
        Ok((temporary, hashed))
    }

    /// Publishes a file under the name of its content, unless it is there.
    async fn publish(
        self: Arc<Self>,
        mut hashed_need: HashedNeed,
        entry: Option<Entry>,
    ) -> Result<(Purpose, StagedFile), Report> {
        let _permit = self.permits.acquire().await;
        let path = self.staging_dir.layout.content(&hashed_need.name());
        let whole = entry.filter(|entry| entry.bytes == hashed_need.hashed.bytes);
        if whole.is_none() && hashed_need.temporary.is_none() {
            let (temporary, hashed) =
                self.send(&hashed_need.need, hashed_need.hashed.bytes).await?;
            if hashed != hashed_need.hashed {
                let what = "a file of the job changed while it was read";
                return Err(Report::bad_input(what).hint(CHANGING_HINT));
            }
            hashed_need.temporary = Some(temporary);
        }
        if let Some(temporary) = &hashed_need.temporary {
            if whole.is_none() {
                match self.hdfs.rename(temporary, &path, self.deadline).await {
                    Ok(()) => self.mark(temporary, false),
                    // Another job has uploaded the same content meanwhile.
                    Err(error) if error.kind == Kind::Exists => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.temporaries().contains(temporary) {
                self.hdfs.delete(temporary, self.deadline).await?;
                self.mark(temporary, false);
            }
        }
        let entry = match whole {
            Some(entry) => Some(entry),
            None => self.hdfs.stat(&path, self.deadline).await?,
        };
        let entry =
            entry.filter(|entry| entry.bytes == hashed_need.hashed.bytes).ok_or_else(|| {
                let what = format!("`{path}` is missing or incomplete right after its upload");
                Report::internal(what).hint("delete it if it is there, and try again")
            })?;
        Ok((hashed_need.need.purpose, content(&entry, hashed_need.need.unpack)))
    }
}

/// Waits for all; the first failure ends the others.
pub(super) async fn all<T: Send + 'static>(
    mut tasks: JoinSet<Result<T, Report>>,
) -> Result<Vec<T>, Report> {
    let mut done = Vec::new();
    while let Some(one) = tasks.join_next().await {
        let one = one.map_err(|_| Report::internal("an upload failed without a reason"))?;
        done.push(one?);
    }
    Ok(done)
}
