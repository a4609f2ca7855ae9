//! Plans the upload without writing: lists the job's local files, and the files already in HDFS.

use super::{
    clean::is_due,
    need::{Need, Purpose, needs, remote},
    source::Hashed,
    staging_dir::Place,
    upload::{SIDE_BY_SIDE, all},
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
    pub place: &'a Place,
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
    /// Hears what takes long.
    pub tell: fn(String),
}

/// Files that a job needs, and those in HDFS already. Nothing was written for it yet.
pub struct StagingPlan {
    /// The staging directory.
    pub place: Place,
    /// True if the user's directory was there.
    pub(super) is_made: bool,
    /// True if there was any shared file.
    pub(super) is_empty: bool,
    pub(super) needs: Vec<Needed>,
    /// Files that stay in place.
    pub(super) remote: Vec<(Purpose, StagedFile)>,
    pub(super) notes: Vec<String>,
    /// True if the last cleanup was more than a day ago.
    pub cleaning_is_due: bool,
}

/// One thing that a job needs, and what is in it; not known of what nothing in HDFS can be, which is read when it is
/// sent.
pub(super) struct Needed {
    pub need: Need,
    pub hashed: Option<Hashed>,
}

impl fmt::Debug for StagingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Looked({:?})", self.place)
    }
}

/// Looks through the job's files, and at what is in HDFS. It can run while the cluster is asked other things.
pub async fn look(request: StageRequest<'_>, deadline: Instant) -> Result<StagingPlan, Report> {
    let (spec, binary) = (request.spec.clone(), request.binary.to_path_buf());
    let (place, inputs, tell) = (request.place, request.inputs.to_vec(), request.tell);
    let contents = place.layout.contents();
    // Looking through large directories takes a while.
    let finding = async {
        let needs = spawn_blocking(move || needs(&spec, &binary, &inputs, tell)).await;
        needs.map_err(|_| Report::internal("the job's files could not be looked through"))?
    };
    let asking = async {
        let listing = async { Ok::<_, Report>(place.hdfs.list(&contents, deadline).await?) };
        let due = async { Ok::<_, Report>(is_due(place, deadline).await?) };
        let asked = tokio::join!(place.is_made(deadline), listing, due);
        // Whose directory it is says more than what may not be seen in it.
        Ok::<_, Report>((asked.0?, asked.1?, asked.2?))
    };
    let ((needs, notes), (is_made, there, cleaning_is_due), remote) =
        tokio::try_join!(finding, asking, remote(&request, deadline))?;
    let there = by_name(there);
    // What is of a length that nothing has is not there; it need not be read twice.
    let lengths: BTreeSet<u64> = there.values().map(|entry| entry.bytes).collect();
    let turns = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut tasks = JoinSet::new();
    for need in needs {
        let is_new = |bytes| !lengths.contains(&bytes);
        let is_new = need.source.bytes().is_some_and(is_new);
        let turns = turns.clone();
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            let hashed = match is_new {
                true => None,
                false => Some(hash(&need).await?),
            };
            Ok(Needed { need, hashed })
        });
    }
    let needs = all(tasks).await?;
    Ok(StagingPlan {
        place: place.clone(),
        is_made,
        is_empty: there.is_empty(),
        needs,
        remote,
        notes,
        cleaning_is_due,
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
    hashed.map_err(|error| Report::bad_input(reason(&error)).hint(STILL))
}

/// Hint for files that change during the upload.
pub(super) const STILL: &str = "submit when nothing writes to the job's files any more";
