//! Captures the output of a program to files of bounded size, even while the disk fails.
//!
//! Runs in a thread of its own, because writing to a slow disk would block the agent's loop. [`super::program`] starts
//! it, [`super::segments`] writes the files, and [`crate::logs`] reads them.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::container_logs::ContainerLogs;
use super::segments::SegmentWriter;
use super::tail::LineTail;

/// Size of one read: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;
/// Reads of the remaining pipe content when the capture is cut short.
const LAST_READS_MAX: usize = 64;
/// Timeout for the thread to exit after it was told to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Retention of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    pub segment_bytes: u64,
    /// Segments retained in addition to the first, which is always kept.
    pub newest: u64,
}

impl Default for Rotation {
    fn default() -> Rotation {
        Rotation { segment_bytes: 16 << 20, newest: 4 }
    }
}

/// Destination of the output.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// Created if absent. Segments of an earlier program are replaced.
    pub dir: PathBuf,
    /// Place of the segments in the log directory of a YARN container; `dir` then has links to them.
    pub container_logs: Option<ContainerLogs>,
    pub rotation: Rotation,
}

/// Result of a capture, so far or at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Last lines of stderr, for error messages.
    pub stderr_tail: String,
    /// Bytes that could not be written.
    pub dropped_bytes: u64,
    /// Error of the last write; `None` if it succeeded.
    pub last_error: Option<String>,
}

#[derive(Debug, Default)]
struct CaptureState {
    tail: LineTail,
    dropped_bytes: u64,
    last_error: Option<String>,
}

/// Shared view of a running capture.
#[derive(Clone, Debug)]
pub struct CaptureView(Arc<Mutex<CaptureState>>);

impl CaptureView {
    pub(crate) fn so_far(&self) -> Captured {
        let shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Captured {
            stderr_tail: shared.tail.text(),
            dropped_bytes: shared.dropped_bytes,
            last_error: shared.last_error.clone(),
        }
    }
}

/// A capture under way. Dropping it cuts it short.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Mutex<CaptureState>>,
    done: oneshot::Receiver<()>,
    /// The thread stops when this is closed.
    stop: Option<PipeWriter>,
}

impl Capture {
    /// Starts a capture. Returns the pipe ends for stdout and stderr of the program.
    pub fn start(spec: OutputSpec) -> io::Result<(Capture, PipeWriter, PipeWriter)> {
        let (stdout, to_stdout) = io::pipe()?;
        let (stderr, to_stderr) = io::pipe()?;
        let (stopped, stop) = io::pipe()?;
        let (finished, done) = oneshot::channel();
        let shared = Arc::new(Mutex::new(CaptureState::default()));
        let thread_state = Arc::clone(&shared);
        thread::Builder::new().name("output".into()).stack_size(256 << 10).spawn(move || {
            let writer = |stream| SegmentWriter::new(&spec, stream);
            let streams =
                [(stdout, writer("stdout"), false), (stderr, writer("stderr"), true)].map(Some);
            drain(streams, &stopped, &thread_state);
            // The agent may have stopped waiting.
            let _ = finished.send(());
        })?;
        Ok((Capture { shared, done, stop: Some(stop) }, to_stdout, to_stderr))
    }

    pub fn view(&self) -> CaptureView {
        CaptureView(Arc::clone(&self.shared))
    }

    /// Waits until all output is written, at most `timeout`: a process outside the program's tree may hold the pipes
    /// open.
    pub async fn finish(&mut self, timeout: Duration) -> Captured {
        if self.stop.is_some() {
            // An error means that the thread has exited.
            if tokio::time::timeout(timeout, &mut self.done).await.is_err() {
                self.stop = None;
                let _ = tokio::time::timeout(EXIT_TIMEOUT, &mut self.done).await;
            }
            self.stop = None;
        }
        self.view().so_far()
    }
}

type CapturedStream = (PipeReader, SegmentWriter, bool);

fn drain(
    mut streams: [Option<CapturedStream>; 2],
    stopped: &PipeReader,
    shared: &Mutex<CaptureState>,
) {
    let mut buffer = vec![0; READ_BYTES];
    let mut last_reads = None;
    while streams.iter().any(Option::is_some) {
        if last_reads.is_some_and(|reads| reads >= LAST_READS_MAX) {
            return;
        }
        let ready = match ready(&streams, stopped, last_reads.is_some()) {
            Ok(ready) => ready,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The kernel is short of memory for the moment.
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if ready == [false; 3] {
            return;
        }
        if ready[2] && last_reads.is_none() {
            last_reads = Some(0);
        }
        for (stream, _) in streams.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let Some((pipe, writer, is_stderr)) = stream else {
                continue;
            };
            last_reads = last_reads.map(|reads| reads + 1);
            match pipe.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => *stream = None,
                Ok(length) => {
                    let bytes = &buffer[..length];
                    let failed = writer.write(bytes);
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    if *is_stderr {
                        shared.tail.push(bytes);
                    }
                    match failed {
                        Ok(()) => shared.last_error = None,
                        Err((dropped, error)) => {
                            shared.dropped_bytes += dropped;
                            shared.last_error = Some(error);
                        }
                    }
                }
            }
        }
    }
}

