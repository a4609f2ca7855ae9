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
const DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Syncs per second of all tasks of a job: each sync is an edit of the one NameNode.
const SYNCS_PER_SECOND: u64 = 100;
/// Delay when the container is about to be killed.
const HURRIED_DELAY: Duration = Duration::from_millis(20);
/// Minimum and maximum pause between retries while HDFS is unavailable.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Timeout for connecting and for small calls.
const CALL_MAX: Duration = Duration::from_secs(30);

/// Returns the log delay of a job with that many tasks.
pub(super) fn log_delay(tasks: u64) -> Duration {
    let share = Duration::from_millis(tasks.saturating_mul(1000) / SYNCS_PER_SECOND);
    share.clamp(DELAY.0, DELAY.1)
}

/// Handle of an attempt whose logs are shipped. Dropping it ends the shipping, without an exit record.
#[derive(Debug)]
pub(in crate::agent) struct LogShipperHandle {
    end: watch::Sender<AttemptEnd>,
}

/// End of an attempt: whether the program has ended, and its exit record.
#[derive(Clone, Debug, Default)]
struct AttemptEnd {
    has_ended: bool,
    record: Option<Bytes>,
}

impl LogShipperHandle {
    /// Reports that the program has ended and that all of its output is on disk.
    pub(in crate::agent) fn end(self, record: Option<Vec<u8>>) {
        let record = record.map(Bytes::from);
        // The receiver is gone if the shipper was aborted.
        let _ = self.end.send(AttemptEnd { has_ended: true, record });
    }
}

/// Ships the logs of one attempt from the local disk to HDFS.
#[derive(Debug)]
pub(super) struct LogShipper {
    clients: Arc<HdfsClients>,
    remote: String,
    streams: [LogStream; 2],
    delay: Duration,
    end: watch::Receiver<AttemptEnd>,
    hurry: watch::Receiver<bool>,
    /// Set once the remote directory exists and is empty.
    directory_created: bool,
    hurried: bool,
}

impl LogShipper {
    pub(super) fn new(
        clients: Arc<HdfsClients>,
        local: PathBuf,
        remote: String,
        rotation: Rotation,
        delay: Duration,
        hurry: watch::Receiver<bool>,
    ) -> (LogShipper, LogShipperHandle) {
        let (end, end_rx) = watch::channel(AttemptEnd::default());
        let stream = |name| LogStream::new(local.clone(), name, remote.clone(), rotation);
        let shipper = LogShipper {
            clients,
            streams: [stream("stdout"), stream("stderr")],
            remote,
            delay,
            end: end_rx,
            hurry,
            directory_created: false,
            hurried: false,
        };
        (shipper, LogShipperHandle { end })
    }

    /// Ships until everything has arrived. Retries while HDFS is unavailable.
    pub(super) async fn ship(mut self) {
        let mut retry = RETRY_MIN;
        let mut warned = None;
        loop {
            // Read before the step: if the program has ended, this step sees all of its output.
            let has_ended = self.end.borrow().has_ended || self.end.has_changed().is_err();
            let pause = match self.step(has_ended).await {
                Ok(ShipStep::Complete) => return,
                Ok(ShipStep::More) => Duration::ZERO,
                Ok(ShipStep::Idle) => {
                    if warned.take().is_some() {
                        tracing::info!("shipping logs to `{}` again", self.remote);
                    }
                    retry = RETRY_MIN;
                    self.delay
                }
                Err(error) => {
                    if warned != Some(error.kind) {
                        tracing::warn!("cannot ship logs: {error}");
                    }
                    warned = Some(error.kind);
                    if has_ended && !error.is_transient() && retry == RETRY_MAX {
                        tracing::warn!("logs stay incomplete: {error}");
                        return;
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                    retry
                }
            };
            let pause = match *self.hurry.borrow() {
                true => pause.min(HURRIED_DELAY),
                false => pause,
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = changed(&mut self.end), if !has_ended => {}
                () = changed(&mut self.hurry) => {}
            }
        }
    }

    async fn step(&mut self, has_ended: bool) -> Result<ShipStep, HdfsError> {
        let hdfs = self.clients.to(&self.remote, call_deadline()).await?;
        self.make_directory(&hdfs).await?;
        if *self.hurry.borrow() && !std::mem::replace(&mut self.hurried, true) {
            self.streams.iter_mut().for_each(LogStream::hurry);
        }
        let [stdout, stderr] = &mut self.streams;
        // Concurrently: when time is short, neither stream waits for the other.
        let (first, second) = tokio::join!(stdout.ship(&hdfs), stderr.ship(&hdfs));
        match (first? && second?, has_ended) {
            (false, _) => Ok(ShipStep::More),
            (true, false) => Ok(ShipStep::Idle),
            (true, true) => {
                // A reader that finds the record may rely on complete, closed streams.
                let [stdout, stderr] = &mut self.streams;
                let (first, second) = tokio::join!(stdout.close(&hdfs), stderr.close(&hdfs));
                first.and(second)?;
                let record = self.end.borrow().record.clone();
                if let Some(bytes) = record {
                    let path = format!("{}/{}", self.remote, record::FILE);
                    hdfs.write_atomic(&path, bytes, layout::FILE, call_deadline()).await?;
                }
                Ok(ShipStep::Complete)
            }
        }
    }

    /// Creates the attempt's directory. Removes files of an earlier program of the same attempt.
    async fn make_directory(&mut self, hdfs: &Hdfs) -> Result<(), HdfsError> {
        if !self.directory_created {
            hdfs.delete(&self.remote, call_deadline()).await?;
            hdfs.mkdirs(&self.remote, layout::DIRECTORY, call_deadline()).await?;
            self.directory_created = true;
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
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn call_deadline() -> Instant {
    Instant::now() + CALL_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_delay_grows_with_the_number_of_tasks() {
        assert_eq!(log_delay(1), Duration::from_secs(1));
        assert_eq!(log_delay(100), Duration::from_secs(1));
        assert_eq!(log_delay(2000), Duration::from_secs(20));
        assert_eq!(log_delay(u64::MAX), Duration::from_secs(30));
    }
}
