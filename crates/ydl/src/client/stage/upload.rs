//! Uploads missing files to HDFS, several at a time.
//!
//! To avoid races with a cleaner, a submission first records the hashes that it uses, then waits for a running cleaner, and
//! then lists the files in HDFS. A cleaner that starts later reads the record; one that started earlier has finished.

use super::{
    clean::{STALE, is_stale, use_names},
    item::{Purpose, StageItem, content},
    plan::{CHANGING_HINT, PlannedItem, StagingPlan, by_name},
    source::ContentHash,
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

/// Number of files read and uploaded concurrently.
pub(super) const UPLOADS_MAX: usize = 4;
/// Maximum wait for a cleaner: longer than its lock stays valid.
const CLEANUP_MAX: Duration = Duration::from_secs(STALE.as_secs() + 30);
/// Interval between checks for the cleaner's end.
const CLEANUP_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time for deleting temporary files after a failure.
const ROLLBACK_MAX: Duration = Duration::from_secs(5);

/// Result of an upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Locations of the job's files, for the master.
    pub staged: StagedFiles,
    /// Locations of the input files, in their order.
    pub inputs: Vec<StagedFile>,
    /// Totals of the uploaded files.
    pub sent: UploadTotals,
    /// Notes on the environment for the user.
    pub notes: Vec<String>,
}

/// Upload progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes to send; grows while files are read.
    pub total: u64,
}

/// Item with a known hash.
struct HashedItem {
    item: StageItem,
    hash: ContentHash,
    /// Temporary file with the content, if it was uploaded already.
    temporary: Option<String>,
}

impl HashedItem {
    fn name(&self) -> String {
        format!("{}.{}", self.hash.hash, self.item.extension)
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
    for item in plan.items {
        tasks.spawn(shared.clone().hash(item));
    }
    let items: Vec<HashedItem> = all(tasks).await?;
    write_uses(shared, &job, &items).await?;
    let stored = shared.hdfs.list(&staging_dir.layout.contents(), deadline).await?;
    let stored = by_name(stored);
    let mut tasks = JoinSet::new();
    for item in items {
        let entry = stored.get(&item.name()).cloned();
        tasks.spawn(shared.clone().publish(item, entry));
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
    items: &[HashedItem],
) -> Result<(), Report> {
    let (hdfs, deadline) = (&shared.hdfs, shared.deadline);
    let mut tasks = JoinSet::new();
    for name in use_names(items.iter().map(|item| item.hash.hash.as_str())) {
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
            Some(written_ms) => written_ms,
            // The time of the record just written, by the file system's clock.
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
            let what = format!("timeout waiting for a cleanup to release its lock `{lock}`");
            return Err(Report::internal(what)
                .hint("try again, or delete the file if no other submission is running"));
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

    /// Records that a temporary file exists, or that it was renamed or deleted.
    fn mark(&self, temporary: &str, exists: bool) {
        let mut temporaries = self.temporaries.lock().unwrap_or_else(PoisonError::into_inner);
        match exists {
            true => drop(temporaries.insert(temporary.to_owned())),
            false => drop(temporaries.remove(temporary)),
        }
    }

    fn progress(&self, sent: u64, total: u64) {
        let sent = self.sent.fetch_add(sent, Ordering::Relaxed) + sent;
        let total = self.total.fetch_add(total, Ordering::Relaxed) + total;
        (self.progress_sink)(Progress { sent, total });
    }

    /// Returns an item with its hash. Uploads a new item to a temporary file to compute it.
    async fn hash(self: Arc<Self>, planned: PlannedItem) -> Result<HashedItem, Report> {
        let PlannedItem { item, hash } = planned;
        if let Some(hash) = hash {
            return Ok(HashedItem { item, hash, temporary: None });
        }
        let _permit = self.permits.acquire().await;
        let bytes = item.source.bytes().unwrap_or_default();
        let (temporary, hash) = self.send(&item, bytes).await?;
        Ok(HashedItem { item, hash, temporary: Some(temporary) })
    }

    async fn send(&self, item: &StageItem, bytes: u64) -> Result<(String, ContentHash), Report> {
        let temporary = self.staging_dir.layout.temporary(&self.id)?;
        self.mark(&temporary, true);
        self.progress(0, bytes);
        let source = item.source.clone();
        let produce = move |out: &mut ydl_storage::hdfs::UploadBuffer| source.send(out);
        let progress_sink = |more| self.progress(more, 0);
        let sent =
            self.hdfs.send(produce, &temporary, layout::PRIVATE, &progress_sink, self.deadline);
        let (_, hash) = sent.await?;
        self.sent_files.fetch_add(1, Ordering::Relaxed);
        Ok((temporary, hash))
    }

    /// Publishes a file under the hash of its content, unless it exists.
    async fn publish(
        self: Arc<Self>,
        mut hashed: HashedItem,
        entry: Option<Entry>,
    ) -> Result<(Purpose, StagedFile), Report> {
        let _permit = self.permits.acquire().await;
        let path = self.staging_dir.layout.content(&hashed.name());
        let complete = entry.filter(|entry| entry.bytes == hashed.hash.bytes);
        if complete.is_none() && hashed.temporary.is_none() {
            let (temporary, hash) = self.send(&hashed.item, hashed.hash.bytes).await?;
            if hash != hashed.hash {
                let what = "a file of the job changed while it was read";
                return Err(Report::bad_input(what).hint(CHANGING_HINT));
            }
            hashed.temporary = Some(temporary);
        }
        if let Some(temporary) = &hashed.temporary {
            if complete.is_none() {
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
        let entry = match complete {
            Some(entry) => Some(entry),
            None => self.hdfs.stat(&path, self.deadline).await?,
        };
        let entry = entry.filter(|entry| entry.bytes == hashed.hash.bytes).ok_or_else(|| {
            let what = format!("`{path}` is missing or incomplete right after its upload");
            Report::internal(what).hint("delete it if it exists, and try again")
        })?;
        Ok((hashed.item.purpose, content(&entry, hashed.item.unpack)))
    }
}

/// Waits for all tasks. The first failure aborts the others.
pub(super) async fn all<T: Send + 'static>(
    mut tasks: JoinSet<Result<T, Report>>,
) -> Result<Vec<T>, Report> {
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        let result = result.map_err(|_| Report::internal("an upload task panicked"))?;
        results.push(result?);
    }
    Ok(results)
}
