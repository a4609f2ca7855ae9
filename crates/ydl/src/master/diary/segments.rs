//! A diary in HDFS, where a master on any node finds it.
//!
//! An entry is safe when it is synced to the DataNodes. A file that cannot be written any more is left and another one
//! begun, for as long as the patience lasts. That is also how a master learns that it has been replaced: the new one
//! first begins a file of its own, then shuts the writers of all earlier files out, then reads. So whoever begins
//! a file, writes to it, and then sees no file of a later master, has been read by every later one.

use super::{Diary, Record, parts::Beginning, take_over::is_replaced};
use crate::{
    backend::Fenced,
    master::journal::{RECORD_BYTES_MAX, format},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobPlace, Kind, Writer};

/// One try to write may take so long.
const STEP_MAX: Duration = Duration::from_secs(20);
/// For so long a diary that cannot be written is tried again. Meanwhile nothing follows from anything.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two tries, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// A file of this size is followed by another: one is read at a time, into memory.
const PART_BYTES_MAX: u64 = 16 << 20;
/// A diary of this size ends: a new master could not read it before its agents give up.
pub(super) const DIARY_BYTES_MAX: u64 = 1 << 30;
/// Only the job's owner reads it.
const PERMISSION: u32 = 0o600;

/// A diary in HDFS, to be written.
#[derive(Debug)]
pub struct Segments {
    hdfs: Hdfs,
    place: JobPlace,
    attempt: u32,
    /// The number of the next file.
    next: u32,
    open: Option<Open>,
    /// Entries that are not safe yet, as they will be written.
    waiting: Vec<Vec<u8>>,
    waiting_bytes: usize,
    /// How many entries are safe.
    entries: u64,
    /// How many bytes all files have together.
    bytes: u64,
    /// It has all that it may have: nothing is written any more.
    ended: bool,
}

#[derive(Debug)]
struct Open {
    writer: Writer,
    salt: u64,
    length: u64,
    /// Another file is begun when it is longer.
    full: u64,
    /// Whether no later master had begun when this file was.
    ours: bool,
}

impl Segments {
    /// Begins the files of that master. No earlier master can write unnoticed from then on.
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

    /// Goes on after so many entries, which have so many bytes.
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
                        // It has to differ from others, no more.
                        salt: format::salt().unwrap_or_else(|_| u64::from(self.next)),
                        length: 0,
                        full: PART_BYTES_MAX,
                        ours: false,
                    });
                    return Ok(());
                }
                // An earlier try that seemed to fail.
                Err(error) if error.kind == Kind::Exists => self.next += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what waits to the open file, once.
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
            // A number in braces is always JSON.
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

    /// Begins the next file while the one before is still good. If that cannot be, it is written on.
    async fn turn_page(&mut self) {
        let full = self.open.take();
        match (self.create().await, full) {
            (Ok(()), Some(full)) => {
                // Whoever reads it later closes it if this does not.
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
        // What has no place in it ends it, like what comes when there is no room left: going on without an entry, a
        // new master would become another one.
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
            // What became of the last bytes cannot be known: they are written again, to another file.
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
