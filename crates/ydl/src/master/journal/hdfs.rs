//! Journal in HDFS, where a master on any node finds it.
//!
//! A record is durable once it is synced to the DataNodes. If a file cannot be written any more, the journal
//! continues in another one, until a time limit. This also fences earlier masters: a new master first creates
//! its own file, then revokes the leases of all earlier files, then reads them. So if a master creates a file,
//! writes to it and then sees no file of a later master, every later master will read what it wrote.

use super::{Journal, JournalRecord, parts::PartHeader, recover::is_replaced};
use crate::{
    backend::Fenced,
    master::journal::{RECORD_BYTES_MAX, format},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobLayout, Kind, Writer};

/// Timeout of one attempt to write.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for retries. Meanwhile the master takes no action.
const RETRY_MAX: Duration = Duration::from_secs(600);
/// Initial and maximum retry delay.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// Size after which another file is started. Recovery reads one file at a time into memory.
const PART_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of a journal. Reading a larger one would exceed the agents' timeout.
pub(super) const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// Readable by the job's owner only.
const PERMISSION: u32 = 0o600;

/// Writer of a journal in HDFS.
#[derive(Debug)]
pub struct HdfsJournal {
    hdfs: Hdfs,
    layout: JobLayout,
    attempt: u32,
    /// Number of the next part.
    next: u32,
    open: Option<OpenPart>,
    /// Encoded records that are not durable yet.
    pending: Vec<Vec<u8>>,
    pending_bytes: usize,
    /// Number of durable records.
    records: u64,
    /// Size of all files.
    bytes: u64,
    /// The size limit is reached: nothing more is written.
    full: bool,
}

#[derive(Debug)]
struct OpenPart {
    writer: Writer,
    salt: u64,
    length: u64,
    /// Size after which another file is started.
    rotate_at: u64,
    /// True if no later master existed after this file was created.
    unfenced: bool,
}

impl HdfsJournal {
    /// Creates the first file of this master. From then on earlier masters detect that they are fenced.
    pub async fn create(
        hdfs: Hdfs,
        layout: JobLayout,
        attempt: u32,
    ) -> Result<HdfsJournal, HdfsError> {
        let mut journal = HdfsJournal {
            hdfs,
            layout,
            attempt,
            next: 0,
            open: None,
            pending: Vec::new(),
            pending_bytes: 0,
            records: 0,
            bytes: 0,
            full: false,
        };
        let end = Instant::now() + RETRY_MAX;
        let mut delay = RETRY_DELAY.0;
        loop {
            match journal.create_part().await {
                Ok(()) => return Ok(journal),
                Err(error) if error.is_transient() && Instant::now() < end => {
                    tracing::warn!("cannot create the journal yet: {error}");
                    sleep(delay).await;
                    delay = (delay * 2).min(RETRY_DELAY.1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets the number of recovered records and their size.
    pub(super) fn resume_after(&mut self, records: u64, bytes: u64) {
        self.records = records;
        self.bytes = bytes;
    }

    async fn create_part(&mut self) -> Result<(), HdfsError> {
        loop {
            let path = self.layout.journal(self.attempt, self.next);
            let created = self.hdfs.create(&path, PERMISSION, Instant::now() + STEP_TIMEOUT).await;
            match created {
                Ok(writer) => {
                    self.next += 1;
                    self.open = Some(OpenPart {
                        writer,
                        // The salt only needs to differ from others.
                        salt: format::salt().unwrap_or_else(|_| u64::from(self.next)),
                        length: 0,
                        rotate_at: PART_BYTES_MAX,
                        unfenced: false,
                    });
                    return Ok(());
                }
                // An earlier attempt succeeded although it reported an error.
                Err(error) if error.kind == Kind::Exists => self.next += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes pending records to the current file, once.
    async fn write(&mut self) -> Result<(), WriteError> {
        if self.open.as_ref().is_some_and(|it| it.length > it.rotate_at) {
            self.rotate().await;
        }
        if self.open.is_none() {
            self.create_part().await?;
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let deadline = Instant::now() + STEP_TIMEOUT;
        let mut batch = Vec::with_capacity(self.pending_bytes + 16 * self.pending.len() + 128);
        if open.length == 0 {
            batch.extend_from_slice(&format::header(open.salt));
            let header = PartHeader { records_before: self.records };
            // Serializing one number cannot fail.
            let header = serde_json::to_vec(&header).unwrap_or_default();
            format::add(&mut batch, open.salt, 0, &header);
        }
        for payload in &self.pending {
            format::add(&mut batch, open.salt, open.length, payload);
        }
        let length = batch.len() as u64;
        open.writer.write(batch, deadline).await?;
        open.writer.sync(deadline).await?;
        open.length += length;
        self.bytes += length;
        open.unfenced &= !open.writer.was_resumed();
        if !open.unfenced {
            if is_replaced(&self.hdfs, &self.layout, self.attempt, deadline).await? {
                return Err(WriteError::Fenced);
            }
            open.unfenced = true;
        }
        self.records += self.pending.len() as u64;
        self.pending.clear();
        self.pending_bytes = 0;
        Ok(())
    }

    /// Starts the next file while the current one works. If that fails, continues with the current one.
    async fn rotate(&mut self) {
        let full = self.open.take();
        match (self.create_part().await, full) {
            (Ok(()), Some(full)) => {
                // Recovery closes the file if this fails.
                tokio::spawn(full.writer.close(Instant::now() + STEP_TIMEOUT));
            }
            (Ok(()), None) => {}
            (Err(error), full) => {
                tracing::warn!("cannot rotate the journal, continuing in the same file: {error}");
                self.open = full
                    .map(|part| OpenPart { rotate_at: part.length + PART_BYTES_MAX / 4, ..part });
            }
        }
    }
}

impl Journal for HdfsJournal {
    fn append(&mut self, record: &JournalRecord) {
        if self.full {
            return;
        }
        // A record that does not fit ends the journal, as the size limit does: a master that recovers without
        // it would have another state.
        let written = serde_json::to_vec(record).unwrap_or_default();
        let fits = (1..=RECORD_BYTES_MAX).contains(&written.len());
        let record = match fits && self.bytes < JOURNAL_BYTES_MAX {
            true => written,
            false => {
                tracing::error!("the journal is full: if this master dies, the job fails");
                self.full = true;
                serde_json::to_vec(&JournalRecord::Full).unwrap_or_default()
            }
        };
        self.pending_bytes += record.len();
        self.pending.push(record);
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    async fn flush(&mut self) -> Result<(), Fenced> {
        let began = Instant::now();
        let mut delay = RETRY_DELAY.0;
        while !self.pending.is_empty() {
            let error = match self.write().await {
                Ok(()) => break,
                Err(WriteError::Fenced) => {
                    let why = "another master has taken over".to_owned();
                    return Err(Fenced { why });
                }
                Err(WriteError::Hdfs(error)) => error,
            };
            // The last write may have succeeded partially: it is repeated in another file.
            self.open = None;
            if began.elapsed() > RETRY_MAX {
                let why = format!("cannot write the journal: {error}");
                return Err(Fenced { why });
            }
            tracing::warn!("cannot write the journal, retrying: {error}");
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY.1);
        }
        Ok(())
    }
}

enum WriteError {
    Fenced,
    Hdfs(HdfsError),
}

impl From<HdfsError> for WriteError {
    fn from(error: HdfsError) -> WriteError {
        WriteError::Hdfs(error)
    }
}
