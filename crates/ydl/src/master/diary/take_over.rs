//! How a new master takes the diary over: it shuts earlier ones out, then reads what they wrote.

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

/// One step may take so long: shutting a writer out that is still there takes the longest.
const STEP_MAX: Duration = Duration::from_secs(60);
/// For so long a file system that is away is waited for. The ResourceManager waits ten minutes for a master.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(500);
/// A file of a diary is as long as its first limit, what was added while another could not be begun, and one batch.
const PART_BYTES_MAX: u64 = 512 << 20;
/// The head of a part: the header and its first record.
const HEAD_BYTES: usize = 1 << 10;

/// Why a diary cannot be gone on with.
#[derive(Debug)]
pub enum Unreadable {
    /// There is a master of a later attempt.
    Replaced,
    /// The file system fails.
    Hdfs(HdfsError),
    /// A file is not what it should be.
    Journal(JournalError),
    /// Entries are missing, or mean nothing to this master.
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

/// Whether a later master has begun.
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

/// Begins the diary of that master and reads those of all before it.
pub async fn take_over(
    hdfs: &Hdfs,
    place: &JobPlace,
    attempt: u32,
    reading: &mut Reading,
) -> Result<Segments, Unreadable> {
    // First of all: an earlier master that begins another file after this sees that it has been replaced.
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
        // What is here again was read already.
        let again = count - before;
        let (mut at, mut wrong) = (0, None);
        let scan = format::scan(Path::new(&file), &whole[..], |payload| {
            // The first is the beginning, which is no entry.
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

/// After how many entries a part begins, from its first bytes; none if it was never begun.
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

/// Tries again what fails because a server is away.
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
