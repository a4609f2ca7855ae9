//! Access log: one JSON object per request, in files of limited size.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

/// Lines that wait for the disk. When it is full, lines are dropped rather than requests delayed.
const LINES_MAX: usize = 8192;
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Number of older files, from `.1`, the newest, to `.4`.
const OLDER_FILES: u32 = 4;
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum length of a path in a line.
const PATH_MAX: usize = 1024;

/// Record of one request.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LogLine {
    /// Arrival, in milliseconds since 1970.
    pub time_ms: u64,
    pub id: String,
    pub client: String,
    pub method: String,
    /// Without the query, which may contain secrets.
    pub path: String,
    pub protocol: &'static str,
    pub status: u16,
    /// `complete`, `client_gone`, `broken` or `stalled`.
    pub end: &'static str,
    /// Reason of a response of the gateway itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    pub retries: u32,
    pub duration_ms: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// Writer with a thread of its own.
#[derive(Debug)]
pub struct AccessLog {
    lines: Option<SyncSender<LogLine>>,
    thread: Option<JoinHandle<()>>,
    dropped: AtomicU64,
}

/// Error of opening an access log.
#[derive(Debug)]
pub struct AccessLogError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for AccessLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write the access log `{}`: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for AccessLogError {}

impl AccessLog {
    /// Opens a file for appending.
    pub fn open(path: &Path) -> Result<AccessLog, AccessLogError> {
        AccessLog::with_limit(path, FILE_BYTES_MAX)
    }

    fn with_limit(path: &Path, bytes_max: u64) -> Result<AccessLog, AccessLogError> {
        let failed = |source| AccessLogError { path: path.to_owned(), source };
        let mut file = RotatedFile::open(path, bytes_max).map_err(failed)?;
        let (lines, receiver) = sync_channel(LINES_MAX);
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(&receiver, &mut file))
            .map_err(failed)?;
        Ok(AccessLog { lines: Some(lines), thread: Some(thread), dropped: AtomicU64::new(0) })
    }

    pub(crate) fn write(&self, mut line: LogLine) {
        if line.path.len() > PATH_MAX {
            let end = line.path.floor_char_boundary(PATH_MAX);
            line.path.truncate(end);
        }
        if self.lines.as_ref().is_none_or(|lines| lines.try_send(line).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines that were lost because the disk was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        // The thread writes what is left, and ends.
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn write_lines(lines: &Receiver<LogLine>, file: &mut RotatedFile) {
    let mut has_failed = false;
    loop {
        let received = lines.recv_timeout(FLUSH_INTERVAL);
        let result = match &received {
            Ok(line) => file.write(line),
            Err(_) => file.writer.flush(),
        };
        if let Err(error) = &result
            && !has_failed
        {
            tracing::warn!("cannot write the access log: {error}");
        }
        has_failed = result.is_err();
        if matches!(received, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
    }
}

struct RotatedFile {
    path: PathBuf,
    writer: BufWriter<File>,
    bytes: u64,
    bytes_max: u64,
}

impl RotatedFile {
    fn open(path: &Path, bytes_max: u64) -> io::Result<RotatedFile> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(RotatedFile { path: path.to_owned(), writer: BufWriter::new(file), bytes, bytes_max })
    }

    fn write(&mut self, line: &LogLine) -> io::Result<()> {
        let mut json = serde_json::to_vec(line)?;
        json.push(b'\n');
        let length = json.len() as u64;
        if self.bytes > 0 && self.bytes + length > self.bytes_max {
            self.rotate()?;
        }
        self.bytes += length;
        self.writer.write_all(&json)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        let older = |number: u32| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..OLDER_FILES).rev() {
            match std::fs::rename(older(number), older(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        std::fs::rename(&self.path, older(1))?;
        *self = RotatedFile::open(&self.path, self.bytes_max)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_json_and_files_are_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = AccessLog::with_limit(&path, 2000).unwrap();
        for number in 0..100 {
            log.write(LogLine { status: number, path: "/\"x".into(), ..LogLine::default() });
        }
        drop(log);
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["log", "log.1", "log.2", "log.3", "log.4"]);
        let mut statuses = Vec::new();
        for name in names.iter().rev() {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(text.len() <= 2000);
            for line in text.lines() {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(value["path"], "/\"x");
                statuses.push(value["status"].as_u64().unwrap());
            }
        }
        let first = statuses[0];
        assert_eq!(statuses, (first..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_directory_is_reported() {
        let error = AccessLog::open(Path::new("/nonexistent/log")).unwrap_err().to_string();
        assert!(error.starts_with("cannot write the access log `/nonexistent/log`: "), "{error}");
    }
}
