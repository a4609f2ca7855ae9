//! Reservations of destinations and names by a job and its tasks.

use super::collect::OutputFiles;
use crate::agent::shipping::HdfsClients;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_storage::data::{AnnouncedNames, DataError, ReservationLog, release, reserve};

/// Timeout of local reservations, which need no network.
const HERE_MAX: Duration = Duration::from_secs(60);
/// Timeout for recording absent outputs.
const NOTE_MAX: Duration = Duration::from_secs(20);
/// Maximum size of files that are compared with those of other tasks: identical content is no conflict.
const COMPARED_BYTES_MAX: u64 = 1 << 20;

/// Location of a job's reservation log.
#[derive(Clone, Debug)]
pub(in crate::agent) enum ReservationStore {
    /// A directory of this machine.
    Local(PathBuf),
    /// URL of a directory in HDFS.
    Hdfs(String),
}

/// Reservations of one task.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Reservations {
    pub(in crate::agent) ledger: ReservationStore,
    /// Id of the job.
    pub(in crate::agent) job: String,
    /// Name of the task, for messages.
    pub(in crate::agent) task: String,
}

impl Reservations {
    /// Reserves a local destination and returns its final path.
    pub(in crate::agent) async fn here(
        &self,
        existing: ExistingPolicy,
        to: &Path,
    ) -> Result<PathBuf, String> {
        let ReservationStore::Local(dir) = &self.ledger else {
            return Ok(to.to_owned());
        };
        let (book, to) = (ReservationLog::Local(dir.clone()), to.to_string_lossy());
        let deadline = Instant::now() + HERE_MAX;
        let taken = reserve(&book, None, existing, &to, &self.job, deadline).await;
        taken.map(PathBuf::from).map_err(|trouble| trouble.sentence())
    }

    /// Releases the reservation of a complete local output.
    pub(in crate::agent) async fn placed_here(&self, existing: ExistingPolicy, taken: &Path) {
        if let (ReservationStore::Local(_), false) =
            (&self.ledger, existing == ExistingPolicy::Overwrite)
        {
            release(None, &taken.to_string_lossy(), Instant::now() + HERE_MAX).await;
        }
    }

    /// Reserves a destination in HDFS and returns its final URL.
    pub(in crate::agent) async fn afar(
        &self,
        ways: &HdfsClients,
        existing: ExistingPolicy,
        to: &str,
        deadline: Instant,
    ) -> Result<String, DataError> {
        if existing == ExistingPolicy::Overwrite {
            return Ok(to.to_owned());
        }
        let ground = ways.to(to, deadline).await?;
        let book = self.book(Some(ways), deadline).await?;
        reserve(&book, Some(&ground), existing, to, &self.job, deadline).await
    }

    /// Releases the reservation of a complete output in HDFS.
    pub(in crate::agent) async fn placed_afar(
        &self,
        ways: &HdfsClients,
        existing: ExistingPolicy,
        taken: &str,
        deadline: Instant,
    ) {
        if existing == ExistingPolicy::Overwrite {
            return;
        }
        if let Ok(ground) = ways.to(taken, deadline).await {
            release(Some(&ground), taken, deadline).await;
        }
    }

    async fn book(
        &self,
        ways: Option<&HdfsClients>,
        deadline: Instant,
    ) -> Result<ReservationLog, DataError> {
        match (&self.ledger, ways) {
            (ReservationStore::Local(dir), _) => Ok(ReservationLog::Local(dir.clone())),
            (ReservationStore::Hdfs(dir), Some(ways)) => {
                Ok(ReservationLog::Hdfs(ways.to(dir, deadline).await?, dir.clone()))
            }
            (ReservationStore::Hdfs(_), None) => {
                Err(DataError::permanent("no access to HDFS from this node"))
            }
        }
    }

    /// Announces file names to the job's other tasks. Returns the names that another task has announced with different
    /// content, and that task.
    pub(in crate::agent) async fn names(
        &self,
        ways: Option<&HdfsClients>,
        from: &str,
        to: &str,
        files: BTreeMap<String, Option<String>>,
        deadline: Instant,
    ) -> Result<BTreeMap<String, String>, DataError> {
        // Files on the disk of a cluster node are not shared with other tasks.
        if let (ReservationStore::Hdfs(_), None) = (&self.ledger, ways) {
            return Ok(BTreeMap::new());
        }
        let book = self.book(ways, deadline).await?;
        let who = format!("`{from}` of {}", self.task);
        book.announce(to, &AnnouncedNames { owner: who, files }, deadline).await
    }

    /// Records which outputs were absent, for the job's summary. Replaces the record of an earlier attempt.
    pub(in crate::agent) async fn note(
        &self,
        ways: Option<&HdfsClients>,
        outputs: &[String],
        absent: &[String],
    ) {
        let deadline = Instant::now() + NOTE_MAX;
        if outputs.is_empty() {
            return;
        }
        let noted = async {
            let book = self.book(ways, deadline).await?;
            for output in outputs {
                let absent = absent.contains(output);
                let noted = book.note_absent(output, &self.task, absent, deadline);
                noted.await?;
            }
            Ok::<_, DataError>(())
        };
        if let Err(trouble) = noted.await {
            tracing::warn!("cannot record absent outputs: {}", trouble.what);
        }
    }
}

/// Returns the files of an output as announced to other tasks: small ones with a digest.
pub(super) fn contents(found: &OutputFiles) -> BTreeMap<String, Option<String>> {
    let each = found.files.iter();
    each.map(|item| (item.name.clone(), content(&item.from))).collect()
}

/// Returns a digest of a small file.
pub(super) fn content(path: &Path) -> Option<String> {
    let bytes = fs::metadata(path).ok()?.len();
    if bytes > COMPARED_BYTES_MAX {
        return None;
    }
    let read = fs::read(path).ok()?;
    Some(hex::encode(&digest(&SHA256, &read).as_ref()[..16]))
}

/// Returns the error for a name that another task has written.
pub(super) fn theirs(who: &str) -> String {
    format!(
        "{who} has written that name with different content, which is kept (hint: put `{{index}}` into the destination, or take the output from one task with `from:`)"
    )
}
