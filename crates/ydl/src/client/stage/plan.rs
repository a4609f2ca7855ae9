//! Plans the upload without writing: lists the job's local files, and the files already in HDFS.

use super::{
    clean::is_due,
    need::{Need, Purpose, needs, remote},
    source::Hashed,
    staging_dir::StagingDir,
    upload::{UPLOADS_MAX, all},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::Instant,
};
use yarn_native::{config::Config, security::Identity};
use ydl_core::JobSpec;
use ydl_os::{reason, report::Report};
use ydl_proto::files::StagedFile;
use ydl_storage::hdfs::Entry;

/// Files that a job needs in HDFS, and the caller.
#[derive(Clone, Debug)]
pub struct StageRequest<'a> {
    /// The staging directory.
    pub staging_dir: &'a StagingDir,
    /// Access to other file systems that the job's files are in already.
    pub config: &'a Config,
    /// The caller.
    pub identity: &'a Identity,
    /// The job.
    pub spec: &'a JobSpec,
    /// This very binary.
    pub binary: &'a Path,
    /// Files of the job's inputs that are on this machine.
    pub inputs: &'a [PathBuf],
    /// Receives messages about slow steps.
    pub progress: fn(String),
}

/// Files that a job needs, and those in HDFS already. Nothing was written for it yet.
pub struct StagingPlan {
    /// The staging directory.
    pub staging_dir: StagingDir,
    /// True if the user's directory was there.
    pub(super) exists: bool,
    /// True if there was any shared file.
    pub(super) is_empty: bool,
    pub(super) needs: Vec<Needed>,
    /// Files that stay in place.
    pub(super) remote: Vec<(Purpose, StagedFile)>,
    pub(super) notes: Vec<String>,
    /// True if the last cleanup was more than a day ago.
    pub cleanup_is_due: bool,
}

/// One thing that a job needs, and what is in it; not known of what nothing in HDFS can be, which is read when it is
/// sent.
pub(super) struct Needed {
    pub need: Need,
    pub hashed: Option<Hashed>,
}

impl fmt::Debug for StagingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StagingPlan({:?})", self.staging_dir)
    }
}

/// Lists the job's files and those already in HDFS. Changes nothing, so it can run during preflight.
pub async fn plan(request: StageRequest<'_>, deadline: Instant) -> Result<StagingPlan, Report> {
    let (spec, binary) = (request.spec.clone(), request.binary.to_path_buf());
    let (staging_dir, inputs, progress) =
        (request.staging_dir, request.inputs.to_vec(), request.progress);
    let contents = staging_dir.layout.contents();
    // Looking through large directories takes a while.
    let local = async {
        let needs = spawn_blocking(move || needs(&spec, &binary, &inputs, progress)).await;
        needs.map_err(|_| Report::internal("the job's files could not be looked through"))?
    };
    let remote_state = async {
        let listing = async { Ok::<_, Report>(staging_dir.hdfs.list(&contents, deadline).await?) };
        let due = async { Ok::<_, Report>(is_due(staging_dir, deadline).await?) };
        let results = tokio::join!(staging_dir.exists(deadline), listing, due);
        // Whose directory it is says more than what may not be seen in it.
        Ok::<_, Report>((results.0?, results.1?, results.2?))
    };
    let ((needs, notes), (exists, stored, cleanup_is_due), remote) =
        tokio::try_join!(local, remote_state, remote(&request, deadline))?;
    let stored = by_name(stored);
    // What is of a length that nothing has is not there; it need not be read twice.
    let lengths: BTreeSet<u64> = stored.values().map(|entry| entry.bytes).collect();
    let permits = Arc::new(Semaphore::new(UPLOADS_MAX));
    let mut tasks = JoinSet::new();
    for need in needs {
        let is_new = |bytes| !lengths.contains(&bytes);
        let is_new = need.source.bytes().is_some_and(is_new);
        let permits = permits.clone();
        tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let hashed = match is_new {
                true => None,
                false => Some(hash(&need).await?),
            };
            Ok(Needed { need, hashed })
        });
    }
    let needs = all(tasks).await?;
    Ok(StagingPlan {
        staging_dir: staging_dir.clone(),
        exists,
        is_empty: stored.is_empty(),
        needs,
        remote,
        notes,
        cleanup_is_due,
    })
}

/// Shared files by name.
pub(super) fn by_name(entries: Vec<Entry>) -> BTreeMap<String, Entry> {
    let files = entries.into_iter().filter(|entry| !entry.directory);
    files.map(|entry| (entry.name().to_owned(), entry)).collect()
}

async fn hash(need: &Need) -> Result<Hashed, Report> {
    let source = need.source.clone();
    let hashed = spawn_blocking(move || source.hash()).await;
    let hashed = hashed.map_err(|_| Report::internal("a file could not be read"))?;
    hashed.map_err(|error| Report::bad_input(reason(&error)).hint(CHANGING_HINT))
}

/// Hint for files that change during the upload.
pub(super) const CHANGING_HINT: &str = "submit when nothing writes to the job's files any more";
