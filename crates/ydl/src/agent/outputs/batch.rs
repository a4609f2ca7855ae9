//! Several files on their way: first all are uploaded to temporary names, then all are renamed.

use super::target::{FileUpload, REMOVE_MAX, UploadError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use ydl_storage::store::{FileStore, Store};

/// Maximum number of concurrent uploads.
const SIDE_BY_SIDE: usize = 4;

/// Files at their temporary names, each with its length.
type SentFiles = Vec<(FileUpload, u64)>;

/// Files of an output that have their names, and errors of the others.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) failures: Vec<UploadError>,
}

/// Uploads files to their temporary names, a few at a time. Returns errors of single files, or the first one that ends
/// the upload of all, with the files at their temporary names.
pub(super) async fn send_all(
    store: &Store,
    uploads: Vec<FileUpload>,
    is_end: impl Fn(&UploadError) -> bool,
    deadline: Instant,
) -> Result<(SentFiles, Vec<UploadError>), (UploadError, SentFiles)> {
    let (mut done, mut failed, mut end) = (SentFiles::new(), Vec::new(), None);
    let mut sending = JoinSet::new();
    let mut uploads = uploads.into_iter();
    loop {
        while sending.len() < SIDE_BY_SIDE
            && end.is_none()
            && let Some(upload) = uploads.next()
        {
            let store = store.clone();
            sending.spawn(async move {
                let bytes = upload.send(&*store, None, deadline).await?;
                Ok((upload, bytes))
            });
        }
        // Also after an error: a local copy cannot be cancelled.
        let Some(sent) = sending.join_next().await else {
            break;
        };
        match sent.unwrap_or_else(|_| Err(UploadError::lasting("uploading it failed"))) {
            Ok(sent) => done.push(sent),
            Err(error) if end.is_none() && is_end(&error) => end = Some(error),
            Err(error) => failed.push(error),
        }
    }
    match end {
        None => Ok((done, failed)),
        Some(error) => Err((error, done)),
    }
}

/// Renames uploaded files. One conflicting name does not cost the other files.
pub(super) async fn finish_all(
    store: &dyn FileStore,
    done: SentFiles,
    deadline: Instant,
) -> Result<Placed, UploadError> {
    let mut placed = Placed::default();
    for (at, (upload, bytes)) in done.iter().enumerate() {
        match upload.finish(store, deadline).await {
            Ok(()) => {
                placed.files += 1;
                placed.bytes += bytes;
            }
            Err(error) if error.is_transient => {
                discard_all(store, &done[at + 1..]).await;
                return Err(error);
            }
            Err(error) => placed.failures.push(error),
        }
    }
    Ok(placed)
}

/// Deletes temporary files until one cannot be deleted or the time is over. The next attempt removes the others.
pub(super) async fn discard_all(store: &dyn FileStore, sent: &[(FileUpload, u64)]) {
    let discard = async {
        for (upload, _) in sent {
            if !upload.discard(store).await {
                return;
            }
        }
    };
    if timeout(REMOVE_MAX, discard).await.is_err() {
        tracing::warn!("cannot remove all temporary files in time");
    }
}
