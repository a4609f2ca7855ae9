//! Indexed files: one run of bytes per log, and at the end an index in Java's serialisation. An
//! appended file also contains older indexes; only the last one counts.

use super::java::{Graph, JavaValue};
use super::run_reader::{Compression, Run, check_total};
use super::source::{LogError, Source, read};

/// Length of the application's identifier at the beginning and the end of the file.
pub(super) const ID_BYTES: usize = 32;
/// Length of the trailer: length of the index, identifier.
const TAIL_BYTES: u64 = 4 + ID_BYTES as u64;
/// Maximum length of an index; one with a hundred thousand logs has some ten megabytes.
const INDEX_BYTES_MAX: u64 = 32 << 20;
/// Minimum length of a log entry in an index.
const LOG_BYTES_MIN: u64 = 16;

/// Log in the file.
#[derive(Clone, Debug)]
pub(super) struct IndexedLog {
    pub container: String,
    pub file: String,
    pub modified_ms: i64,
    pub uploaded_ms: i64,
    pub run: Run,
}

pub(super) struct IndexedFile {
    pub compression: Compression,
    pub owner: Option<String>,
    /// Logs in the order in which they were written.
    pub logs: Vec<IndexedLog>,
}

/// Returns true if the file begins and ends like an indexed file.
pub(super) async fn is_indexed(source: &impl Source, end: u64) -> Result<bool, LogError> {
    if end < ID_BYTES as u64 + TAIL_BYTES {
        return Ok(false);
    }
    let first = read(source, 0, ID_BYTES).await?;
    let last = read(source, end - ID_BYTES as u64, ID_BYTES).await?;
    Ok(first == last)
}

