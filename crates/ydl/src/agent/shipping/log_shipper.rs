//! One attempt: its streams while they grow, then how it ended.

use super::{clients::HdfsClients, log_stream::LogStream};
use crate::agent::{output::Rotation, record};
use bytes::Bytes;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use ydl_storage::hdfs::{Hdfs, HdfsError, layout};

/// How far behind the logs in HDFS are while a program prints, at least and at most.
const LAG: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Every sync is a change to be written down by the one NameNode: a job has it write so often in a second, however many
/// tasks print.
const TURNS_PER_SECOND: u64 = 100;
/// The same when the container is about to be killed.
const HURRIED_LAG: Duration = Duration::from_millis(20);
/// Between two tries while HDFS is away, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long connecting and small calls may take.
const CALL_MAX: Duration = Duration::from_secs(30);

/// How far behind the logs of a job with so many tasks are.
pub(super) fn lag(tasks: u64) -> Duration {
    let fair = Duration::from_millis(tasks.saturating_mul(1000) / TURNS_PER_SECOND);
    fair.clamp(LAG.0, LAG.1)
}

/// An attempt that is being carried, as its agent sees it. Dropped, it is over without a word on how it ended.
#[derive(Debug)]
pub(in crate::agent) struct LogShipperHandle {
    over: watch::Sender<AttemptEnd>,
}

/// Whether the program prints no more, and the record of its end.
#[derive(Clone, Debug, Default)]
struct AttemptEnd {
    is_over: bool,
    record: Option<Bytes>,
}

impl LogShipperHandle {
    /// The program has ended, and everything it printed is on the disk.
    pub(in crate::agent) fn over(self, record: Option<Vec<u8>>) {
        let record = record.map(Bytes::from);
        // Nobody listens when it was given up.
        let _ = self.over.send(AttemptEnd { is_over: true, record });
    }
}

/// What is to be carried from where to where.
#[derive(Debug)]
pub(super) struct LogShipper {
    ways: Arc<HdfsClients>,
    remote: String,
    streams: [LogStream; 2],
    lag: Duration,
    over: watch::Receiver<AttemptEnd>,
    hurry: watch::Receiver<bool>,
    /// Whether the directory is there, and empty at first.
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

    /// Carries until everything is there, however often HDFS goes away meanwhile.
    pub(super) async fn carry(mut self) {
        let mut retry = RETRY_MIN;
        let mut told = None;
        loop {
            // Looked at before, so that what was printed before the end is carried after it.
            let is_over = self.over.borrow().is_over || self.over.has_changed().is_err();
            let pause = match self.turn(is_over).await {
                Ok(ShipStep::Complete) => return,
                Ok(ShipStep::More) => Duration::ZERO,
                Ok(ShipStep::Idle) => {
                    if told.take().is_some() {
                        tracing::info!("logs are written to `{}` again", self.remote);
                    }
                    retry = RETRY_MIN;
                    self.lag
                }
                Err(error) => {
                    if told != Some(error.kind) {
                        tracing::warn!("logs are not written: {error}");
                    }
                    told = Some(error.kind);
                    if is_over && !error.may_pass() && retry == RETRY_MAX {
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
        // Both at once: when time is short, neither must wait for the other.
        let (first, second) = tokio::join!(stdout.carry(&hdfs), stderr.carry(&hdfs));
        match (first? && second?, is_over) {
            (false, _) => Ok(ShipStep::More),
            (true, false) => Ok(ShipStep::Idle),
            (true, true) => {
                // Whoever finds the record finds the streams whole, and what is not closed is not.
                let [stdout, stderr] = &mut self.streams;
                let (first, second) = tokio::join!(stdout.close(&hdfs), stderr.close(&hdfs));
                first.and(second)?;
                let record = self.over.borrow().record.clone();
                if let Some(bytes) = record {
                    let place = format!("{}/{}", self.remote, record::FILE);
                    hdfs.write_whole(&place, bytes, layout::FILE, soon()).await?;
                }
                Ok(ShipStep::Complete)
            }
        }
    }

    /// The attempt's directory, without what an earlier program of the same attempt has left.
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
    /// There is more to carry already.
    More,
    /// Nothing for now.
    Idle,
    /// Nothing will come any more.
    Complete,
}

/// Waits for a change, for ever if none can come.
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
    fn the_more_tasks_print_the_less_often_each_has_the_namenode_write() {
        assert_eq!(lag(1), Duration::from_secs(1));
        assert_eq!(lag(100), Duration::from_secs(1));
        assert_eq!(lag(2000), Duration::from_secs(20));
        assert_eq!(lag(u64::MAX), Duration::from_secs(30));
    }
}
