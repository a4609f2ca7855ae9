//! Programs that are run and end: with a deadline, and with a limit on what they may say.

use crate::failure::{Failure, Kind};
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

/// The most that is kept of a program's output.
const OUTPUT_MAX: usize = 1 << 20;

/// What a program said (both streams, in the order they came) and how it ended.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Its last mebibyte of output.
    pub text: String,
}

/// Runs to the end with a deadline.
pub fn run(command: &mut Command, within: Duration) -> Result<Said, Failure> {
    follow(command, "", within, |_| ())
}

/// Runs to the end, feeding `input`, and hands each line of output to `each`.
pub(crate) fn follow(
    command: &mut Command,
    input: &str,
    within: Duration,
    mut each: impl FnMut(&str),
) -> Result<Said, Failure> {
    let name = program(command);
    let trouble =
        |error: io::Error| Failure::new(Kind::Missing, format!("cannot run `{name}`: {error}"));
    // One pipe for both streams keeps their lines in order. A group of its own, so that a program
    // that is too late ends together with what it started.
    let (reader, writer) = io::pipe().map_err(trouble)?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().map_err(trouble)?)
        .stderr(writer)
        .process_group(0)
        .spawn()
        .map_err(trouble)?;
    // The command keeps its ends of the pipe, and with them open the reader would wait for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why in its output.
        let _ = stdin.write_all(input.as_bytes());
    }
    let lines = read_lines(reader);
    let deadline = Instant::now() + within;
    let mut text = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                each(&line);
                text.push_str(&line);
                text.push('\n');
                if text.len() > 2 * OUTPUT_MAX {
                    text.drain(..text.floor_char_boundary(text.len() - OUTPUT_MAX));
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                end_group(&mut child);
                let what = format!("`{name}` did not end in {} s", within.as_secs());
                return Err(Failure::new(Kind::Late, what).log(text));
            }
        }
    }
    let status = wait(&mut child, deadline).map_err(trouble)?;
    Ok(Said { status, text })
}

/// The same for a program whose failure is ours: its output without the lines' order in doubt.
pub(crate) fn must(
    command: &mut Command,
    input: &str,
    within: Duration,
) -> Result<String, Failure> {
    let name = program(command);
    let said = follow(command, input, within, |_| ())?;
    if said.status.success() {
        return Ok(said.text);
    }
    let what = format!("`{name}` failed with {}", said.status);
    Err(Failure::new(Kind::Ended, what).log(tail(&said.text, 30)))
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Cut lines that never end, so that one program cannot take all memory.
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

/// A program closes its output just before it ends; one that lingers is ended.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            end_group(child);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn end_group(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    // It may have ended by itself meanwhile, which is what is wanted.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let from = text.lines().count().saturating_sub(lines);
    text.lines().skip(from).collect::<Vec<_>>().join("\n")
}

/// Where the program is: on `PATH`, or in one of the places administrators' programs live in.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name));
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
    fn output_and_end_of_a_program_are_told() {
        let mut seen = Vec::new();
        let ten = Duration::from_secs(10);
        let said = follow(&mut shell("cat; echo two >&2; exit 3"), "one\n", ten, |line| {
            seen.push(line.to_owned());
        });
        let said = said.unwrap();
        assert_eq!((said.text.as_str(), said.status.code()), ("one\ntwo\n", Some(3)));
        assert_eq!(seen, ["one", "two"]);
        let failed = must(&mut shell("echo why; exit 1"), "", ten).unwrap_err();
        assert_eq!((failed.kind, failed.log.as_deref()), (Kind::Ended, Some("why")));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_what_it_started() {
        let began = Instant::now();
        let script = "sleep 600 & echo $!; wait";
        let late = run(&mut shell(script), Duration::from_millis(300)).unwrap_err();
        assert_eq!(late.kind, Kind::Late);
        assert!(began.elapsed() < Duration::from_secs(30));
        let pid = late.log.unwrap().trim().to_owned();
        let gone = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            status.map_or(true, |status| status.contains(") Z "))
        };
        crate::fact::wait_for("the end of `sleep`", Duration::from_secs(10), || {
            gone().then_some(())
        })
        .unwrap();
    }
}
