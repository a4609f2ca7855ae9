//! Runs programs to completion, with a timeout and an output limit.

use crate::error::{Error, ErrorKind};
use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Maximum size of a program's captured output.
const OUTPUT_MAX: usize = 1 << 20;

/// Exit status and output of a program; both streams in order of arrival.
#[derive(Debug)]
pub struct ProcessOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// The last mebibyte of its output.
    pub text: String,
}

/// Runs a program to completion.
pub fn run(command: &mut Command, timeout: Duration) -> Result<ProcessOutput, Error> {
    run_streaming(command, "", timeout, |_| ())
}

/// Runs a program to completion with `input` on its standard input, and calls `on_line` for each line of output.
pub(crate) fn run_streaming(
    command: &mut Command,
    input: &str,
    timeout: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<ProcessOutput, Error> {
    let name = program(command);
    let run_error =
        |error: io::Error| Error::new(ErrorKind::Missing, format!("cannot run `{name}`: {error}"));
    // One pipe for both streams keeps their lines in order. The separate process group is killed as a
    // whole on timeout.
    let (reader, writer) = io::pipe().map_err(run_error)?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().map_err(run_error)?)
        .stderr(writer)
        .process_group(0)
        .spawn()
        .map_err(run_error)?;
    // Close the command's ends of the pipe; the reader would never see the end of the output otherwise.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(mut stdin) = child.stdin.take() {
        // A program that exits without reading its input explains that in its output.
        let _ = stdin.write_all(input.as_bytes());
    }
    let lines = read_lines(reader);
    let deadline = Instant::now() + timeout;
    let mut text = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                on_line(&line);
                text.push_str(&line);
                text.push('\n');
                if text.len() > 2 * OUTPUT_MAX {
                    text.drain(..text.floor_char_boundary(text.len() - OUTPUT_MAX));
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                kill_group(&mut child);
                let message = format!("`{name}` timed out after {} s", timeout.as_secs());
                return Err(Error::new(ErrorKind::Timeout, message).log(text));
            }
        }
    }
    let status = wait(&mut child, deadline).map_err(run_error)?;
    Ok(ProcessOutput { status, text })
}

/// Like [`run`], but returns the output and treats a failed program as an error.
pub(crate) fn run_checked(
    command: &mut Command,
    input: &str,
    timeout: Duration,
) -> Result<String, Error> {
    let name = program(command);
    let output = run_streaming(command, input, timeout, |_| ())?;
    if output.status.success() {
        return Ok(output.text);
    }
    let message = format!("`{name}` failed with {}", output.status);
    Err(Error::new(ErrorKind::Exited, message).log(tail(&output.text, 30)))
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Reads lines in a thread. Splits overlong lines to bound memory.
fn read_lines(reader: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::sync_channel(256);
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            match (&mut reader).take(OUTPUT_MAX as u64).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end().to_owned()).is_err() {
                break;
            }
        }
    });
    lines
}

/// Waits for the exit after the output was closed; kills the program at the deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            kill_group(child);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn kill_group(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    // An error means that the group has exited already.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

/// Returns the last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let from = text.lines().count().saturating_sub(lines);
    text.lines().skip(from).collect::<Vec<_>>().join("\n")
}

/// Returns the path of a program found on `PATH` or in a system administration directory.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(system).map(|folder| folder.join(name));
    found.into_iter().find(|file| is_program(file.as_os_str()))
}

fn is_program(file: &OsStr) -> bool {
    let file = std::path::Path::new(file);
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_exit_status_are_returned() {
        let mut seen = Vec::new();
        let ten = Duration::from_secs(10);
        let output = run_streaming(&mut shell("cat; echo two >&2; exit 3"), "one\n", ten, |line| {
            seen.push(line.to_owned());
        });
        let output = output.unwrap();
        assert_eq!((output.text.as_str(), output.status.code()), ("one\ntwo\n", Some(3)));
        assert_eq!(seen, ["one", "two"]);
        let failed = run_checked(&mut shell("echo why; exit 1"), "", ten).unwrap_err();
        assert_eq!((failed.kind, failed.log.as_deref()), (ErrorKind::Exited, Some("why")));
    }

    #[test]
    fn a_timeout_kills_the_program_and_its_children() {
        const SLEEP: Duration = Duration::from_secs(600);
        let began = Instant::now();
        let script = format!("sleep {} & echo $!; wait", SLEEP.as_secs());
        let late = run(&mut shell(&script), Duration::from_millis(300)).unwrap_err();
        assert_eq!(late.kind, ErrorKind::Timeout);
        assert!(began.elapsed() < SLEEP, "it waited for `sleep`");
        let pid = late.log.unwrap().trim().to_owned();
        let exited = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            status.map_or(true, |status| status.contains(") Z "))
        };
        crate::probe::wait_for("`sleep` to exit", Duration::from_secs(10), || {
            exited().then_some(())
        })
        .unwrap();
    }
}