/// Returns which of stdout, stderr and the stop pipe are readable. Blocks, unless stopping.
fn ready(
    streams: &[Option<CapturedStream>; 2],
    stopped: &PipeReader,
    stopping: bool,
) -> io::Result<[bool; 3]> {
    let mut fds = Vec::with_capacity(3);
    let mut indexes = Vec::with_capacity(3);
    for (at, stream) in streams.iter().enumerate() {
        if let Some((pipe, ..)) = stream {
            fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
            indexes.push(at);
        }
    }
    if !stopping {
        fds.push(PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN));
        indexes.push(2);
    }
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, stopping.then_some(&at_once))?;
    let mut ready = [false; 3];
    for (fd, at) in fds.iter().zip(indexes) {
        ready[at] = !fd.revents().is_empty();
    }
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::{LogReader, LogSegments, StreamChunk};
    use std::io::Write;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn spec(dir: PathBuf, segment_bytes: u64, newest: u64) -> OutputSpec {
        OutputSpec { dir, container_logs: None, rotation: Rotation { segment_bytes, newest } }
    }

    fn read(dir: &std::path::Path, stream: &str) -> (Vec<u8>, u64) {
        let mut reader = LogReader::new(dir, stream, 0);
        let (mut all, mut missing) = (Vec::new(), 0);
        loop {
            match reader.read_some().unwrap() {
                StreamChunk::Data { bytes, .. } => all.extend(bytes),
                StreamChunk::Gap { bytes, .. } => missing += bytes,
                StreamChunk::End => return (all, missing),
            }
        }
    }

    #[tokio::test]
    async fn the_start_and_the_newest_segments_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("stdout.9"), "of an earlier program").unwrap();
        let (mut capture, mut stdout, stderr) =
            Capture::start(spec(dir.path().to_owned(), 10, 2)).unwrap();
        let all: Vec<u8> = (0..95).map(|at| b'!' + at).collect();
        stdout.write_all(&all).unwrap();
        drop((stdout, stderr));
        assert_eq!(capture.finish(TIMEOUT).await, Captured::default());

        assert_eq!(LogSegments::new(dir.path(), "stdout").list().unwrap(), [0, 8, 9]);
        assert_eq!(read(dir.path(), "stdout"), ([&all[..10], &all[80..]].concat(), 70));
        assert_eq!(read(dir.path(), "stderr"), (vec![], 0));
    }

    #[tokio::test]
    async fn output_that_cannot_be_written_is_drained_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        // A file in place of the directory: all writes fail until it is removed.
        let logs = dir.path().join("logs");
        std::fs::write(&logs, "in the way").unwrap();
        let (mut capture, mut stdout, mut stderr) =
            Capture::start(spec(logs.clone(), 1000, 1)).unwrap();
        let dropped_output = vec![b'x'; 1 << 20];
        stderr.write_all(&dropped_output).unwrap();
        stderr.write_all(b"\nlast words\n").unwrap();
        let dropped = dropped_output.len() as u64 + 12;
        while capture.view().so_far().dropped_bytes < dropped {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let so_far = capture.view().so_far();
        assert_eq!(so_far.stderr_tail, "last words");
        assert!(so_far.last_error.is_some());

        std::fs::remove_file(&logs).unwrap();
        stderr.write_all(b"back again\n").unwrap();
        stdout.write_all(b"hello\n").unwrap();
        drop((stdout, stderr));
        let captured = capture.finish(TIMEOUT).await;
        assert_eq!((captured.dropped_bytes, captured.last_error), (dropped, None));
        let (stderr, _) = read(&logs, "stderr");
        let stderr = String::from_utf8(stderr).unwrap();
        let note = format!("\nydl: {dropped} bytes of output are missing here: ");
        assert!(stderr.starts_with(&note), "{stderr}");
        assert!(stderr.ends_with("\nback again\n"), "{stderr}");
        assert_eq!(read(&logs, "stdout").0, b"hello\n");
    }

    #[tokio::test]
    async fn a_pipe_held_open_by_another_process_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (mut capture, mut stdout, _stderr) =
            Capture::start(spec(dir.path().to_owned(), 1 << 20, 1)).unwrap();
        stdout.write_all(b"said before").unwrap();
        capture.finish(Duration::from_millis(10)).await;
        assert_eq!(read(dir.path(), "stdout").0, b"said before");
    }
}
