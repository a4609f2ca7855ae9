//! Indexed files: one run of bytes per log, and at the end an index as Java serialises it. A file that was
//! appended to holds older indexes too; only the last one counts.

use super::java::{Graph, Value};
use super::plain::{Compression, Run, check_total};
use super::source::{LogError, Source, read};

/// An id of the application, at the beginning and at the end of the file.
pub(super) const ID_BYTES: usize = 32;
/// The end of the file: length of the index, id.
const TAIL_BYTES: u64 = 4 + ID_BYTES as u64;
/// An index with a hundred thousand logs has some ten megabytes.
const INDEX_BYTES_MAX: u64 = 32 << 20;

/// A log in the file.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub container: String,
    pub file: String,
    pub modified_ms: i64,
    pub uploaded_ms: i64,
    pub run: Run,
}

pub(super) struct Indexed {
    pub compression: Compression,
    pub owner: Option<String>,
    /// The logs, in the order in which they were written.
    pub logs: Vec<Log>,
}

/// Whether the file begins and ends as an indexed one does.
pub(super) async fn is_indexed(source: &impl Source, end: u64) -> Result<bool, LogError> {
    if end < ID_BYTES as u64 + TAIL_BYTES {
        return Ok(false);
    }
    let first = read(source, 0, ID_BYTES).await?;
    let last = read(source, end - ID_BYTES as u64, ID_BYTES).await?;
    Ok(first == last)
}

impl Indexed {
    /// Reads the index of a file that ends at `end`.
    pub async fn open(source: &impl Source, end: u64) -> Result<Self, LogError> {
        let tail_at = end - TAIL_BYTES;
        let damaged = |why| LogError::Damaged {
            offset: tail_at,
            why,
        };
        let tail = read(source, tail_at, 4).await?;
        let length = u64::from(u32::from_be_bytes([tail[0], tail[1], tail[2], tail[3]]));
        let start = tail_at
            .checked_sub(length)
            .filter(|start| *start >= ID_BYTES as u64);
        let start = start.ok_or(damaged("its index would lie outside of it"))?;
        if length > INDEX_BYTES_MAX {
            return Err(damaged("its index is too large"));
        }
        let bytes = read(source, start, length as usize).await?;
        let damaged = |why| LogError::Damaged { offset: start, why };
        let (graph, root) = Graph::read(&bytes).map_err(|broken| damaged(broken.0))?;
        drop(bytes);

        let text = |value: Value, name: &str| {
            let field = graph.field(value, name);
            field.and_then(|field| graph.text(field)).map(str::to_owned)
        };
        let compression = text(root, "compressName").unwrap_or_default();
        let mut found = Self {
            compression: Compression::named(&compression.to_ascii_lowercase())?,
            owner: text(root, "user"),
            logs: Vec::new(),
        };
        let uploads = graph.field(root, "logMetas");
        let uploads = uploads.ok_or(damaged("its index has no list of logs"))?;
        for upload in graph.items(uploads) {
            let uploaded = number(&graph, *upload, "uploadTimeStamp").unwrap_or(0);
            let containers = graph.field(*upload, "logMetas").unwrap_or(Value::Null);
            for pair in graph.items(containers).chunks(2) {
                let &[container, logs] = pair else { continue };
                let container = graph.text(container).unwrap_or_default();
                for log in graph.items(logs) {
                    // A value may be referred to many times over; the graph is small, its unfolding not.
                    if found.logs.len() >= 1_000_000 {
                        return Err(damaged("its index is too large"));
                    }
                    let log = one(&graph, *log, container, uploaded);
                    let log = log.ok_or(damaged("a log in its index is incomplete"))?;
                    log.run.within(ID_BYTES as u64, end)?;
                    found.logs.push(log);
                }
            }
        }
        check_total(found.logs.iter().map(|log| log.run), end)?;
        found.logs.sort_by_key(|log| log.run.offset);
        Ok(found)
    }
}

fn number(graph: &Graph, value: Value, name: &str) -> Option<i64> {
    match graph.field(value, name)? {
        Value::Number(number) => Some(number),
        Value::Null | Value::Node(_) => None,
    }
}

fn one(graph: &Graph, log: Value, container: &str, uploaded_ms: i64) -> Option<Log> {
    let size = |name: &str| u64::try_from(number(graph, log, name)?).ok();
    let file = graph.text(graph.field(log, "fileName")?)?;
    Some(Log {
        container: container.to_owned(),
        file: file.to_owned(),
        modified_ms: number(graph, log, "lastModifiedTime")?,
        uploaded_ms,
        run: Run {
            offset: size("startIndex")?,
            stored: size("fileCompressedSize")?,
            length: size("fileSize")?,
        },
    })
}
