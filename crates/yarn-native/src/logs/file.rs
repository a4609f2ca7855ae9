//! Common interface to both formats: the logs in a file, and their bytes.

use super::indexed::{self, IndexedFile};
use super::run_reader::{PIECE_BYTES, RunReader};
use super::source::{LogError, Source, read};
use super::tfile::{self, TFile};

/// Maximum length of a name in a checksum file.
const NAME_BYTES_MAX: usize = 4096;

/// Returns true if a name in a log directory belongs to a Hadoop archive, a directory with the
/// packed files of an application. Archives cannot be read: [`LogError::Archive`].
pub fn is_archive(name: &str) -> bool {
    name.trim_end_matches('/').ends_with(".har")
}

/// Format of an aggregated log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Keys and values in blocks, read from beginning to end. Skipping is cheap only without
    /// compression.
    TFile,
    /// One run of bytes per log, and an index.
    Indexed,
}

/// Log: one file of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Container, such as `container_1700000000000_0007_01_000002`.
    pub container: String,
    /// File name, such as `stdout`.
    pub file: String,
    /// Length in bytes.
    pub length: u64,
    /// Modification time in milliseconds since 1970, if the format has it.
    pub modified_ms: Option<i64>,
    /// Upload time in milliseconds since 1970, if the format has it. Logs of a running application
    /// are collected repeatedly, so a file may have several entries.
    pub uploaded_ms: Option<i64>,
}

/// Aggregated log file of one node, read from its beginning.
pub struct LogFile<S> {
    source: S,
    reader: FormatReader,
}

enum FormatReader {
    TFile(Box<TFile>),
    Indexed { index: IndexedFile, next: usize, current: Option<Box<RunReader>> },
}

impl<S: Source> LogFile<S> {
    /// Opens a file and detects its format.
    pub async fn open(source: S) -> Result<Self, LogError> {
        let end = source.length();
        Self::open_until(source, end).await
    }

    /// Opens a file that is complete only up to `end`; see [`Checksum`].
    pub async fn open_until(source: S, end: u64) -> Result<Self, LogError> {
        let end = end.min(source.length());
        if end == 0 {
            return Err(LogError::Empty);
        }
        let head = read(&source, 0, end.min(tfile::MAGIC.len() as u64) as usize).await?;
        let reader = if head == tfile::MAGIC {
            FormatReader::TFile(Box::new(TFile::open(&source).await?))
        } else if indexed::is_indexed(&source, end).await? {
            FormatReader::Indexed {
                index: IndexedFile::open(&source, end).await?,
                next: 0,
                current: None,
            }
        } else if head.starts_with(b"%2F") {
            // Index of an archive: URL-encoded paths.
            return Err(LogError::Archive);
        } else {
            return Err(LogError::Unknown);
        };
        Ok(Self { source, reader })
    }

    /// Returns the format.
    pub fn format(&self) -> LogFormat {
        match &self.reader {
            FormatReader::TFile(_) => LogFormat::TFile,
            FormatReader::Indexed { .. } => LogFormat::Indexed,
        }
    }

    /// Returns the owner of the application; in a TFile it is known after the first entry.
    pub fn owner(&self) -> Option<&str> {
        match &self.reader {
            FormatReader::TFile(file) => file.owner(),
            FormatReader::Indexed { index, .. } => index.owner.as_deref(),
        }
    }

    /// Advances to the next log, whatever is left of the current one.
    pub async fn next(&mut self) -> Result<Option<LogEntry>, LogError> {
        match &mut self.reader {
            FormatReader::TFile(file) => {
                let found = file.next(&self.source).await?;
                Ok(found.map(|found| LogEntry {
                    container: found.container,
                    file: found.file,
                    length: found.length,
                    modified_ms: None,
                    uploaded_ms: None,
                }))
            }
            FormatReader::Indexed { index, next, current } => {
                let Some(log) = index.logs.get(*next) else {
                    *current = None;
                    return Ok(None);
                };
                *next += 1;
                *current = Some(Box::new(RunReader::new(log.run, index.compression)));
                Ok(Some(LogEntry {
                    container: log.container.clone(),
                    file: log.file.clone(),
                    length: log.run.length,
                    modified_ms: Some(log.modified_ms),
                    uploaded_ms: Some(log.uploaded_ms),
                }))
            }
        }
    }

    /// Returns the next bytes of the current log, at most 64 KiB; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, LogError> {
        let piece = match &mut self.reader {
            FormatReader::TFile(file) => file.piece(&self.source).await?,
            FormatReader::Indexed { current, .. } => match current {
                Some(run) => run.read_up_to(&self.source, PIECE_BYTES as u64).await?,
                None => Vec::new(),
            },
        };
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Skips bytes of the current log, up to its end, for example to read only its tail.
    pub async fn skip(&mut self, bytes: u64) -> Result<(), LogError> {
        match &mut self.reader {
            FormatReader::TFile(file) => file.skip(&self.source, bytes).await,
            FormatReader::Indexed { current, .. } => match current {
                Some(run) => {
                    let bytes = bytes.min(run.left());
                    run.skip(&self.source, bytes).await
                }
                None => Ok(()),
            },
        }
    }
}

impl<S> std::fmt::Debug for LogFile<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let format = match &self.reader {
            FormatReader::TFile(_) => LogFormat::TFile,
            FormatReader::Indexed { .. } => LogFormat::Indexed,
        };
        f.debug_struct("LogFile").field("format", &format).finish_non_exhaustive()
    }
}

/// Content of `<file>-checksum` beside an indexed file that is being appended to: the length up to
/// which that file is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Name of the indexed file.
    pub file: String,
    /// Complete length, for [`LogFile::open_until`].
    pub end: u64,
}

impl Checksum {
    /// Parses a checksum file; `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > NAME_BYTES_MAX {
            return None;
        }
        let (name, rest) = rest.split_at_checked(length)?;
        let end = rest.first_chunk::<8>()?;
        Some(Self {
            file: String::from_utf8_lossy(name).into_owned(),
            end: u64::from_be_bytes(*end),
        })
    }
}
