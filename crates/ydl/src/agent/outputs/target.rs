//! Destination of an output, and uploads of single files to it: to a temporary name that is renamed when complete.

use super::{
    collect::{OutputFile, OutputFiles},
    upload_log::FileStamp,
};
use crate::agent::shipping::HdfsClients;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use ydl_os::reason;
use ydl_storage::{
    data::DataError,
    hdfs::HdfsError,
    store::{FileEntry, FileStore, Store, remove_abandoned},
};

/// Timeout for the removal of temporary files.
pub(super) const REMOVE_MAX: Duration = Duration::from_secs(60);

/// Error of an upload.
#[derive(Debug)]
pub(super) struct UploadError {
    /// Source and target of the affected file.
    file: Option<(String, String)>,
    pub(super) why: String,
    pub(super) is_transient: bool,
}

impl From<DataError> for UploadError {
    fn from(error: DataError) -> UploadError {
        let is_transient = error.is_transient();
        // The prefix of a store's error has the temporary name, which means nothing to the user. Its hint is about the
        // staging directory.
        let why = match error.what.split_once("`: ") {
            Some((_, why)) => why.to_owned(),
            None => error.sentence(),
        };
        UploadError { file: None, why, is_transient }
    }
}

impl From<HdfsError> for UploadError {
    fn from(error: HdfsError) -> UploadError {
        DataError::from(error).into()
    }
}

impl UploadError {
    pub(super) fn lasting(why: impl Into<String>) -> UploadError {
        UploadError { file: None, why: why.into(), is_transient: false }
    }

    /// Adds the affected file.
    pub(super) fn of(self, item: &OutputFile, target: &str) -> UploadError {
        UploadError { file: Some((item.from.display().to_string(), target.to_owned())), ..self }
    }

    /// Returns the error in one sentence, which names the affected file or the output.
    pub(super) fn sentence(self, from: &str, to: &str) -> String {
        let (from, to) = self.file.unwrap_or_else(|| (from.to_owned(), to.to_owned()));
        format!("cannot copy `{from}` to `{to}`: {}", self.why)
    }
}

/// Destination of one output's files.
#[derive(Debug)]
pub(super) struct UploadTarget {
    pub(super) store: Store,
    pub(super) base: String,
    /// State of the destination before the upload.
    pub(super) there: Option<FileEntry>,
    /// Set if files go into a directory of that name.
    into: bool,
    /// Owner of temporary files.
    owner: String,
    /// Directories that exist and were cleaned of temporary files.
    ready: BTreeSet<String>,
}

impl UploadTarget {
    /// Looks up the destination of an output.
    pub(super) async fn find(
        stores: &HdfsClients,
        to: &str,
        single: bool,
        owner: &str,
        deadline: Instant,
    ) -> Result<UploadTarget, UploadError> {
        let store = stores.store(to, deadline).await?;
        let base = to.trim_end_matches('/').to_owned();
        let there = store.stat(&base, deadline).await?;
        let into =
            !single || to.ends_with('/') || there.as_ref().is_some_and(|entry| entry.directory);
        let owner = owner.to_owned();
        Ok(UploadTarget { store, base, there, into, owner, ready: BTreeSet::new() })
    }

    /// Returns the target of a file.
    pub(super) fn of(&self, name: &str) -> String {
        match self.into {
            true => format!("{}/{name}", self.base),
            false => self.base.clone(),
        }
    }

    /// Creates the directory of a target, and removes temporary files that this task's earlier attempts or dead processes
    /// have left there. Returns a temporary name beside the target.
    pub(super) async fn temporary(
        &mut self,
        target: &str,
        deadline: Instant,
    ) -> Result<String, UploadError> {
        let (dir, _) = target.rsplit_once('/').unwrap_or((target, ""));
        if !self.ready.contains(dir) {
            // The parent of a name in the root directory.
            let place = if dir.is_empty() { "/" } else { dir };
            self.store.make_dirs(place, None, deadline).await?;
            remove_abandoned(&*self.store, place, &self.owner, deadline).await;
            self.ready.insert(dir.to_owned());
        }
        Ok(self.store.temporary(target, &self.owner)?)
    }

