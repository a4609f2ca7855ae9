//! Publishes a master's address, the job's history and its result in HDFS, where they outlive the node.
//!
//! The history is first written to a local file and copied from there, so that an unavailable file system
//! blocks nothing. A new master rewrites the same history from the journal and continues where the file in HDFS
//! ends.

use super::diary::is_replaced;
use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};
use ydl_proto::files::{JobDir, Whereabouts};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobPlace, Writer, layout};

/// Maximum delay of published history.
const LAG: Duration = Duration::from_secs(1);
/// Retry delay after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// Maximum delay between attempts to publish the address.
const ANNOUNCE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Timeout of one attempt.
const STEP_MAX: Duration = Duration::from_secs(30);
/// Time limit for the final history and the result.
const LAST_MAX: Duration = Duration::from_secs(90);
const PIECE_BYTES: usize = 1 << 20;
/// Readable by all users that may access the job's directory.
const PERMISSION: u32 = layout::FILE;

/// Publishes the history and the result of a job.
#[derive(Debug)]
pub(super) struct Ashore {
    hdfs: Hdfs,
    place: JobPlace,
    stop: oneshot::Sender<()>,
    carrying: JoinHandle<()>,
}

impl Ashore {
    /// Starts to copy the history of the job in `dir`.
    pub(super) fn begin(hdfs: Hdfs, place: JobPlace, attempt: u32, dir: &JobDir) -> Ashore {
        let (stop, stopped) = oneshot::channel();
        let facts = Facts {
            hdfs: hdfs.clone(),
            place: place.clone(),
            attempt,
            file: File::open(dir.events_file()),
            writer: None,
            carried: 0,
        };
        Ashore { hdfs, place, stop, carrying: tokio::spawn(facts.carry(stopped)) }
    }

    /// Publishes the address of this master.
    pub(super) async fn announce(
        hdfs: &Hdfs,
        place: &JobPlace,
        whereabouts: &Whereabouts,
    ) -> Result<(), HdfsError> {
        let bytes = serde_json::to_vec_pretty(whereabouts).unwrap_or_default();
        let deadline = Instant::now() + STEP_MAX;
        hdfs.write_whole(&place.master(), bytes, PERMISSION, deadline).await
    }

    /// Retries to publish the address: agents have no other way to find a new master. Stops when a later master
    /// takes over.
    pub(super) async fn announce_later(hdfs: Hdfs, place: JobPlace, whereabouts: Whereabouts) {
        let mut pause = LAG;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ANNOUNCE_PAUSE_MAX);
            let deadline = Instant::now() + STEP_MAX;
            let replaced = is_replaced(&hdfs, &place, whereabouts.attempt, deadline).await;
            let told = match replaced {
                Ok(true) => return,
                Ok(false) => Ashore::announce(&hdfs, &place, &whereabouts).await,
                Err(error) => Err(error),
            };
            match told {
                Ok(()) => return tracing::info!("agents find this master now"),
                Err(error) => tracing::warn!("agents do not find this master yet: {error}"),
            }
        }
    }

    /// Publishes the final history and the result, before the outcome is reported.
    pub(super) async fn end(self, dir: &JobDir) {
        // The receiver is gone only if copying failed.
        let _ = self.stop.send(());
        let deadline = Instant::now() + LAST_MAX;
        if tokio::time::timeout_at(deadline, self.carrying).await.is_err() {
            tracing::error!("the last facts could not be kept in time");
        }
        let result = match std::fs::read(dir.result_file()) {
            Ok(result) => result,
            Err(error) => {
                tracing::error!("there is no result to be kept: {error}");
                return;
            }
        };
        let place = self.place.result();
        loop {
            let step = (Instant::now() + STEP_MAX).min(deadline);
            let kept = self.hdfs.write_whole(&place, result.clone(), PERMISSION, step);
            match kept.await {
                Ok(()) => return,
                Err(error) if error.may_pass() && Instant::now() + LAG < deadline => {
                    tracing::warn!("the result cannot be kept yet: {error}");
                    tokio::time::sleep(LAG).await;
                }
                Err(error) => {
                    tracing::error!("the result cannot be kept: {error}");
                    return;
                }
            }
        }
    }
}

struct Facts {
    hdfs: Hdfs,
    place: JobPlace,
    attempt: u32,
    file: io::Result<File>,
    writer: Option<Writer>,
    /// Bytes that are in HDFS already.
    carried: u64,
}

impl Facts {
    async fn carry(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut pause = LAG;
        loop {
            let last = timeout(pause, &mut stopped).await.is_ok();
            pause = LAG;
            match self.carry_new().await {
                Ok(()) if last => break,
                Ok(()) => {}
                Err(why) => {
                    tracing::warn!("the facts cannot be kept: {why}");
                    self.writer = None;
                    if last {
                        // Retry once, from the end of the file in HDFS.
                        if let Err(why) = self.carry_new().await {
                            tracing::error!("the last facts cannot be kept: {why}");
                        }
                        break;
                    }
                    pause = PAUSE;
                }
            }
        }
        if let Some(writer) = self.writer
            && let Err(error) = writer.close(Instant::now() + STEP_MAX).await
        {
            tracing::warn!("the facts are there, but not closed: {error}");
        }
    }

    async fn carry_new(&mut self) -> Result<(), String> {
        let file = match &self.file {
            Ok(file) => file,
            Err(error) => return Err(error.to_string()),
        };
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        if length == self.carried && self.writer.is_some() {
            return Ok(());
        }
        let deadline = Instant::now() + STEP_MAX;
        if self.writer.is_none() {
            let (writer, carried) = self.open(length, deadline).await?;
            (self.writer, self.carried) = (Some(writer), carried);
        }
        let (Some(writer), Ok(file)) = (&mut self.writer, &self.file) else {
            return Ok(());
        };
        let mut piece = vec![0; PIECE_BYTES];
        while self.carried < length {
            let got = file.read_at(&mut piece, self.carried).map_err(|e| e.to_string())?;
            if got == 0 {
                break;
            }
            let bytes = piece[..got].to_vec();
            writer.write(bytes, deadline).await.map_err(|e| e.what)?;
            self.carried += got as u64;
        }
        writer.sync(deadline).await.map_err(|e| e.what)
    }

    /// Continues at the end of the file, or creates it.
    async fn open(&self, length: u64, deadline: Instant) -> Result<(Writer, u64), String> {
        let failed = |error: HdfsError| error.what;
        let Facts { hdfs, place, .. } = self;
        let there = place.events();
        if hdfs.stat(&there, deadline).await.map_err(failed)?.is_some() {
            // Another master writes the same events, but must keep its lease on the file.
            if is_replaced(hdfs, place, self.attempt, deadline).await.map_err(failed)? {
                return Err("another master has taken over".to_owned());
            }
            hdfs.recover(&there, deadline).await.map_err(failed)?;
            let written =
                hdfs.stat(&there, deadline).await.map_err(failed)?.map_or(0, |it| it.bytes);
            if written <= length
                && let Ok(writer) = hdfs.append(&there, deadline).await
            {
                return Ok((writer, written));
            }
            hdfs.delete(&there, deadline).await.map_err(failed)?;
        }
        let writer = hdfs.create(&there, PERMISSION, deadline).await.map_err(failed)?;
        Ok((writer, 0))
    }
}
