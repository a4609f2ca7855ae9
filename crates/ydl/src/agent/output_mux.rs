//! Multiplexes the output of several processes of one task: prefixes each line with the number of its process.
//!
//! Lines are forwarded whole. A very long line is forwarded in pieces, and an unterminated last line is terminated.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// Size of one read.
const READ_BYTES: usize = 16 << 10;
/// A longer line is forwarded in pieces of this size.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Output pipes of one process.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    pub(super) stdout: PipeWriter,
    pub(super) stderr: PipeWriter,
}

/// Forwards the output of processes until all of them have closed their pipes.
#[derive(Debug)]
pub(super) struct OutputMux(Receiver<()>);

impl OutputMux {
    /// Forwards to this process' own output. Returns the pipes of that many processes.
    pub(super) fn start(processes: usize) -> io::Result<(OutputMux, Vec<ProcessOutput>)> {
        let (mut writers, mut sources) = (Vec::new(), Vec::new());
        for process in 0..processes {
            let (from_stdout, stdout) = io::pipe()?;
            let (from_stderr, stderr) = io::pipe()?;
            writers.push(ProcessOutput { stdout, stderr });
            sources.push(MuxSource::new(process, from_stdout, false));
            sources.push(MuxSource::new(process, from_stderr, true));
        }
        let (done, finished) = channel();
        let run = move || {
            forward(sources, &mut io::stdout(), &mut io::stderr());
            // The receiver may have stopped waiting.
            let _ = done.send(());
        };
        let thread = thread::Builder::new().name("output-mux".into());
        thread.stack_size(128 << 10).spawn(run)?;
        Ok((OutputMux(finished), writers))
    }

    /// Waits until all output is forwarded, up to the timeout: another process may hold a pipe open.
    pub(super) fn finish(self, timeout: Duration) {
        let _ = self.0.recv_timeout(timeout);
    }
}

#[derive(Debug)]
struct MuxSource {
    pipe: PipeReader,
    is_stderr: bool,
    prefix: String,
    /// Start of an unterminated line.
    partial: Vec<u8>,
}

impl MuxSource {
    fn new(process: usize, pipe: PipeReader, is_stderr: bool) -> MuxSource {
        MuxSource { pipe, is_stderr, prefix: format!("[{process}] "), partial: Vec::new() }
    }

    /// Buffers input and appends the complete lines to `lines`.
    fn take(&mut self, bytes: &[u8], lines: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            self.partial.extend_from_slice(part);
            let is_complete = self.partial.last().is_some_and(|byte| is_line_end(*byte));
            if is_complete || self.partial.len() >= LINE_BYTES_MAX {
                self.flush_line(lines);
            }
        }
    }

    fn flush_line(&mut self, lines: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        lines.extend_from_slice(self.prefix.as_bytes());
        lines.append(&mut self.partial);
        if !lines.last().is_some_and(|byte| is_line_end(*byte)) {
            lines.push(b'\n');
        }
    }
}

/// Progress bars overwrite their line and end it with a carriage return.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn forward(mut sources: Vec<MuxSource>, stdout: &mut impl Write, stderr: &mut impl Write) {
    let mut buffer = vec![0; READ_BYTES];
    while !sources.is_empty() {
        let ready = match ready(&sources) {
            Ok(ready) => ready,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The kernel is short of memory for the moment.
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let mut still_open = Vec::with_capacity(sources.len());
        for (mut source, ready) in sources.into_iter().zip(ready) {
            let mut lines = Vec::new();
            let mut done = false;
            if ready {
                match source.pipe.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => {
                        source.flush_line(&mut lines);
                        done = true;
                    }
                    Ok(length) => source.take(&buffer[..length], &mut lines),
                }
            }
            // An agent that is gone does not read, and its programs are about to be killed.
            let _ = match source.is_stderr {
                true => stderr.write_all(&lines).and_then(|()| stderr.flush()),
                false => stdout.write_all(&lines).and_then(|()| stdout.flush()),
            };
            if !done {
                still_open.push(source);
            }
        }
        sources = still_open;
    }
}

/// Returns which pipes are readable. Blocks until one is.
fn ready(sources: &[MuxSource]) -> io::Result<Vec<bool>> {
    let mut fds: Vec<_> = sources
        .iter()
        .map(|source| PollFd::from_borrowed_fd(source.pipe.as_fd(), PollFlags::IN))
        .collect();
    poll(&mut fds, None)?;
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_forwarded_whole_with_their_process_number() {
        let (first, mut to_first) = io::pipe().unwrap();
        let (second, mut to_second) = io::pipe().unwrap();
        let (third, mut to_third) = io::pipe().unwrap();
        to_first.write_all(b"one\ntw").unwrap();
        to_second.write_all(b"10%\r20%\r").unwrap();
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        to_third.write_all(&long).unwrap();
        to_first.write_all(b"o\nend").unwrap();
        drop((to_first, to_second, to_third));
        let sources = vec![
            MuxSource::new(0, first, false),
            MuxSource::new(1, second, false),
            MuxSource::new(2, third, true),
        ];
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        forward(sources, &mut stdout, &mut stderr);
        let stdout_text = String::from_utf8(stdout).unwrap();
        let of = |number: &str| -> Vec<_> {
            let lines = stdout_text.split_inclusive(['\n', '\r']);
            lines.filter(|line| line.starts_with(number)).collect()
        };
        assert_eq!(of("[0] "), ["[0] one\n", "[0] two\n", "[0] end\n"]);
        assert_eq!(of("[1] "), ["[1] 10%\r", "[1] 20%\r"]);
        let long: usize = String::from_utf8(stderr)
            .unwrap()
            .lines()
            .map(|line| line.strip_prefix("[2] ").unwrap().len())
            .sum();
        assert_eq!(long, LINE_BYTES_MAX + 1);
    }
}
