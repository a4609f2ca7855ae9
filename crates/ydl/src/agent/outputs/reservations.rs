//! Reservations of destinations and names by a job and its tasks.

use super::collect::OutputFile;
use crate::agent::shipping::HdfsClients;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_storage::{
    data::{AnnouncedNames, DataError, ReservationLog, release, reserve},
    store::is_local,
};

/// Timeout for recording absent outputs.
const RECORD_MAX: Duration = Duration::from_secs(20);
/// Maximum size of files that are compared with those of other tasks: identical content is no conflict.
const COMPARED_BYTES_MAX: u64 = 1 << 20;

/// Names that other tasks of the job have written, and those tasks.
pub(super) type TakenNames = BTreeMap<String, String>;

/// Reservations of one task.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Reservations {
    /// Directory of the job's reservation log: a path on this machine, or a URL in HDFS.
    pub(in crate::agent) dir: String,
    /// Id of the job.
    pub(in crate::agent) job: String,
    /// Name of the task, for messages.
    pub(in crate::agent) task: String,
}

impl Reservations {
    /// Reserves a destination and returns its final path or URL.
    pub(super) async fn reserve(
        &self,
        stores: &HdfsClients,
        existing: ExistingPolicy,
        to: &str,
        deadline: Instant,
    ) -> Result<String, DataError> {
        if existing == ExistingPolicy::Overwrite {
            return Ok(to.to_owned());
        }
        let store = stores.store(to, deadline).await?;
        let log = self.log(stores, deadline).await?;
        reserve(&log, &*store, existing, to, &self.job, deadline).await
    }

    /// Releases the reservation of a complete output.
    pub(super) async fn release(
        &self,
        stores: &HdfsClients,
        existing: ExistingPolicy,
        taken: &str,
        deadline: Instant,
    ) {
        if existing == ExistingPolicy::Overwrite {
            return;
        }
        if let Ok(store) = stores.store(taken, deadline).await {
            release(&*store, taken, deadline).await;
        }
    }

    async fn log(
        &self,
        stores: &HdfsClients,
        deadline: Instant,
    ) -> Result<ReservationLog, DataError> {
        let store = stores.store(&self.dir, deadline).await?;
        Ok(ReservationLog::new(store, &*self.dir))
    }

    /// Announces file names to the job's other tasks. Returns the names that another task has announced with different
    /// content, and that task.
    pub(super) async fn announce(
        &self,
        stores: &HdfsClients,
        from: &str,
        to: &str,
        files: BTreeMap<String, Option<String>>,
        deadline: Instant,
    ) -> Result<TakenNames, DataError> {
        // Files on the disk of a cluster node are not shared with other tasks.
        if is_local(to) && !is_local(&self.dir) {
            return Ok(TakenNames::new());
        }
        let log = self.log(stores, deadline).await?;
        let owner = format!("`{from}` of {}", self.task);
        log.announce(to.trim_end_matches('/'), &AnnouncedNames { owner, files }, deadline).await
    }

    /// Records which outputs were absent, for the job's summary. Replaces the record of an earlier attempt.
    pub(super) async fn record_absent<'a>(
        &self,
        stores: &HdfsClients,
        outputs: impl Iterator<Item = &'a String>,
        absent: &[String],
    ) {
        let deadline = Instant::now() + RECORD_MAX;
        let recorded = async {
            let log = self.log(stores, deadline).await?;
            for output in outputs {
                let absent = absent.contains(output);
                log.note_absent(output, &self.task, absent, deadline).await?;
            }
            Ok::<_, DataError>(())
        };
        if let Err(error) = recorded.await {
            tracing::warn!("cannot record absent outputs: {}", error.what);
        }
    }
}

/// Returns the files of an output as announced to other tasks: small ones with a digest.
pub(super) fn contents<'a>(
    files: impl Iterator<Item = &'a OutputFile>,
) -> BTreeMap<String, Option<String>> {
    let files = files.filter(|item| item.link.is_none());
    files.map(|item| (item.name.clone(), content(&item.from))).collect()
}

/// Returns a digest of a small file.
fn content(path: &Path) -> Option<String> {
    let bytes = fs::metadata(path).ok()?.len();
    if bytes > COMPARED_BYTES_MAX {
        return None;
    }
    let read = fs::read(path).ok()?;
    Some(hex::encode(&digest(&SHA256, &read).as_ref()[..16]))
}

/// Returns the error for a name that another task has written.
pub(super) fn taken_error(owner: &str) -> String {
    format!(
        "{owner} has written that name with different content, which is kept (hint: put `{{index}}` into the destination, or take the output from one task with `from:`)"
    )
}