impl IndexedFile {
    /// Reads the index of a file that ends at `end`.
    pub(crate) async fn open(source: &impl Source, end: u64) -> Result<Self, LogError> {
        let tail_at = end - TAIL_BYTES;
        let corrupt = |why| LogError::Corrupt { offset: tail_at, why };
        let tail = read(source, tail_at, 4).await?;
        let length = u64::from(u32::from_be_bytes([tail[0], tail[1], tail[2], tail[3]]));
        let start = tail_at.checked_sub(length).filter(|start| *start >= ID_BYTES as u64);
        let start = start.ok_or(corrupt("index outside of the file"))?;
        if length > INDEX_BYTES_MAX {
            return Err(corrupt("index too large"));
        }
        let bytes = read(source, start, length as usize).await?;
        let corrupt = |why| LogError::Corrupt { offset: start, why };
        let (graph, root) = Graph::read(&bytes).map_err(|error| corrupt(error.0))?;
        drop(bytes);

        let text = |value: JavaValue, name: &str| {
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
        let uploads = uploads.ok_or(corrupt("index without a list of logs"))?;
        // Values may be shared, so a small graph can expand to a large list. Names count as well,
        // because a long shared name could fill the memory.
        let mut logs_left = length / LOG_BYTES_MIN;
        let mut names_left = length.saturating_mul(4) as usize;
        for upload in graph.items(uploads) {
            let uploaded = number(&graph, *upload, "uploadTimeStamp").unwrap_or(0);
            let containers = graph.field(*upload, "logMetas").unwrap_or(JavaValue::Null);
            for pair in graph.items(containers).chunks(2) {
                let &[container, logs] = pair else { continue };
                let container = graph.text(container).unwrap_or_default();
                for log in graph.items(logs) {
                    let log = read_log(&graph, *log, container, uploaded);
                    let log = log.ok_or(corrupt("incomplete log entry in the index"))?;
                    let names = log.container.len() + log.file.len();
                    let left = names_left.checked_sub(names).zip(logs_left.checked_sub(1));
                    (names_left, logs_left) = left.ok_or(corrupt("index expands too far"))?;
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

fn number(graph: &Graph, value: JavaValue, name: &str) -> Option<i64> {
    match graph.field(value, name)? {
        JavaValue::Number(number) => Some(number),
        JavaValue::Null | JavaValue::Node(_) => None,
    }
}

fn read_log(
    graph: &Graph,
    log: JavaValue,
    container: &str,
    uploaded_ms: i64,
) -> Option<IndexedLog> {
    let size = |name: &str| u64::try_from(number(graph, log, name)?).ok();
    let file = graph.text(graph.field(log, "fileName")?)?;
    Some(IndexedLog {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes an object of a class with these fields: objects, or numbers of eight bytes.
    fn object(name: u8, fields: &[(u8, &str, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0x73, 0x72, 0, 1, name, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        bytes.extend((fields.len() as u16).to_be_bytes());
        for (kind, name, _) in fields {
            bytes.push(*kind);
            bytes.extend((name.len() as u16).to_be_bytes());
            bytes.extend(name.bytes());
            if *kind == b'L' {
                bytes.push(0x70);
            }
        }
        bytes.extend([0x78, 0x70]);
        fields.iter().for_each(|(.., value)| bytes.extend(value));
        bytes
    }

    fn list(items: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0x73, 0x72, 0, 1, b'l', 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0x78, 0x70];
        items.iter().for_each(|item| bytes.extend(item));
        bytes.push(0x78);
        bytes
    }

    fn text(text: &str) -> Vec<u8> {
        [&[0x74], &(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
    }

    /// Returns a file that lists one log of `stored` bytes several times, in a container with a
    /// name of the given length.
    fn repeated(times: usize, name: usize, stored: u64) -> Vec<u8> {
        let number = |value: u64| value.to_be_bytes().to_vec();
        let log = object(
            b'm',
            &[
                (b'J', "startIndex", number(32)),
                (b'J', "fileCompressedSize", number(stored)),
                (b'J', "fileSize", number(0)),
                (b'J', "lastModifiedTime", number(1)),
                (b'L', "fileName", text("stdout")),
            ],
        );
        // Handles before the log: class and object of the root and its list, of the upload and its
        // list, the name, class and object of the list of logs, class of the log.
        let again = vec![0x71, 0, 0x7e, 0, 12];
        let logs = [vec![log], vec![again; times - 1]].concat();
        let containers = list(&[text(&"c".repeat(name)), list(&logs)]);
        let upload = object(b'u', &[(b'L', "logMetas", containers)]);
        let root = object(b'r', &[(b'L', "logMetas", list(&[upload]))]);
        let index = [&[0xac, 0xed, 0, 5], &root[..]].concat();
        let length = (index.len() as u32).to_be_bytes();
        [&[7; 32], &index[..], &length, &[7; 32]].concat()
    }

    async fn open(file: &[u8]) -> Result<usize, String> {
        let index = IndexedFile::open(&file, file.len() as u64).await;
        let index = index.map_err(|error| error.to_string())?;
        Ok(index.logs.len())
    }

    #[tokio::test]
    async fn an_index_that_expands_too_far_is_rejected() {
        assert_eq!(open(&repeated(1, 10, 0)).await, Ok(1));
        assert_eq!(open(&repeated(2, 10, 0)).await, Ok(2));
        let too_far = "corrupt file at byte 32: index expands too far";
        assert_eq!(open(&repeated(10, 60_000, 0)).await, Err(too_far.into()));
        assert_eq!(open(&repeated(10_000, 0, 0)).await, Err(too_far.into()));
    }

    #[tokio::test]
    async fn overlapping_and_out_of_range_logs_are_rejected() {
        assert_eq!(open(&repeated(1, 10, 100)).await, Ok(1));
        let overlap = "corrupt file at byte 32: overlapping parts";
        assert_eq!(open(&repeated(10, 10, 100)).await, Err(overlap.into()));
        let outside = "corrupt file at byte 32: part outside of the file";
        for stored in [1_000_000, i64::MAX as u64] {
            assert_eq!(open(&repeated(1, 10, stored)).await, Err(outside.into()));
        }
    }
}
