//! Recovery of a journal by a new master: fence earlier masters, then read what they wrote.

use super::{
    Record,
    parts::{Beginning, Part, counted},
    segments::Segments,
};
use crate::master::{
    journal::{JournalError, format},
    past::Reading,
};
use std::{fmt, path::Path, time::Duration};
use tokio::time::{Instant, sleep};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobPlace};

/// Timeout of one step. Revoking the lease of a live writer takes the longest.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Time limit for an unavailable file system. The ResourceManager waits ten minutes for a master.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum size of one file: the rotation limit, plus what was added while rotation failed, plus one batch.
const PART_BYTES_MAX: u64 = 512 << 20;
/// Size of a file's header and first record.
const HEAD_BYTES: usize = 1 << 10;

/// Reason why a journal cannot be recovered.
#[derive(Debug)]
pub enum Unreadable {
    /// A later attempt has a master.
    Replaced,
    /// File system error.
    Hdfs(HdfsError),
    /// Invalid file.
    Journal(JournalError),
    /// Missing or unknown entries.
    Entries(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Replaced => f.write_str("another master has taken over"),
            Unreadable::Hdfs(error) => error.fmt(f),
            Unreadable::Journal(error) => error.fmt(f),
            Unreadable::Entries(why) => write!(f, "cannot go on from the journal: {why}"),
        }
    }
}

impl From<HdfsError> for Unreadable {
    fn from(error: HdfsError) -> Unreadable {
        Unreadable::Hdfs(error)
    }
}

impl From<JournalError> for Unreadable {
    fn from(error: JournalError) -> Unreadable {
        Unreadable::Journal(error)
    }
}

/// Returns true if a later master has started its journal.
pub async fn is_replaced(
    hdfs: &Hdfs,
    place: &JobPlace,
    attempt: u32,
    deadline: Instant,
) -> Result<bool, HdfsError> {
    let entries = hdfs.list(place.dir(), deadline).await?;
    let mut parts = entries.iter().filter_map(|it| Part::parse(it.name()));
    Ok(parts.any(|part| part.attempt > attempt))
}

/// Starts the journal of this master and replays those of all earlier ones.
pub async fn take_over(
    hdfs: &Hdfs,
    place: &JobPlace,
    attempt: u32,
    reading: &mut Reading,
) -> Result<Segments, Unreadable> {
    // Create the own file first: an earlier master that starts another file after this sees that it is fenced.
    let mut segments = Segments::begin(hdfs.clone(), place.clone(), attempt).await?;
    let end = Instant::now() + PATIENCE;
    let entries = patiently(end, async |deadline| hdfs.list(place.dir(), deadline).await).await?;
    let mut parts: Vec<Part> = entries
        .iter()
        .filter_map(|entry| Part::parse(entry.name()))
        .filter(|part| part.attempt != attempt)
        .collect();
    parts.sort_unstable();
    if parts.last().is_some_and(|part| part.attempt > attempt) {
        return Err(Unreadable::Replaced);
    }

    let mut beginnings = Vec::with_capacity(parts.len());
    for part in &parts {
        let file = place.journal(part.attempt, part.number);
        let recover = async |deadline| hdfs.recover(&file, deadline).await;
        patiently(end, recover).await?;
        let head = async |deadline| {
            let reader = hdfs.open(&file, deadline).await?;
            reader.read_at(0, HEAD_BYTES, deadline).await
        };
        beginnings.push(beginning(&file, &patiently(end, head).await?)?);
    }

    let (mut count, mut bytes) = (0, 0);
    for ((part, begins), room) in parts.iter().zip(&beginnings).zip(counted(&beginnings)) {
        let (Some(before), true) = (*begins, room > 0) else {
            continue;
        };
        let file = place.journal(part.attempt, part.number);
        if before > count {
            let why = format!("`{file}` begins after {before} entries, and there are {count}");
            return Err(Unreadable::Entries(why));
        }
        let whole = async |deadline| hdfs.read_whole(&file, PART_BYTES_MAX, deadline).await;
        let whole = patiently(end, whole).await?;
        bytes += whole.len() as u64;
        // Entries that an earlier file contained are skipped.
        let again = count - before;
        let (mut at, mut wrong) = (0, None);
        let scan = format::scan(Path::new(&file), &whole[..], |payload| {
            // The first record is the beginning of the part.
            let entry = u64::checked_sub(at, 1);
            at += 1;
            if entry.is_some_and(|entry| (again..room).contains(&entry)) && wrong.is_none() {
                count += 1;
                wrong = take(reading, payload).err();
            }
        });
        scan?;
        if let Some(why) = wrong {
            return Err(Unreadable::Entries(format!("`{file}`: {why}")));
        }
    }
    tracing::info!("{count} entries in {} files were read", parts.len());
    segments.go_on_after(count, bytes);
    Ok(segments)
}

fn take(reading: &mut Reading, payload: &[u8]) -> Result<(), String> {
    match serde_json::from_slice(payload) {
        Ok(Record::Full) => Err("it was full, so what happened later is not known".to_owned()),
        Ok(record) => {
            reading.take(record);
            Ok(())
        }
        Err(error) => Err(format!("an entry cannot be understood: {error}")),
    }
}

/// Returns the number of entries before a part, from its first bytes; none if the part was never begun.
fn beginning(file: &str, head: &[u8]) -> Result<Option<u64>, Unreadable> {
    let mut first: Option<Vec<u8>> = None;
    format::scan(Path::new(file), head, |payload| {
        first.get_or_insert_with(|| payload.to_vec());
    })?;
    let Some(first) = first else {
        return Ok(None);
    };
    match serde_json::from_slice::<Beginning>(&first) {
        Ok(beginning) => Ok(Some(beginning.entries_before)),
        Err(error) => {
            let why = format!("`{file}` does not say where it begins: {error}");
            Err(Unreadable::Entries(why))
        }
    }
}

/// Retries a step while the server is unavailable.
async fn patiently<T>(
    end: Instant,
    step: impl AsyncFn(Instant) -> Result<T, HdfsError>,
) -> Result<T, HdfsError> {
    loop {
        match step(Instant::now() + STEP_MAX).await {
            Err(error) if error.may_pass() && Instant::now() < end => {
                tracing::warn!("waiting to read the journal: {error}");
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}
