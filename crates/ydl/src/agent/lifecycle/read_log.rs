//! Reads logs for clients. The content goes to the master by `POST /v1/log-reply`.

use super::Agent;
use crate::logs::LogSegments;
use hyper::Method;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep},
};
use ydl_core::TaskId;
use ydl_net::client::{Client, Payload};
use ydl_os::reason;
use ydl_proto::{
    files::JobDir,
    messages::{LOG_BYTES_MAX, LogAttempt, LogFile, LogRequest},
};

/// Maximum number of concurrent reads; further requests are dropped and retried by the client.
const READS_MAX: usize = 64;
/// Poll interval of a file that does not grow.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum long-poll time.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Timeout of the call that returns the result.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Maximum number of attempts and files in a list.
const LIST_MAX: usize = 256;

/// Permits of concurrent reads, and their wake-up signal.
#[derive(Clone, Debug)]
pub(super) struct LogPermits {
    reads: Arc<Semaphore>,
    program_ended: Arc<Notify>,
}

impl Default for LogPermits {
    fn default() -> LogPermits {
        LogPermits { reads: Arc::new(Semaphore::new(READS_MAX)), program_ended: Arc::default() }
    }
}

impl LogPermits {
    /// Wakes pending reads: a program has ended, so its logs are complete.
    pub(super) fn program_ended(&self) {
        self.program_ended.notify_waiters();
    }
}

/// Result of a log request, before it is posted to the master.
enum LogReadResult {
    NotFound,
    List(Vec<LogAttempt>),
    Part { bytes: Vec<u8>, length: u64, ended: bool },
}

impl Agent {
    /// Reads logs of the task and posts them to the master.
    pub(super) fn read_log(&self, id: u64, task: TaskId, request: LogRequest) {
        let permits = &self.request_permits.logs;
        let Ok(permit) = Arc::clone(&permits.reads).try_acquire_owned() else {
            tracing::debug!("log request dropped: too many concurrent requests");
            return;
        };
        let (client, job) = (Arc::clone(&self.master.client), self.task_env.job().clone());
        let program_ended = Arc::clone(&permits.program_ended);
        tokio::spawn(async move {
            let _permit = permit;
            let reply = read_logs(&job, task, request, &program_ended).await;
            send_reply(&client, id, reply).await;
        });
    }
}

async fn read_logs(
    job: &JobDir,
    task: TaskId,
    request: LogRequest,
    program_ended: &Notify,
) -> LogReadResult {
    let (dir, file, offset, bytes_max, wait_ms) = match request {
        LogRequest::List => {
            let job = job.clone();
            let listed = tokio::task::spawn_blocking(move || list(&job, &task)).await;
            return LogReadResult::List(listed.unwrap_or_default());
        }
        LogRequest::Read { attempt, file, offset, bytes_max, wait_ms } => {
            (job.attempt_logs(&task, attempt), file, offset, bytes_max, wait_ms)
        }
    };
    if !is_plain(&file) {
        return LogReadResult::NotFound;
    }
    let end = Instant::now() + Duration::from_millis(wait_ms).min(WAIT_MAX);
    let bytes_max = bytes_max.min(LOG_BYTES_MAX);
    loop {
        // Registered before the read, so that no wake-up is lost.
        let mut woken = pin!(program_ended.notified());
        woken.as_mut().enable();
        let (dir, file) = (dir.clone(), file.clone());
        let read = tokio::task::spawn_blocking(move || read(&dir, &file, offset, bytes_max)).await;
        match read {
            Ok(Ok((bytes, length, ended))) => {
                if !bytes.is_empty() || ended || Instant::now() >= end {
                    return LogReadResult::Part { bytes, length, ended };
                }
            }
            Ok(Err(error)) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!("cannot read a log: {}", reason(&error));
                }
                return LogReadResult::NotFound;
            }
            Err(_) => return LogReadResult::NotFound,
        }
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            () = woken => {}
        }
    }
}

/// Returns true for the plain name of a log file in its directory.
fn is_plain(file: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !file.is_empty() && file.len() <= 100 && !file.starts_with('.') && file.chars().all(is_valid)
}

