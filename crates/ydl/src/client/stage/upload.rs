//! Uploads missing files to HDFS, several at a time.
//!
//! To avoid races with a cleaner: the names of all that a job needs are written down first, then the
//! job waits for a running cleaner, then it lists the files there. A cleaner that begins later reads the names; one
//! that began earlier has ended.

use super::{
    clean::{STALE, is_stale, uses},
    need::{Need, Purpose, content},
    plan::{Needed, STILL, StagingPlan, by_name},
    source::Hashed,
    staging_dir::Place,
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
pub(super) const SIDE_BY_SIDE: usize = 4;
/// Maximum wait for a cleaner: longer than a dead one's lock stays valid.
const CLEANING_MAX: Duration = Duration::from_secs(STALE.as_secs() + 30);
/// Interval between checks for the cleaner's end.
const CLEANING_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time for removing what a failure left behind.
const TIDY_MAX: Duration = Duration::from_secs(5);
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
    aside: Option<String>,
}

impl HashedNeed {
    fn name(&self) -> String {
        format!("{}.{}", self.hashed.hash, self.need.ending)
    }
}

/// State shared by the uploads of one job.
struct UploadContext {
    hdfs: Hdfs,
    place: Place,
    /// The job's id.
    id: String,
    turns: Semaphore,
    sent_files: AtomicU64,
    sent: AtomicU64,
    total: AtomicU64,
    tell: Box<dyn Fn(Progress) + Send + Sync>,
    asides: Mutex<BTreeSet<String>>,
    deadline: Instant,
}

impl fmt::Debug for UploadContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:?})", self.place)
    }
}

/// Brings what the job of that id needs to HDFS, unless it is there. `tell` hears how far it is.
pub async fn stage(
    looked: StagingPlan,
    id: &str,
    tell: impl Fn(Progress) + Send + Sync + 'static,
    deadline: Instant,
) -> Result<Upload, Report> {
    let shared = Arc::new(UploadContext {
        hdfs: looked.place.hdfs.clone(),
        place: looked.place.clone(),
        id: id.to_owned(),
        turns: Semaphore::new(SIDE_BY_SIDE),
        sent_files: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        total: AtomicU64::new(0),
        tell: Box::new(tell),
        asides: Mutex::default(),
        deadline,
    });
    let result = run(looked, &shared).await;
    if result.is_err() {
        let until = Instant::now() + TIDY_MAX;
        for aside in shared.asides() {
            // Report the first failure; a later cleanup removes the rest.
            let _ = shared.hdfs.delete(&aside, until).await;
        }
    }
    result
}

async fn run(looked: StagingPlan, shared: &Arc<UploadContext>) -> Result<Upload, Report> {
    let (place, deadline) = (&shared.place, shared.deadline);
    if !looked.is_made {
        place.make(deadline).await?;
    }
    if looked.is_empty {
        let contents = place.layout.contents();
        shared.hdfs.mkdirs(&contents, 0o700, deadline).await?;
    }
    let job = place.job(&shared.id);
    let mut tasks = JoinSet::new();
    for needed in looked.needs {
        tasks.spawn(shared.clone().know(needed));
    }
    let known: Vec<HashedNeed> = all(tasks).await?;
    write_uses(shared, &job, &known).await?;
    let there = shared.hdfs.list(&place.layout.contents(), deadline).await?;
    let there = by_name(there);
    let mut tasks = JoinSet::new();
    for one in known {
        let entry = there.get(&one.name()).cloned();
        tasks.spawn(shared.clone().settle(one, entry));
    }
    let mut contents = all(tasks).await?;
    contents.extend(looked.remote);
    let mut staged = StagedFiles {
        dir: job.dir().to_owned(),
        home: shared.place.home.clone(),
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
    Ok(Upload { staged, inputs: inputs.into_values().collect(), sent, notes: looked.notes })
}

/// Records the files that the job uses, then waits for a running cleaner.
async fn write_uses(
    shared: &UploadContext,
    job: &JobLayout,
    known: &[HashedNeed],
) -> Result<(), Report> {
    let (hdfs, deadline) = (&shared.hdfs, shared.deadline);
    let mut tasks = JoinSet::new();
    for name in uses(known.iter().map(|one| one.hashed.hash.as_str())) {
        let (hdfs, dir) = (hdfs.clone(), format!("{}/{name}", job.uses()));
        tasks.spawn(async move { Ok(hdfs.mkdirs(&dir, 0o700, deadline).await?) });
    }
    all(tasks).await?;
    let lock = shared.place.layout.cleaning();
    let began = Instant::now();
    let until = deadline.min(began + CLEANING_MAX);
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
            let what = format!("`{lock}` says that old files are being cleaned up, for too long");
            return Err(Report::internal(what).hint("try again, or delete it if nothing cleans"));
        }
        sleep(CLEANING_PAUSE).await;
    }
    Ok(())
}

