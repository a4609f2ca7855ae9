//! Ships one attempt to HDFS: its log streams while they grow, then its exit record.

use super::{clients::HdfsClients, log_stream::LogStream};
use crate::agent::{output::Rotation, record};
use bytes::Bytes;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use ydl_storage::hdfs::{Hdfs, HdfsError, layout};

/// Minimum and maximum delay of the logs in HDFS while a program prints.
const LAG: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Syncs per second of all tasks of a job: each sync is an edit of the one NameNode.
const TURNS_PER_SECOND: u64 = 100;
/// Delay when the container is about to be killed.
const HURRIED_LAG: Duration = Duration::from_millis(20);
/// Minimum and maximum pause between retries while HDFS is unavailable.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Timeout for connecting and for small calls.
const CALL_MAX: Duration = Duration::from_secs(30);

/// Returns the log delay of a job with that many tasks.
pub(super) fn lag(tasks: u64) -> Duration {
    let fair = Duration::from_millis(tasks.saturating_mul(1000) / TURNS_PER_SECOND);
    fair.clamp(LAG.0, LAG.1)
}

/// Handle of an attempt whose logs are shipped. Dropping it ends the attempt without an exit record.
#[derive(Debug)]
pub(in crate::agent) struct LogShipperHandle {
    over: watch::Sender<AttemptEnd>,
}

/// End of an attempt: whether the program has ended, and its exit record.
#[derive(Clone, Debug, Default)]
struct AttemptEnd {
    is_over: bool,
    record: Option<Bytes>,
}

impl LogShipperHandle {
    /// Reports that the program has ended and that all of its output is on disk.
    pub(in crate::agent) fn over(self, record: Option<Vec<u8>>) {
        let record = record.map(Bytes::from);
        // The receiver is gone if the shipper was aborted.
        let _ = self.over.send(AttemptEnd { is_over: true, record });
    }
}

/// Ships the logs of one attempt from the local disk to HDFS.
#[derive(Debug)]
pub(super) struct LogShipper {
    ways: Arc<HdfsClients>,
    remote: String,
    streams: [LogStream; 2],
    lag: Duration,
    over: watch::Receiver<AttemptEnd>,
    hurry: watch::Receiver<bool>,
    /// Set once the remote directory exists and is empty.
    made: bool,
    hurried: bool,
}

impl LogShipper {
    pub(super) fn new(
        ways: Arc<HdfsClients>,
        local: PathBuf,
        remote: String,
        rotation: Rotation,
        lag: Duration,
        hurry: watch::Receiver<bool>,
    ) -> (LogShipper, LogShipperHandle) {
        let (over, told) = watch::channel(AttemptEnd::default());
        let stream = |name| LogStream::new(local.clone(), name, remote.clone(), rotation);
        let attempt = LogShipper {
            ways,
            streams: [stream("stdout"), stream("stderr")],
            remote,
            lag,
            over: told,
            hurry,
            made: false,
            hurried: false,
        };
        (attempt, LogShipperHandle { over })
    }

    /// Ships until everything has arrived. Retries while HDFS is unavailable.
    pub(super) async fn carry(mut self) {
        let mut retry = RETRY_MIN;
        let mut told = None;
        loop {
            // Read first, so that output printed before the end is shipped after it.
            let is_over = self.over.borrow().is_over || self.over.has_changed().is_err();
            let pause = match self.turn(is_over).await {
                Ok(ShipStep::Complete) => return,
                Ok(ShipStep::More) => Duration::ZERO,
                Ok(ShipStep::Idle) => {
                    if told.take().is_some() {
                        tracing::info!("shipping logs to `{}` again", self.remote);
                    }
                    retry = RETRY_MIN;
                    self.lag
                }
                Err(error) => {
                    if told != Some(error.kind) {
                        tracing::warn!("cannot ship logs: {error}");
                    }
                    told = Some(error.kind);
                    if is_over && !error.is_transient() && retry == RETRY_MAX {
                        tracing::warn!("logs stay incomplete: {error}");
                        return;
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                    retry
                }
            };
            let pause = match *self.hurry.borrow() {
                true => pause.min(HURRIED_LAG),
                false => pause,
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = changed(&mut self.over), if !is_over => {}
                () = changed(&mut self.hurry) => {}
            }
        }
    }

    async fn turn(&mut self, is_over: bool) -> Result<ShipStep, HdfsError> {
        let hdfs = self.ways.to(&self.remote, soon()).await?;
        self.make_directory(&hdfs).await?;
        if *self.hurry.borrow() && !std::mem::replace(&mut self.hurried, true) {
            self.streams.iter_mut().for_each(LogStream::hurry);
        }
        let [stdout, stderr] = &mut self.streams;
        // Concurrently: when time is short, neither stream waits for the other.
        let (first, second) = tokio::join!(stdout.carry(&hdfs), stderr.carry(&hdfs));
        match (first? && second?, is_over) {
            (false, _) => Ok(ShipStep::More),
            (true, false) => Ok(ShipStep::Idle),
            (true, true) => {
                // A reader that finds the record may rely on complete, closed streams.
                let [stdout, stderr] = &mut self.streams;
                let (first, second) = tokio::join!(stdout.close(&hdfs), stderr.close(&hdfs));
                first.and(second)?;
                let record = self.over.borrow().record.clone();
                if let Some(bytes) = record {
                    let place = format!("{}/{}", self.remote, record::FILE);
                    hdfs.write_atomic(&place, bytes, layout::FILE, soon()).await?;
                }
                Ok(ShipStep::Complete)
            }
        }
    }

    /// Creates the attempt's directory. Removes files of an earlier program of the same attempt.
    async fn make_directory(&mut self, hdfs: &Hdfs) -> Result<(), HdfsError> {
        if !self.made {
            hdfs.delete(&self.remote, soon()).await?;
            hdfs.mkdirs(&self.remote, layout::DIRECTORY, soon()).await?;
            self.made = true;
        }
        Ok(())
    }
}

enum ShipStep {
    /// More output is available now.
    More,
    /// Nothing to ship for now.
    Idle,
    /// No further output will come.
    Complete,
}

/// Waits for a change; forever if the sender is gone.
async fn changed<T>(of: &mut watch::Receiver<T>) {
    if of.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn soon() -> Instant {
    Instant::now() + CALL_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_delay_grows_with_the_number_of_tasks() {
        assert_eq!(lag(1), Duration::from_secs(1));
        assert_eq!(lag(100), Duration::from_secs(1));
        assert_eq!(lag(2000), Duration::from_secs(20));
        assert_eq!(lag(u64::MAX), Duration::from_secs(30));
    }
}
