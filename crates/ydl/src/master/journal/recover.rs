//! Recovery of a journal by a new master: creates its own file, revokes the leases of earlier masters (which fences
//! them), and reads what they wrote.

use super::{
    JournalRecord,
    hdfs::HdfsJournal,
    parts::{JournalPart, PartHeader, effective_records},
};
use crate::master::{
    journal::{
        JournalError,
        format::{self, JournalTail},
    },
    recovered::Replay,
};
use std::{fmt, path::Path, time::Duration};
use tokio::time::{Instant, sleep};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobLayout};

/// Timeout of one step. Revoking the lease of a live writer takes the longest.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for an unavailable file system. The ResourceManager waits ten minutes for a master.
const RETRY_MAX: Duration = Duration::from_secs(300);
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum size of one file: the rotation limit, plus what was added while rotation failed, plus one batch.
const PART_BYTES_MAX: u64 = 512 << 20;
/// Size of a file's header and first record.
const HEAD_BYTES: usize = 1 << 10;

/// Reason why a journal cannot be recovered.
#[derive(Debug)]
pub enum RecoverError {
    /// A later master has replaced this one.
    Fenced,
    /// File system error.
    Hdfs(HdfsError),
    /// Invalid file.
    Journal(JournalError),
    /// Missing or unknown records.
    Records(String),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Fenced => f.write_str("another master has taken over"),
            RecoverError::Hdfs(error) => error.fmt(f),
            RecoverError::Journal(error) => error.fmt(f),
            RecoverError::Records(why) => write!(f, "cannot recover from the journal: {why}"),
        }
    }
}

impl From<HdfsError> for RecoverError {
    fn from(error: HdfsError) -> RecoverError {
        RecoverError::Hdfs(error)
    }
}

impl From<JournalError> for RecoverError {
    fn from(error: JournalError) -> RecoverError {
        RecoverError::Journal(error)
    }
}

/// Returns true if a later master has started its journal.
pub async fn is_replaced(
    hdfs: &Hdfs,
    layout: &JobLayout,
    attempt: u32,
    deadline: Instant,
) -> Result<bool, HdfsError> {
    let files = hdfs.list(layout.dir(), deadline).await?;
    let mut parts = files.iter().filter_map(|it| JournalPart::parse(it.name()));
    Ok(parts.any(|part| part.attempt > attempt))
}

/// Starts the journal of this master and replays those of all earlier ones.
pub async fn recover(
    hdfs: &Hdfs,
    layout: &JobLayout,
    attempt: u32,
    replay: &mut Replay,
) -> Result<HdfsJournal, RecoverError> {
    // Create the own file first: an earlier master that starts another file after this sees that it is fenced.
    let mut journal = HdfsJournal::create(hdfs.clone(), layout.clone(), attempt).await?;
    let end = Instant::now() + RETRY_MAX;
    let files = with_retries(end, async |deadline| hdfs.list(layout.dir(), deadline).await).await?;
    let mut parts: Vec<JournalPart> = files
        .iter()
        .filter_map(|file| JournalPart::parse(file.name()))
        .filter(|part| part.attempt != attempt)
        .collect();
    parts.sort_unstable();
    if parts.last().is_some_and(|part| part.attempt > attempt) {
        return Err(RecoverError::Fenced);
    }

    let mut beginnings = Vec::with_capacity(parts.len());
    for part in &parts {
        let file = layout.journal(part.attempt, part.number);
        let recover = async |deadline| hdfs.recover(&file, deadline).await;
        with_retries(end, recover).await?;
        let head = async |deadline| {
            let reader = hdfs.open(&file, deadline).await?;
            reader.read_at(0, HEAD_BYTES, deadline).await
        };
        beginnings.push(beginning(&file, &with_retries(end, head).await?)?);
    }

    let (mut count, mut bytes) = (0, 0);
    for ((part, begins), limit) in parts.iter().zip(&beginnings).zip(effective_records(&beginnings))
    {
        let (Some(before), true) = (*begins, limit > 0) else {
            continue;
        };
        let file = layout.journal(part.attempt, part.number);
        if before > count {
            let why = format!("`{file}` begins after {before} records, but there are only {count}");
            return Err(RecoverError::Records(why));
        }
        let whole = async |deadline| hdfs.read_file(&file, PART_BYTES_MAX, deadline).await;
        let whole = with_retries(end, whole).await?;
        bytes += whole.len() as u64;
        // Records that an earlier file contained are skipped.
        let already_replayed = count - before;
        let (mut at, mut error) = (0, None);
        let tail = format::scan(Path::new(&file), &whole[..], |payload| {
            // The first record is the part's header.
            let record = u64::checked_sub(at, 1);
            at += 1;
            if record.is_some_and(|record| (already_replayed..limit).contains(&record))
                && error.is_none()
            {
                count += 1;
                error = apply_payload(replay, payload).err();
            }
        });
        if let JournalTail::Torn { bytes } = tail? {
            tracing::info!("ignored {bytes} bytes of an incomplete record at the end of `{file}`");
        }
        if let Some(why) = error {
            return Err(RecoverError::Records(format!("`{file}`: {why}")));
        }
    }
    tracing::info!("recovered {count} records from {} files", parts.len());
    journal.resume_after(count, bytes);
    Ok(journal)
}

fn apply_payload(replay: &mut Replay, payload: &[u8]) -> Result<(), String> {
    match serde_json::from_slice(payload) {
        Ok(JournalRecord::Full) => Err("it was full, so later events are missing".to_owned()),
        Ok(record) => {
            replay.apply(record);
            Ok(())
        }
        Err(error) => Err(format!("cannot parse a record: {error}")),
    }
}

/// Returns the number of records before a part, from its first bytes; none if the part was never begun.
fn beginning(file: &str, head: &[u8]) -> Result<Option<u64>, RecoverError> {
    let mut first: Option<Vec<u8>> = None;
    format::scan(Path::new(file), head, |payload| {
        first.get_or_insert_with(|| payload.to_vec());
    })?;
    let Some(first) = first else {
        return Ok(None);
    };
    match serde_json::from_slice::<PartHeader>(&first) {
        Ok(beginning) => Ok(Some(beginning.records_before)),
        Err(error) => {
            let why = format!("cannot parse the header of `{file}`: {error}");
            Err(RecoverError::Records(why))
        }
    }
}

/// Retries a step while the server is unavailable.
async fn with_retries<T>(
    end: Instant,
    step: impl AsyncFn(Instant) -> Result<T, HdfsError>,
) -> Result<T, HdfsError> {
    loop {
        match step(Instant::now() + STEP_TIMEOUT).await {
            Err(error) if error.is_transient() && Instant::now() < end => {
                tracing::warn!("cannot read the journal yet: {error}");
                sleep(RETRY_DELAY).await;
            }
            done => return done,
        }
    }
}
