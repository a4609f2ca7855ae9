//! What is missing goes to HDFS, several files at a time.
//!
//! Against whoever cleans: the names of all that a job needs are written down first, then the cleaner is waited for, then
//! it is looked what is there. A cleaner that begins later reads the names; one that began earlier has ended.

use super::{
    clean::{STALE, Uses, is_stale},
    place::Place,
    source::{Hashed, Source},
};
use crate::{
    hdfs::{Entry, Hdfs, JobPlace, Kind, Sent, layout},
    jobs::{Content, Staged},
    os::reason,
    pack::{self, Cache},
    report::Report,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};
use yarn_native::{config::Config, security::Identity};
use ydl_core::{JobSpec, spec::Environment};

/// Files that are read and sent at the same time.
const SIDE_BY_SIDE: usize = 4;
/// How long a job waits for whoever cleans: longer than one that died is waited for.
const CLEANING_MAX: Duration = Duration::from_secs(STALE.as_secs() + 30);
/// How long it takes to see that the cleaner has ended.
const CLEANING_PAUSE: Duration = Duration::from_millis(200);
/// How long removing what a failure left behind may take.
const TIDY_MAX: Duration = Duration::from_secs(5);
/// What NodeManagers can unpack, by the ends of names.
const ARCHIVES: [&str; 5] = ["tar.gz", "tgz", "tar", "zip", "jar"];

/// What the environment, or the directory of its layers, is called in a container.
const ENVIRONMENT: &str = "environment";

/// What a job needs in HDFS, and who asks.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Where the user's jobs are kept.
    pub place: &'a Place,
    /// How to find other file systems that the job's files are in already.
    pub config: &'a Config,
    /// Who asks.
    pub identity: &'a Identity,
    /// The job's id.
    pub id: &'a str,
    /// The job.
    pub spec: &'a JobSpec,
    /// This very binary.
    pub binary: &'a Path,
}

/// What lies in HDFS now, and what it took.
#[derive(Clone, Debug)]
pub struct Upload {
    /// What a master needs to know of it.
    pub staged: Staged,
    /// Shared files that were not there yet.
    pub sent: Sent,
    /// What a person should know of the environment.
    pub notes: Vec<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes to send, as far as that is known: it grows while files are looked through.
    pub total: u64,
}

/// What something is to the job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Binary,
    File(String),
    /// Part of the environment, by the name it has in a container.
    Environment(String),
}

struct Need {
    purpose: Purpose,
    ending: &'static str,
    unpack: bool,
    source: Arc<Source>,
}

/// A need whose content is known, and perhaps sent.
struct Known {
    need: Need,
    hashed: Hashed,
    aside: Option<String>,
}

impl Known {
    fn name(&self) -> String {
        format!("{}.{}", self.hashed.hash, self.need.ending)
    }
}

/// What the uploads of one job share.
struct Shared {
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:?})", self.place)
    }
}

/// Brings what the job needs to HDFS, unless it is there. `tell` hears how far it is.
pub async fn stage(
    request: Request<'_>,
    tell: impl Fn(Progress) + Send + Sync + 'static,
    deadline: Instant,
) -> Result<Upload, Report> {
    let shared = Arc::new(Shared {
        hdfs: request.place.hdfs.clone(),
        place: request.place.clone(),
        id: request.id.to_owned(),
        turns: Semaphore::new(SIDE_BY_SIDE),
        sent_files: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        total: AtomicU64::new(0),
        tell: Box::new(tell),
        asides: Mutex::default(),
        deadline,
    });
    let result = run(&request, &shared).await;
    if result.is_err() {
        let until = Instant::now() + TIDY_MAX;
        for aside in shared.asides() {
            // The first failure is the one to tell; whoever cleans finds what is left.
            let _ = shared.hdfs.delete(&aside, until).await;
        }
    }
    result
}

async fn run(request: &Request<'_>, shared: &Arc<Shared>) -> Result<Upload, Report> {
    let deadline = shared.deadline;
    let spec = request.spec.clone();
    let binary = request.binary.to_path_buf();
    // Looking through large directories takes a while.
    let needs = spawn_blocking(move || needs(&spec, &binary)).await;
    let (needs, notes) =
        needs.map_err(|_| Report::trouble("the job's files could not be looked through"))??;
    let remote = remote(request, deadline).await?;
    shared.place.make(deadline).await?;
    let job = shared.place.job(request.id);
    let there = shared.there().await?;
    // What is of a length that nothing has is not there; it need not be read twice.
    let lengths: BTreeSet<u64> = there.values().map(|entry| entry.bytes).collect();
    let mut tasks = JoinSet::new();
    for need in needs {
        let fresh = need
            .source
            .bytes()
            .is_some_and(|bytes| !lengths.contains(&bytes));
        tasks.spawn(shared.clone().know(need, fresh));
    }
    let known: Vec<Known> = all(tasks).await?;
    write_uses(shared, &job, &known).await?;
    let there = shared.there().await?;
    let mut tasks = JoinSet::new();
    for one in known {
        let entry = there.get(&one.name()).cloned();
        tasks.spawn(shared.clone().settle(one, entry));
    }
    let mut contents = all(tasks).await?;
    contents.extend(remote);
    let mut staged = Staged {
        dir: job.dir().to_owned(),
        home: shared.place.home.clone(),
        binary: Content {
            url: String::new(),
            bytes: 0,
            modified_ms: 0,
            unpack: false,
            own: false,
        },
        files: BTreeMap::new(),
        environment: BTreeMap::new(),
    };
    for (purpose, content) in contents {
        match purpose {
            Purpose::Binary => staged.binary = content,
            Purpose::File(name) => drop(staged.files.insert(name, content)),
            Purpose::Environment(name) => drop(staged.environment.insert(name, content)),
        }
    }
    let sent = Sent {
        files: shared.sent_files.load(Ordering::Relaxed),
        bytes: shared.sent.load(Ordering::Relaxed),
    };
    Ok(Upload {
        staged,
        sent,
        notes,
    })
}

