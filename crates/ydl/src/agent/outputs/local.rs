//! Outputs that go to this disk.

use super::{Reservations, collect::gather, reservations::contents};
use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_storage::data::named;

/// How long looking at the names of others may take on this machine.
const NAMES_MAX: Duration = Duration::from_secs(60);

/// One output on its way to a place on this disk.
#[derive(Clone, Debug)]
pub(in crate::agent) struct LocalCopy {
    pub(in crate::agent) from: String,
    pub(in crate::agent) to: PathBuf,
    pub(in crate::agent) existing: ExistingPolicy,
    /// Whether it was kept up to date while its program ran: then names that begin with a dot are left to the program.
    pub(in crate::agent) kept: bool,
    /// Whether others of the job send to the same place.
    pub(in crate::agent) shared: bool,
}

/// Names that others of the job have written, and who they are.
pub(in crate::agent) type TakenNames = BTreeMap<String, String>;

/// The name that a file has while a process of that number on this machine writes it.
#[doc(hidden)]
pub fn aside_of(to: &Path, pid: u32) -> PathBuf {
    let name = to.file_name().unwrap_or_default().as_bytes();
    to.with_file_name(named(name, pid, 0))
}

/// Which names of an output others of the job have written to its place.
pub(in crate::agent) async fn taken_here(
    claims: &Reservations,
    work: &Path,
    output: &LocalCopy,
) -> Result<TakenNames, String> {
    let (work, from) = (work.to_owned(), output.from.clone());
    let files = tokio::task::spawn_blocking(move || {
        let found = work.canonicalize().ok().map(|work| gather(&work, &from));
        // What is wrong with it is said when it is copied.
        match found {
            Some(Ok(Some(found))) => contents(&found),
            _ => BTreeMap::new(),
        }
    });
    let files = files.await.map_err(|_| "looking at it failed".to_owned())?;
    let to = output.to.to_string_lossy();
    let (to, deadline) = (to.trim_end_matches('/'), Instant::now() + NAMES_MAX);
    let taken = claims.names(None, &output.from, to, files, deadline).await;
    taken.map_err(|trouble| trouble.sentence())
}