    /// Creates the directories of an output below `base`.
    pub(super) async fn make_dirs(
        &self,
        found: &OutputFiles,
        base: &str,
        deadline: Instant,
    ) -> Result<(), UploadError> {
        for (name, mode) in &found.dirs {
            self.store.make_dirs(&format!("{base}/{name}"), Some(*mode), deadline).await?;
        }
        Ok(())
    }
}

/// One file on its way to its target.
#[derive(Clone, Debug)]
pub(super) struct FileUpload {
    pub(super) item: OutputFile,
    pub(super) temporary: String,
    pub(super) target: String,
}

impl FileUpload {
    /// Uploads the file to its temporary name; with a stamp, if it matches that before and after. Returns its length.
    pub(super) async fn send(
        &self,
        store: &dyn FileStore,
        stamp: Option<FileStamp>,
        deadline: Instant,
    ) -> Result<u64, UploadError> {
        let sent = async {
            if let Some(link) = &self.item.link {
                store.link(&link.target, &self.temporary).await?;
                return Ok(0);
            }
            let file = open(&self.item, stamp).await?;
            self.send_open(store, file, stamp, deadline).await
        };
        let sent = sent.await;
        if sent.is_err() {
            self.discard(store).await;
        }
        sent.map_err(|error: UploadError| error.of(&self.item, &self.target))
    }

    /// Uploads an open file to the temporary name, which an error leaves behind.
    pub(super) async fn send_open(
        &self,
        store: &dyn FileStore,
        file: File,
        stamp: Option<FileStamp>,
        deadline: Instant,
    ) -> Result<u64, UploadError> {
        let file = Arc::new(file);
        let sending = store.upload(file.clone(), &self.temporary, self.item.mode, deadline);
        let bytes = sending.await?;
        match stamp.is_none_or(|stamp| stamp.is_of(&file)) {
            true => Ok(bytes),
            false => Err(UploadError::lasting("it changed during the upload")),
        }
    }

    /// Renames the temporary file, atomically replacing an existing target.
    pub(super) async fn finish(
        &self,
        store: &dyn FileStore,
        deadline: Instant,
    ) -> Result<(), UploadError> {
        let Err(error) = store.replace(&self.temporary, &self.target, deadline).await else {
            return Ok(());
        };
        self.discard(store).await;
        let error = match store.stat(&self.target, deadline).await {
            Ok(Some(entry)) if entry.directory => {
                UploadError::lasting("the destination is a directory")
            }
            _ => error.into(),
        };
        Err(error.of(&self.item, &self.target))
    }

    /// Deletes the temporary file. Returns false if it may still be there.
    pub(super) async fn discard(&self, store: &dyn FileStore) -> bool {
        discard(store, &self.temporary).await
    }
}

/// Deletes a temporary file or directory. Returns false if it may still be there.
pub(super) async fn discard(store: &dyn FileStore, temporary: &str) -> bool {
    let deleted = store.delete(temporary, Instant::now() + REMOVE_MAX).await;
    if let Err(error) = &deleted {
        tracing::warn!("cannot remove a temporary file: {}", error.what);
    }
    deleted.is_ok()
}

/// Opens a source on a blocking thread.
async fn open(item: &OutputFile, stamp: Option<FileStamp>) -> Result<File, UploadError> {
    let from = item.from.clone();
    let opened = spawn_blocking(move || match stamp {
        Some(stamp) => stamp.open(&from),
        None => File::open(&from),
    });
    let unreadable = |error: io::Error| UploadError::lasting(reason(&error));
    opened.await.map_err(io::Error::other).and_then(|opened| opened).map_err(unreadable)
}
