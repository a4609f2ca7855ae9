//! Files of one file system behind one trait, so that outputs and reservations are written once for all of them.
//!
//! * `local`: files of this machine. `hdfs`: files in HDFS.
//! * `temporary`: temporary names on a local disk.

mod hdfs;
mod local;
mod temporary;

pub use local::LocalStore;
pub use temporary::{ABANDONED_AGE, temporary_name};

use crate::{
    data::DataError,
    hdfs::{FileSystems, Hdfs},
};
use bytes::Bytes;
use std::{
    fmt,
    fs::File,
    path::Path,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;
use ydl_os::report::Report;

/// Result of a call that is under way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DataError>> + Send + 'a>>;

/// Shared handle of a file system.
pub type Store = Arc<dyn FileStore>;

/// File or directory of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its path or URL.
    pub path: String,
    /// True for a directory, or a link to one.
    pub directory: bool,
    /// True for a symbolic link. A dangling one is a file without bytes.
    pub link: bool,
    /// Length in bytes.
    pub bytes: u64,
    /// Modification time in ms since 1970, of the link itself if it is one.
    pub modified_ms: u64,
}

impl FileEntry {
    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns true if it was not modified for that time.
    pub fn is_older_than(&self, age: Duration) -> bool {
        let modified = UNIX_EPOCH + Duration::from_millis(self.modified_ms);
        SystemTime::now().duration_since(modified).is_ok_and(|is| is > age)
    }
}

/// Files of this machine or of a file system in HDFS. Paths are absolute paths or URLs.
///
/// A deadline bounds calls over the network. Calls to a local disk end when the disk answers.
pub trait FileStore: fmt::Debug + Send + Sync {
    /// Returns the file or directory at a path, if any. Follows links.
    fn stat<'a>(&'a self, path: &'a str, deadline: Instant) -> Pending<'a, Option<FileEntry>>;

    /// Lists a directory; empty if it does not exist.
    fn list<'a>(&'a self, dir: &'a str, deadline: Instant) -> Pending<'a, Vec<FileEntry>>;

    /// Creates a directory and its parents. One that exists keeps its permission bits.
    fn make_dirs<'a>(
        &'a self,
        dir: &'a str,
        mode: Option<u32>,
        deadline: Instant,
    ) -> Pending<'a, ()>;

    /// Copies an open file to a temporary name, syncs it, and returns its length.
    fn upload<'a>(
        &'a self,
        source: Arc<File>,
        temporary: &'a str,
        mode: u32,
        deadline: Instant,
    ) -> Pending<'a, u64>;

    /// Creates a symbolic link of a temporary name. Not every store has links.
    fn link<'a>(&'a self, target: &'a Path, temporary: &'a str) -> Pending<'a, ()>;

    /// Renames a file or directory; false if the new name is taken.
    fn rename<'a>(&'a self, from: &'a str, to: &'a str, deadline: Instant) -> Pending<'a, bool>;

    /// Renames a file, atomically replacing one of the new name.
    fn replace<'a>(&'a self, from: &'a str, to: &'a str, deadline: Instant) -> Pending<'a, ()>;

    /// Deletes a file, or a directory with its content; false if there is none.
    fn delete<'a>(&'a self, path: &'a str, deadline: Instant) -> Pending<'a, bool>;

    /// Reads a file of limited length, if it exists.
    fn read<'a>(
        &'a self,
        path: &'a str,
        bytes_max: u64,
        deadline: Instant,
    ) -> Pending<'a, Option<Bytes>>;

    /// Writes a small file atomically.
    fn write<'a>(&'a self, path: &'a str, bytes: Bytes, deadline: Instant) -> Pending<'a, ()>;

    /// Writes a small file atomically unless it exists; false if it does.
    fn write_if_absent<'a>(
        &'a self,
        path: &'a str,
        bytes: Bytes,
        deadline: Instant,
    ) -> Pending<'a, bool>;

    /// Returns a unique temporary name beside a path, for an upload by that owner.
    fn temporary(&self, path: &str, owner: &str) -> Result<String, DataError>;

    /// Returns true for a temporary file of a writer that has ended: an earlier one of that owner, or another one as far
    /// as that is known.
    fn is_abandoned(&self, entry: &FileEntry, owner: &str) -> bool;
}

/// Removes abandoned temporary files from a directory. A leftover does no harm.
pub async fn remove_abandoned(store: &dyn FileStore, dir: &str, owner: &str, deadline: Instant) {
    // A directory that cannot be listed may still be writable.
    for entry in store.list(dir, deadline).await.unwrap_or_default() {
        if store.is_abandoned(&entry, owner)
            && let Err(error) = store.delete(&entry.path, deadline).await
        {
            tracing::warn!("cannot remove a temporary file: {}", error.what);
        }
    }
}

/// Returns true for a path on a local disk, false for a URL.
pub fn is_local(place: &str) -> bool {
    !place.contains("://")
}

/// Returns the store of a path or URL. URLs need `file_systems`.
pub async fn store_of(
    place: &str,
    file_systems: Option<&FileSystems>,
    deadline: Instant,
) -> Result<Store, Report> {
    match hdfs_of(place, file_systems, deadline).await? {
        Some(hdfs) => Ok(Arc::new(hdfs)),
        None => Ok(Arc::new(LocalStore)),
    }
}

/// Returns the file system of a URL, and none for a path of this machine.
pub(crate) async fn hdfs_of(
    place: &str,
    file_systems: Option<&FileSystems>,
    deadline: Instant,
) -> Result<Option<Hdfs>, Report> {
    match file_systems {
        _ if is_local(place) => Ok(None),
        Some(file_systems) => Ok(Some(file_systems.to(place, deadline).await?)),
        None => {
            let what = format!("`{place}` is in HDFS, and there is no Hadoop configuration for it");
            let hint = "set `HADOOP_CONF_DIR` to the directory with `core-site.xml`";
            Err(Report::bad_input(what).hint(hint))
        }
    }
}