/// What is on this machine and must go to the cluster, and what a person should know of it.
fn needs(spec: &JobSpec, binary: &Path) -> Result<(Vec<Need>, Vec<String>), Report> {
    let mut notes = Vec::new();
    let mut needs = vec![Need::new(Purpose::Binary, binary, false)?];
    for file in &spec.files {
        if !file.source.contains("://") {
            let purpose = Purpose::File(file.name.clone());
            needs.push(Need::new(purpose, Path::new(&file.source), file.unpack)?);
        }
    }
    match &spec.environment {
        Environment::Archive(path) if !path.contains("://") => {
            let purpose = Purpose::Environment(ENVIRONMENT.to_owned());
            needs.push(Need::new(purpose, Path::new(path), true)?);
        }
        Environment::System | Environment::Archive(_) => {}
        Environment::Directory(_) | Environment::Requirements(_) | Environment::Pex(_) => {
            let packed = pack::pack(&spec.environment, &Cache::of_user()?)?;
            for layer in &packed.layers {
                needs.push(Need {
                    purpose: Purpose::Environment(format!("{ENVIRONMENT}/{}", layer.name)),
                    ending: "tar.gz",
                    unpack: true,
                    source: Arc::new(Source::packed(layer)?),
                });
            }
            notes = packed.notes;
        }
    }
    Ok((needs, notes))
}

impl Need {
    fn new(purpose: Purpose, path: &Path, unpack: bool) -> Result<Need, Report> {
        let source = Source::of(path)?;
        let (ending, unpack) = match &source {
            Source::Directory(_) => ("tar", true),
            Source::File { .. } if unpack => (archive(&path.to_string_lossy())?, true),
            Source::File { .. } => ("file", false),
        };
        Ok(Need {
            purpose,
            ending,
            unpack,
            source: Arc::new(source),
        })
    }
}

/// The ending by which a NodeManager knows how to unpack a file.
fn archive(path: &str) -> Result<&'static str, Report> {
    let low = path.to_lowercase();
    let fits = |ending: &&&str| low.ends_with(&format!(".{ending}"));
    ARCHIVES.iter().find(fits).copied().ok_or_else(|| {
        let what = format!("`{path}` is not an archive that nodes can unpack");
        Report::bad_input(what).hint("name a .tar.gz, .tgz, .tar, .zip or .jar file")
    })
}

