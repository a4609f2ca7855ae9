//! Publishes a master's address, the job's history and its result in HDFS, where they outlive the node.
//!
//! The history is first written to a local file and copied from there, so that an unavailable file system
//! blocks nothing. A new master rewrites the same history from the journal and continues where the file in HDFS
//! ends.

use super::journal::is_replaced;
use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};
use ydl_proto::{
    files::{JobDir, MasterAddress},
    version::to_json,
};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobLayout, Writer, layout};

/// Maximum delay of published history.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Retry delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum delay between attempts to publish the address.
const ADDRESS_RETRY_MAX: Duration = Duration::from_secs(10);
/// Timeout of one attempt.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the final history and the result.
const FINAL_TIMEOUT: Duration = Duration::from_secs(90);
const CHUNK_BYTES: usize = 1 << 20;
/// Readable by all users that may access the job's directory.
const PERMISSION: u32 = layout::FILE;

/// Publishes the history and the result of a job.
#[derive(Debug)]
pub(super) struct HdfsPublisher {
    hdfs: Hdfs,
    layout: JobLayout,
    stop: oneshot::Sender<()>,
    copying: JoinHandle<()>,
}

impl HdfsPublisher {
    /// Starts to copy the history of the job in `dir`.
    pub(super) fn start(
        hdfs: Hdfs,
        layout: JobLayout,
        attempt: u32,
        dir: &JobDir,
    ) -> HdfsPublisher {
        let (stop, stopped) = oneshot::channel();
        let copier = HistoryCopier {
            hdfs: hdfs.clone(),
            layout: layout.clone(),
            attempt,
            file: File::open(dir.history_file()),
            writer: None,
            copied: 0,
        };
        HdfsPublisher { hdfs, layout, stop, copying: tokio::spawn(copier.copy(stopped)) }
    }

    /// Publishes the address of this master.
    pub(super) async fn publish_address(
        hdfs: &Hdfs,
        layout: &JobLayout,
        address: &MasterAddress,
    ) -> Result<(), HdfsError> {
        let bytes = to_json(address).unwrap_or_default();
        let deadline = Instant::now() + STEP_TIMEOUT;
        hdfs.write_atomic(&layout.master(), bytes, PERMISSION, deadline).await
    }

    /// Retries to publish the address: agents have no other way to find a new master. Stops when a later master
    /// takes over.
    pub(super) async fn retry_publish_address(
        hdfs: Hdfs,
        layout: JobLayout,
        address: MasterAddress,
    ) {
        let mut delay = PUBLISH_INTERVAL;
        loop {
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(ADDRESS_RETRY_MAX);
            let deadline = Instant::now() + STEP_TIMEOUT;
            let replaced = is_replaced(&hdfs, &layout, address.attempt, deadline).await;
            let published = match replaced {
                Ok(true) => return,
                Ok(false) => HdfsPublisher::publish_address(&hdfs, &layout, &address).await,
                Err(error) => Err(error),
            };
            match published {
                Ok(()) => return tracing::info!("published the address of this master"),
                Err(error) => {
                    tracing::warn!("cannot publish the address of this master yet: {error}")
                }
            }
        }
    }

    /// Publishes the final history and the result, before the outcome is reported.
    pub(super) async fn end(self, dir: &JobDir) {
        // The receiver is gone only if copying failed.
        let _ = self.stop.send(());
        let deadline = Instant::now() + FINAL_TIMEOUT;
        if tokio::time::timeout_at(deadline, self.copying).await.is_err() {
            tracing::error!("timed out publishing the final history");
        }
        let result = match std::fs::read(dir.result_file()) {
            Ok(result) => result,
            Err(error) => {
                tracing::error!("cannot read the result: {error}");
                return;
            }
        };
        let path = self.layout.result();
        loop {
            let step = (Instant::now() + STEP_TIMEOUT).min(deadline);
            let write = self.hdfs.write_atomic(&path, result.clone(), PERMISSION, step);
            match write.await {
                Ok(()) => return,
                Err(error)
                    if error.is_transient() && Instant::now() + PUBLISH_INTERVAL < deadline =>
                {
                    tracing::warn!("cannot publish the result yet: {error}");
                    tokio::time::sleep(PUBLISH_INTERVAL).await;
                }
                Err(error) => {
                    tracing::error!("cannot publish the result: {error}");
                    return;
                }
            }
        }
    }
}

struct HistoryCopier {
    hdfs: Hdfs,
    layout: JobLayout,
    attempt: u32,
    file: io::Result<File>,
    writer: Option<Writer>,
    /// Bytes that are in HDFS already.
    copied: u64,
}

impl HistoryCopier {
    async fn copy(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut delay = PUBLISH_INTERVAL;
        loop {
            let last = timeout(delay, &mut stopped).await.is_ok();
            delay = PUBLISH_INTERVAL;
            match self.copy_new().await {
                Ok(()) if last => break,
                Ok(()) => {}
                Err(why) => {
                    tracing::warn!("cannot publish the history: {why}");
                    self.writer = None;
                    if last {
                        // Retry once, from the end of the file in HDFS.
                        if let Err(why) = self.copy_new().await {
                            tracing::error!("cannot publish the final history: {why}");
                        }
                        break;
                    }
                    delay = RETRY_DELAY;
                }
            }
        }
        if let Some(writer) = self.writer
            && let Err(error) = writer.close(Instant::now() + STEP_TIMEOUT).await
        {
            tracing::warn!("cannot close the published history: {error}");
        }
    }

    async fn copy_new(&mut self) -> Result<(), String> {
        let file = match &self.file {
            Ok(file) => file,
            Err(error) => return Err(error.to_string()),
        };
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        if length == self.copied && self.writer.is_some() {
            return Ok(());
        }
        let deadline = Instant::now() + STEP_TIMEOUT;
        if self.writer.is_none() {
            let (writer, copied) = self.open(length, deadline).await?;
            (self.writer, self.copied) = (Some(writer), copied);
        }
        let (Some(writer), Ok(file)) = (&mut self.writer, &self.file) else {
            return Ok(());
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.copied < length {
            let got = file.read_at(&mut chunk, self.copied).map_err(|e| e.to_string())?;
            if got == 0 {
                break;
            }
            let bytes = chunk[..got].to_vec();
            writer.write(bytes, deadline).await.map_err(|e| e.what)?;
            self.copied += got as u64;
        }
        writer.sync(deadline).await.map_err(|e| e.what)
    }

    /// Continues at the end of the file, or creates it.
    async fn open(&self, length: u64, deadline: Instant) -> Result<(Writer, u64), String> {
        let failed = |error: HdfsError| error.what;
        let HistoryCopier { hdfs, layout, .. } = self;
        let path = layout.events();
        if hdfs.stat(&path, deadline).await.map_err(failed)?.is_some() {
            // Another master writes the same events, but must keep its lease on the file.
            if is_replaced(hdfs, layout, self.attempt, deadline).await.map_err(failed)? {
                return Err("another master has taken over".to_owned());
            }
            hdfs.recover(&path, deadline).await.map_err(failed)?;
            let written =
                hdfs.stat(&path, deadline).await.map_err(failed)?.map_or(0, |it| it.bytes);
            if written <= length
                && let Ok(writer) = hdfs.append(&path, deadline).await
            {
                return Ok((writer, written));
            }
            hdfs.delete(&path, deadline).await.map_err(failed)?;
        }
        let writer = hdfs.create(&path, PERMISSION, deadline).await.map_err(failed)?;
        Ok((writer, 0))
    }
}