impl UploadContext {
    fn asides(&self) -> BTreeSet<String> {
        let asides = self.asides.lock();
        asides.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn mark(&self, aside: &str, there: bool) {
        let mut asides = self.asides.lock().unwrap_or_else(PoisonError::into_inner);
        match there {
            true => drop(asides.insert(aside.to_owned())),
            false => drop(asides.remove(aside)),
        }
    }

    fn progress(&self, sent: u64, total: u64) {
        let sent = self.sent.fetch_add(sent, Ordering::Relaxed) + sent;
        let total = self.total.fetch_add(total, Ordering::Relaxed) + total;
        (self.tell)(Progress { sent, total });
    }

    async fn know(self: Arc<Self>, needed: Needed) -> Result<HashedNeed, Report> {
        let Needed { need, hashed } = needed;
        if let Some(hashed) = hashed {
            return Ok(HashedNeed { need, hashed, aside: None });
        }
        let _turn = self.turns.acquire().await;
        let bytes = need.source.bytes().unwrap_or_default();
        let (aside, hashed) = self.send(&need, bytes).await?;
        Ok(HashedNeed { need, hashed, aside: Some(aside) })
    }

    async fn send(&self, need: &Need, bytes: u64) -> Result<(String, Hashed), Report> {
        let aside = self.place.layout.temporary(&self.id)?;
        self.mark(&aside, true);
        self.progress(0, bytes);
        let source = need.source.clone();
        let produce = move |out: &mut ydl_storage::hdfs::UploadBuffer| source.send(out);
        let tell = |more| self.progress(more, 0);
        let sent = self.hdfs.send(produce, &aside, layout::PRIVATE, &tell, self.deadline);
        let (_, hashed) = sent.await?;
        self.sent_files.fetch_add(1, Ordering::Relaxed);
        Ok((aside, hashed))
    }

    /// Sees to it that a content is there under its name.
    async fn settle(
        self: Arc<Self>,
        mut known: HashedNeed,
        entry: Option<Entry>,
    ) -> Result<(Purpose, StagedFile), Report> {
        let _turn = self.turns.acquire().await;
        let place = self.place.layout.content(&known.name());
        let whole = entry.filter(|entry| entry.bytes == known.hashed.bytes);
        if whole.is_none() && known.aside.is_none() {
            let (aside, hashed) = self.send(&known.need, known.hashed.bytes).await?;
            if hashed != known.hashed {
                let what = "a file of the job changed while it was read";
                return Err(Report::bad_input(what).hint(STILL));
            }
            known.aside = Some(aside);
        }
        if let Some(aside) = &known.aside {
            if whole.is_none() {
                match self.hdfs.rename(aside, &place, self.deadline).await {
                    Ok(()) => self.mark(aside, false),
                    // Another job brought the same a moment ago.
                    Err(error) if error.kind == Kind::Exists => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.asides().contains(aside) {
                self.hdfs.delete(aside, self.deadline).await?;
                self.mark(aside, false);
            }
        }
        let entry = match whole {
            Some(entry) => Some(entry),
            None => self.hdfs.stat(&place, self.deadline).await?,
        };
        let entry = entry.filter(|entry| entry.bytes == known.hashed.bytes).ok_or_else(|| {
            let what = format!("`{place}` was just sent and is not there whole");
            Report::internal(what).hint("delete it if it is there, and try again")
        })?;
        Ok((known.need.purpose, content(&entry, known.need.unpack)))
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
