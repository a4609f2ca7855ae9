//! Journal in HDFS, where a master on any node finds it.
//!
//! An entry is durable once it is synced to the DataNodes. If a file cannot be written any more, the journal
//! continues in another one, until a time limit. This also fences earlier masters: a new master first creates
//! its own file, then revokes the leases of all earlier files, then reads them. So if a master creates a file,
//! writes to it and then sees no file of a later master, every later master will read what it wrote.

use super::{Diary, Record, parts::Beginning, take_over::is_replaced};
use crate::{
    backend::Fenced,
    master::journal::{RECORD_BYTES_MAX, format},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobPlace, Kind, Writer};

/// Timeout of one attempt to write.
const STEP_MAX: Duration = Duration::from_secs(20);
/// Time limit for retries. Meanwhile the master takes no action.
const PATIENCE: Duration = Duration::from_secs(600);
/// Initial and maximum retry delay.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// Size after which another file is started. Recovery reads one file at a time into memory.
const PART_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of a journal. Reading a larger one would exceed the agents' timeout.
pub(super) const DIARY_BYTES_MAX: u64 = 1 << 30;
/// Readable by the job's owner only.
const PERMISSION: u32 = 0o600;

/// Writer of a journal in HDFS.
#[derive(Debug)]
pub struct Segments {
    hdfs: Hdfs,
    place: JobPlace,
    attempt: u32,
    /// Number of the next file.
    next: u32,
    open: Option<Open>,
    /// Encoded entries that are not durable yet.
    waiting: Vec<Vec<u8>>,
    waiting_bytes: usize,
    /// Number of durable entries.
    entries: u64,
    /// Size of all files.
    bytes: u64,
    /// The size limit is reached: nothing more is written.
    ended: bool,
}

#[derive(Debug)]
struct Open {
    writer: Writer,
    salt: u64,
    length: u64,
    /// Size after which another file is started.
    full: u64,
    /// True if no later master existed after this file was created.
    ours: bool,
}

impl Segments {
    /// Creates the first file of this master. From then on earlier masters detect that they are fenced.
    pub async fn begin(hdfs: Hdfs, place: JobPlace, attempt: u32) -> Result<Segments, HdfsError> {
        let mut segments = Segments {
            hdfs,
            place,
            attempt,
            next: 0,
            open: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            entries: 0,
            bytes: 0,
            ended: false,
        };
        let end = Instant::now() + PATIENCE;
        let mut pause = PAUSE.0;
        loop {
            match segments.create().await {
                Ok(()) => return Ok(segments),
                Err(error) if error.may_pass() && Instant::now() < end => {
                    tracing::warn!("the journal cannot be begun yet: {error}");
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets the number of recovered entries and their size.
    pub(super) fn go_on_after(&mut self, entries: u64, bytes: u64) {
        self.entries = entries;
        self.bytes = bytes;
    }

    async fn create(&mut self) -> Result<(), HdfsError> {
        loop {
            let place = self.place.journal(self.attempt, self.next);
            let created = self.hdfs.create(&place, PERMISSION, Instant::now() + STEP_MAX).await;
            match created {
                Ok(writer) => {
                    self.next += 1;
                    self.open = Some(Open {
                        writer,
                        // The salt only needs to differ from others.
                        salt: format::salt().unwrap_or_else(|_| u64::from(self.next)),
                        length: 0,
                        full: PART_BYTES_MAX,
                        ours: false,
                    });
                    return Ok(());
                }
                // An earlier attempt succeeded although it reported an error.
                Err(error) if error.kind == Kind::Exists => self.next += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes pending entries to the current file, once.
    async fn write(&mut self) -> Result<(), Trouble> {
        if self.open.as_ref().is_some_and(|it| it.length > it.full) {
            self.turn_page().await;
        }
        if self.open.is_none() {
            self.create().await?;
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let deadline = Instant::now() + STEP_MAX;
        let mut batch = Vec::with_capacity(self.waiting_bytes + 16 * self.waiting.len() + 128);
        if open.length == 0 {
            batch.extend_from_slice(&format::header(open.salt));
            let beginning = Beginning { entries_before: self.entries };
            // Serializing one number cannot fail.
            let beginning = serde_json::to_vec(&beginning).unwrap_or_default();
            format::add(&mut batch, open.salt, 0, &beginning);
        }
        for payload in &self.waiting {
            format::add(&mut batch, open.salt, open.length, payload);
        }
        let length = batch.len() as u64;
        open.writer.write(batch, deadline).await?;
        open.writer.sync(deadline).await?;
        open.length += length;
        self.bytes += length;
        open.ours &= !open.writer.was_resumed();
        if !open.ours {
            if is_replaced(&self.hdfs, &self.place, self.attempt, deadline).await? {
                return Err(Trouble::Replaced);
            }
            open.ours = true;
        }
        self.entries += self.waiting.len() as u64;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Starts the next file while the current one works. If that fails, continues with the current one.
    async fn turn_page(&mut self) {
        let full = self.open.take();
        match (self.create().await, full) {
            (Ok(()), Some(full)) => {
                // Recovery closes the file if this fails.
                tokio::spawn(full.writer.close(Instant::now() + STEP_MAX));
            }
            (Ok(()), None) => {}
            (Err(error), full) => {
                tracing::warn!("the journal goes on in the same file: {error}");
                self.open =
                    full.map(|page| Open { full: page.length + PART_BYTES_MAX / 4, ..page });
            }
        }
    }
}

impl Diary for Segments {
    fn note(&mut self, record: &Record) {
        if self.ended {
            return;
        }
        // A record that does not fit ends the journal, as the size limit does: a master that recovers without
        // it would have another state.
        let written = serde_json::to_vec(record).unwrap_or_default();
        let fits = (1..=RECORD_BYTES_MAX).contains(&written.len());
        let entry = match fits && self.bytes < DIARY_BYTES_MAX {
            true => written,
            false => {
                tracing::error!("the journal is full: should this master die, the job fails");
                self.ended = true;
                serde_json::to_vec(&Record::Full).unwrap_or_default()
            }
        };
        self.waiting_bytes += entry.len();
        self.waiting.push(entry);
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    async fn flush(&mut self) -> Result<(), Fenced> {
        let began = Instant::now();
        let mut pause = PAUSE.0;
        while !self.waiting.is_empty() {
            let error = match self.write().await {
                Ok(()) => break,
                Err(Trouble::Replaced) => {
                    let why = "another master has taken over".to_owned();
                    return Err(Fenced { why });
                }
                Err(Trouble::Hdfs(error)) => error,
            };
            // The last write may have succeeded partially: it is repeated in another file.
            self.open = None;
            if began.elapsed() > PATIENCE {
                let why = format!("what happens cannot be written down: {error}");
                return Err(Fenced { why });
            }
            tracing::warn!("the journal cannot be written: {error}");
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
        Ok(())
    }
}

enum Trouble {
    Replaced,
    Hdfs(HdfsError),
}

impl From<HdfsError> for Trouble {
    fn from(error: HdfsError) -> Trouble {
        Trouble::Hdfs(error)
    }
}
