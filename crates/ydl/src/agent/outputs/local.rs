//! Outputs with a local destination.

use super::{Reservations, collect::gather, reservations::contents};
use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_storage::data::temporary_name;

/// Timeout of local name announcements.
const NAMES_MAX: Duration = Duration::from_secs(60);

/// One output to copy to a local path.
#[derive(Clone, Debug)]
pub(in crate::agent) struct LocalCopy {
    pub(in crate::agent) from: String,
    pub(in crate::agent) to: PathBuf,
    pub(in crate::agent) existing: ExistingPolicy,
    /// Set if it was uploaded continuously: names with a leading dot are skipped.
    pub(in crate::agent) kept: bool,
    /// Set if other tasks of the job write to the same destination.
    pub(in crate::agent) shared: bool,
}

/// Names that other tasks of the job have written, and those tasks.
pub(in crate::agent) type TakenNames = BTreeMap<String, String>;

/// Returns the temporary name used by the process with that pid on this machine.
#[doc(hidden)]
pub fn aside_of(to: &Path, pid: u32) -> PathBuf {
    let name = to.file_name().unwrap_or_default().as_bytes();
    to.with_file_name(temporary_name(name, pid, 0))
}

/// Returns the names of an output that other tasks have written to its destination.
pub(in crate::agent) async fn taken_here(
    claims: &Reservations,
    work: &Path,
    output: &LocalCopy,
) -> Result<TakenNames, String> {
    let (work, from) = (work.to_owned(), output.from.clone());
    let files = tokio::task::spawn_blocking(move || {
        let found = work.canonicalize().ok().map(|work| gather(&work, &from));
        // Errors are reported by the copy.
        match found {
            Some(Ok(Some(found))) => contents(&found),
            _ => BTreeMap::new(),
        }
    });
    let files = files.await.map_err(|_| "collecting its files failed".to_owned())?;
    let to = output.to.to_string_lossy();
    let (to, deadline) = (to.trim_end_matches('/'), Instant::now() + NAMES_MAX);
    let taken = claims.names(None, &output.from, to, files, deadline).await;
    taken.map_err(|trouble| trouble.sentence())
}