/// What is in HDFS already: it is looked at and stays where it is.
async fn remote(
    request: &Request<'_>,
    deadline: Instant,
) -> Result<Vec<(Purpose, Content)>, Report> {
    let spec = request.spec;
    let files = spec.files.iter().map(|file| {
        let purpose = Purpose::File(file.name.clone());
        (purpose, &file.source, file.unpack)
    });
    let environment = match &spec.environment {
        Environment::Archive(path) => Some(path),
        Environment::System
        | Environment::Directory(_)
        | Environment::Requirements(_)
        | Environment::Pex(_) => None,
    };
    let purpose = Purpose::Environment(ENVIRONMENT.to_owned());
    let environment = environment.map(|path| (purpose, path, true));
    let mut contents = Vec::new();
    let mut systems: BTreeMap<String, Hdfs> = BTreeMap::new();
    for (purpose, url, unpack) in files.chain(environment) {
        let Some((scheme, rest)) = url.split_once("://") else {
            continue;
        };
        if unpack {
            archive(url)?;
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let hdfs = match systems.get(authority) {
            Some(hdfs) => hdfs.clone(),
            None => {
                let named = format!("{scheme}://{authority}");
                let named = (!authority.is_empty()).then_some(named.as_str());
                let hdfs = Hdfs::connect(request.config, named, request.identity, deadline).await?;
                systems.insert(authority.to_owned(), hdfs.clone());
                hdfs
            }
        };
        let whole = hdfs.url(path);
        let Some(entry) = hdfs.stat(&whole, deadline).await? else {
            let what = format!("there is no `{url}`, which the job file names");
            return Err(Report::bad_input(what));
        };
        if entry.directory {
            let what = format!("`{url}` is a directory");
            let hint = "pack it into an archive and say `unpack: true`, or let the programs read it from HDFS themselves";
            return Err(Report::bad_input(what).hint(hint));
        }
        contents.push((purpose, content(&entry, unpack)));
    }
    Ok(contents)
}

fn content(entry: &Entry, unpack: bool) -> Content {
    Content {
        url: entry.url.clone(),
        bytes: entry.bytes,
        modified_ms: entry.modified_ms,
        unpack,
        own: false,
    }
}

/// Writes down what the job uses, then waits for whoever cleans.
async fn write_uses(shared: &Shared, job: &JobPlace, known: &[Known]) -> Result<(), Report> {
    let deadline = shared.deadline;
    let hdfs = &shared.hdfs;
    hdfs.mkdirs(job.dir(), 0o700, deadline).await?;
    let uses = Uses {
        content: known.iter().map(Known::name).collect(),
    };
    let bytes = serde_json::to_vec(&uses);
    let bytes = bytes.map_err(|error| Report::trouble(format!("cannot write JSON: {error}")))?;
    hdfs.write_whole(&job.uses(), bytes, layout::FILE, deadline)
        .await?;
    let lock = shared.place.layout.cleaning();
    let began = Instant::now();
    let until = deadline.min(began + CLEANING_MAX);
    // The file system's clock, read from what it has just written.
    let written = hdfs.stat(&job.uses(), deadline).await?;
    let written_ms = written.map_or(0, |entry| entry.modified_ms);
    while let Some(entry) = hdfs.stat(&lock, deadline).await? {
        let now_ms = written_ms + began.elapsed().as_millis() as u64;
        if is_stale(&entry, now_ms) {
            break;
        }
        if Instant::now() > until {
            let what = format!("`{lock}` says that old files are being cleaned up, for too long");
            return Err(Report::trouble(what).hint("try again, or delete it if nothing cleans"));
        }
        sleep(CLEANING_PAUSE).await;
    }
    Ok(())
}

impl Shared {
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

    /// Shared files by name.
    async fn there(&self) -> Result<BTreeMap<String, Entry>, Report> {
        let entries = self
            .hdfs
            .list(&self.place.layout.contents(), self.deadline)
            .await?;
        let files = entries.into_iter().filter(|entry| !entry.directory);
        Ok(files
            .map(|entry| (entry.name().to_owned(), entry))
            .collect())
    }

    async fn know(self: Arc<Self>, need: Need, fresh: bool) -> Result<Known, Report> {
        let _turn = self.turns.acquire().await;
        if fresh {
            let bytes = need.source.bytes().unwrap_or_default();
            let (aside, hashed) = self.send(&need, bytes).await?;
            return Ok(Known {
                need,
                hashed,
                aside: Some(aside),
            });
        }
        let source = need.source.clone();
        let hashed = spawn_blocking(move || source.hash()).await;
        let hashed = hashed.map_err(|_| Report::trouble("a file could not be read"))?;
        let hashed = hashed.map_err(|error| Report::bad_input(reason(&error)).hint(STILL))?;
        Ok(Known {
            need,
            hashed,
            aside: None,
        })
    }

    async fn send(&self, need: &Need, bytes: u64) -> Result<(String, Hashed), Report> {
        let aside = self.place.layout.aside(&self.id)?;
        self.mark(&aside, true);
        self.progress(0, bytes);
        let source = need.source.clone();
        let produce = move |out: &mut crate::hdfs::Pieces| source.send(out);
        let tell = |more| self.progress(more, 0);
        let sent = self
            .hdfs
            .send(produce, &aside, layout::PRIVATE, &tell, self.deadline);
        let (_, hashed) = sent.await?;
        self.sent_files.fetch_add(1, Ordering::Relaxed);
        Ok((aside, hashed))
    }

    /// Sees to it that a content is there under its name.
    async fn settle(
        self: Arc<Self>,
        mut known: Known,
        entry: Option<Entry>,
    ) -> Result<(Purpose, Content), Report> {
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
        let entry = entry
            .filter(|entry| entry.bytes == known.hashed.bytes)
            .ok_or_else(|| {
                let what = format!("`{place}` was just sent and is not there whole");
                Report::trouble(what).hint("delete it if it is there, and try again")
            })?;
        Ok((known.need.purpose, content(&entry, known.need.unpack)))
    }
}

/// What to do about files that change.
const STILL: &str = "submit when nothing writes to the job's files any more";

/// Waits for all; the first failure ends the others.
async fn all<T: Send + 'static>(mut tasks: JoinSet<Result<T, Report>>) -> Result<Vec<T>, Report> {
    let mut done = Vec::new();
    while let Some(one) = tasks.join_next().await {
        let one = one.map_err(|_| Report::trouble("an upload failed without a reason"))?;
        done.push(one?);
    }
    Ok(done)
}