/// Returns bytes from the offset, the length of the file, and whether it is complete.
fn read(dir: &Path, file: &str, offset: u64, bytes_max: u64) -> io::Result<(Vec<u8>, u64, bool)> {
    // Checked first: output printed before the end is then included.
    let ended = dir.join(crate::agent::record::FILE).exists() || has_later_segment(dir, file);
    let file = File::open(dir.join(file))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let length = metadata.len();
    let length_wanted = length.saturating_sub(offset).min(bytes_max);
    let mut bytes = vec![0; length_wanted as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok((bytes, length, ended))
}

/// Returns true if a later segment exists, so that this one is complete. The next one may have been removed by rotation.
fn has_later_segment(dir: &Path, file: &str) -> bool {
    let Some((stream, number)) = file.rsplit_once('.') else {
        return false;
    };
    let Ok(number) = number.parse::<u64>() else {
        return false;
    };
    let newest = LogSegments::new(dir, stream).list().unwrap_or_default().pop();
    newest.is_some_and(|newest| newest > number)
}

fn list(job: &JobDir, task: &TaskId) -> Vec<LogAttempt> {
    let first = job.attempt_logs(task, 1);
    let attempts = first.parent().and_then(|dir| fs::read_dir(dir).ok());
    let names = attempts.into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.take(LIST_MAX).collect();
    numbers.sort_unstable();
    let each = numbers.into_iter().map(|attempt| {
        let files = fs::read_dir(job.attempt_logs(task, attempt)).into_iter();
        let files = files.flatten().flatten().filter_map(|entry| {
            let name = entry.file_name().to_str().filter(|name| is_plain(name))?.to_owned();
            // Follows the links to a container's log directory.
            let bytes = fs::metadata(entry.path()).ok()?.len();
            Some(LogFile { name, bytes })
        });
        let mut files: Vec<_> = files.take(LIST_MAX).collect();
        files.sort_by(|one, two| one.name.cmp(&two.name));
        LogAttempt { attempt, files }
    });
    each.collect()
}

async fn send_reply(client: &Client, id: u64, reply: LogReadResult) {
    let (query, payload) = match reply {
        LogReadResult::NotFound => ("&not-found".to_owned(), Payload::Nothing),
        LogReadResult::List(list) => match Payload::json(&list) {
            Ok(list) => (String::new(), list),
            Err(_) => ("&not-found".to_owned(), Payload::Nothing),
        },
        LogReadResult::Part { bytes, length, ended } => {
            let ended = if ended { "&ended" } else { "" };
            let query = format!("&length={length}{ended}");
            (query, Payload::Raw(bytes.into()))
        }
    };
    let path = format!("/v1/log-reply?request={id}{query}");
    if let Err(error) = client.call(Method::POST, &path, payload, CALL_MAX).await {
        tracing::debug!("the log request was cancelled: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_log_files_are_readable() {
        for file in ["stdout.0", "stderr.12", "exit.json", "tb-events_1"] {
            assert!(is_plain(file), "{file}");
        }
        let long = "x".repeat(101);
        for file in ["", ".", "..", "../agent.token", "/etc/passwd", ".hidden", "a b", &long] {
            assert!(!is_plain(file), "{file}");
        }
    }

    #[test]
    fn full_segments_and_ended_programs_complete_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let at = |offset| read(dir.path(), "stdout.0", offset, 3).unwrap();
        assert!(read(dir.path(), "stdout.0", 0, 3).is_err());
        fs::write(dir.path().join("stdout.0"), "hello").unwrap();
        assert_eq!(at(0), (b"hel".to_vec(), 5, false));
        assert_eq!(at(3), (b"lo".to_vec(), 5, false));
        assert_eq!(at(u64::MAX), (vec![], 5, false));
        fs::write(dir.path().join("stdout.1"), "").unwrap();
        assert_eq!(at(5), (vec![], 5, true));
        fs::remove_file(dir.path().join("stdout.1")).unwrap();
        fs::write(dir.path().join("exit.json"), "{}").unwrap();
        assert_eq!(at(5), (vec![], 5, true));
    }

    #[test]
    fn a_segment_is_complete_if_rotation_removed_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["stdout.0", "stdout.2", "stdout.3", "stderr.7"] {
            fs::write(dir.path().join(name), "hello").unwrap();
        }
        let ended = |file| read(dir.path(), file, 5, 3).unwrap().2;
        assert!(ended("stdout.0"));
        assert!(ended("stdout.2"));
        assert!(!ended("stdout.3"));
    }
}
