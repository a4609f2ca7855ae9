//! Plans the upload without writing: lists the job's local files, and the files already in HDFS.

use super::{
    clean::is_due,
    item::{Purpose, StageItem, local_items, remote_files},
    source::ContentHash,
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

/// Job to stage, and the caller's credentials.
#[derive(Clone, Debug)]
pub struct StageRequest<'a> {
    /// The staging directory.
    pub staging_dir: &'a StagingDir,
    /// Hadoop configuration, for other file systems with files of the job.
    pub config: &'a Config,
    /// Credentials of the caller.
    pub identity: &'a Identity,
    /// The job.
    pub spec: &'a JobSpec,
    /// Path of the `ydl` binary.
    pub binary: &'a Path,
    /// Files of the job's inputs that are on this machine.
    pub inputs: &'a [PathBuf],
    /// Receives messages about slow steps.
    pub progress: fn(String),
}

/// Files to upload for a job, and files that are in HDFS already.
pub struct StagingPlan {
    /// The staging directory.
    pub staging_dir: StagingDir,
    /// True if the staging directory exists.
    pub(super) exists: bool,
    /// True if it has no shared files.
    pub(super) is_empty: bool,
    pub(super) items: Vec<PlannedItem>,
    /// Files in HDFS that are used in place.
    pub(super) remote: Vec<(Purpose, StagedFile)>,
    pub(super) notes: Vec<String>,
    /// True if the last cleanup was more than a day ago.
    pub cleanup_is_due: bool,
}

/// Local file or directory of a job. The hash is unknown if no file in HDFS has its length: it is computed during the
/// upload.
pub(super) struct PlannedItem {
    pub item: StageItem,
    pub hash: Option<ContentHash>,
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
    // Reading large directories takes a while.
    let local = async {
        let items = spawn_blocking(move || local_items(&spec, &binary, &inputs, progress)).await;
        items.map_err(|_| Report::internal("listing the job's files failed"))?
    };
    let remote_state = async {
        let listing = async { Ok::<_, Report>(staging_dir.hdfs.list(&contents, deadline).await?) };
        let due = async { Ok::<_, Report>(is_due(staging_dir, deadline).await?) };
        let results = tokio::join!(staging_dir.exists(deadline), listing, due);
        // The check of the owner comes first: its error is more specific than a denied listing.
        Ok::<_, Report>((results.0?, results.1?, results.2?))
    };
    let ((items, notes), (exists, stored, cleanup_is_due), remote) =
        tokio::try_join!(local, remote_state, remote_files(&request, deadline))?;
    let stored = by_name(stored);
    // A file whose length no stored file has is new. It is hashed during its upload, not read twice.
    let lengths: BTreeSet<u64> = stored.values().map(|entry| entry.bytes).collect();
    let permits = Arc::new(Semaphore::new(UPLOADS_MAX));
    let mut tasks = JoinSet::new();
    for item in items {
        let is_new = |bytes| !lengths.contains(&bytes);
        let is_new = item.source.bytes().is_some_and(is_new);
        let permits = permits.clone();
        tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let hash = match is_new {
                true => None,
                false => Some(hash_of(&item).await?),
            };
            Ok(PlannedItem { item, hash })
        });
    }
    let items = all(tasks).await?;
    Ok(StagingPlan {
        staging_dir: staging_dir.clone(),
        exists,
        is_empty: stored.is_empty(),
        items,
        remote,
        notes,
        cleanup_is_due,
    })
}

/// Returns the files among directory entries, by name.
pub(super) fn by_name(entries: Vec<Entry>) -> BTreeMap<String, Entry> {
    let files = entries.into_iter().filter(|entry| !entry.directory);
    files.map(|entry| (entry.name().to_owned(), entry)).collect()
}

async fn hash_of(item: &StageItem) -> Result<ContentHash, Report> {
    let source = item.source.clone();
    let hash = spawn_blocking(move || source.hash()).await;
    let hash = hash.map_err(|_| Report::internal("hashing a file failed"))?;
    hash.map_err(|error| Report::bad_input(reason(&error)).hint(CHANGING_HINT))
}

/// Hint for files that change during the upload.
pub(super) const CHANGING_HINT: &str = "submit when no process writes to the job's files";
