//! Docker engine, accessed through its command.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};
use ydl_os::{children, reason};

/// Maximum captured output of the command.
const OUTPUT_BYTES_MAX: u64 = 256 << 10;
/// Timeout of small commands.
const COMMAND_MAX: Duration = Duration::from_secs(20);
/// Label of a job's containers.
pub(super) const LABEL: &str = "ydl.job";

/// The docker command.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) program: PathBuf,
}

/// Output of the command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) out: String,
    /// The most relevant line of its error, if it failed.
    pub(super) failed: Option<String>,
}

/// User mapping of containers, so that files created in them belong to this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMapping {
    /// Users are the same inside and outside.
    Same,
    /// The engine maps users, and the mapping can be disabled.
    Mapped,
    /// The engine is rootless: its root is this user.
    Own,
}

impl Engine {
    /// Finds the command in `PATH`.
    pub fn find() -> Option<Engine> {
        let path = env::var_os("PATH")?;
        let mut candidates = env::split_paths(&path).map(|dir| dir.join("docker"));
        let program = candidates.find(|path| is_program(path))?;
        Some(Engine { program })
    }

    /// Creates a command with these arguments.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args);
        command
    }

    /// Runs a command with a timeout.
    pub(super) async fn run(&self, args: &[&str], within: Duration) -> CommandOutput {
        let timed_out = || CommandOutput {
            out: String::new(),
            failed: Some(format!("timed out after {} s", within.as_secs())),
        };
        let output = timeout(within, run_command(self.command(args))).await;
        output.unwrap_or_else(|_| timed_out())
    }

    /// Checks that an engine responds; otherwise returns the reason.
    pub async fn answers(&self) -> Result<(), String> {
        let output = self.run(&["version", "--format", "{{.Server.Version}}"], COMMAND_MAX).await;
        output.failed.map_or(Ok(()), Err)
    }

    /// Returns the user mapping of the engine's containers.
    pub async fn users(&self) -> UserMapping {
        let output =
            self.run(&["info", "--format", "{{json .SecurityOptions}}"], COMMAND_MAX).await;
        // Features unknown to the engine are off.
        if output.out.contains("name=rootless") {
            UserMapping::Own
        } else if output.out.contains("name=userns") {
            UserMapping::Mapped
        } else {
            UserMapping::Same
        }
    }

    /// Removes containers, even running ones. Absent ones are no error.
    pub async fn remove(&self, names: &[&str]) {
        let args: Vec<_> = ["rm", "--force"].iter().chain(names).copied().collect();
        let output = self.run(&args, COMMAND_MAX).await;
        if let Some(why) = output.failed.filter(|why| !why.contains("No such container")) {
            tracing::warn!("cannot remove the container `{}`: {why}", names.join("`, `"));
        }
    }
}

/// Removes a job's remaining containers: the engine keeps those that were never started.
pub(crate) async fn clean(job: &str) {
    let Some(engine) = Engine::find() else {
        return;
    };
    let filter = format!("label={LABEL}={job}");
    let args = ["ps", "--all", "--quiet", "--filter", filter.as_str()];
    let output = engine.run(&args, COMMAND_MAX).await;
    let left: Vec<_> = output.out.split_whitespace().collect();
    if !left.is_empty() {
        engine.remove(&left).await;
    }
}

fn is_program(path: &Path) -> bool {
    let access = rustix::fs::access(path, rustix::fs::Access::EXEC_OK);
    path.is_file() && access.is_ok()
}

async fn run_command(mut command: Command) -> CommandOutput {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed =
        |error: io::Error| CommandOutput { out: String::new(), failed: Some(reason(&error)) };
    let mut child = match children::spawn(&mut command) {
        Ok(child) => child,
        Err(error) => return failed(error),
    };
    let (out, err) = tokio::join!(read(child.stdout.take()), read(child.stderr.take()));
    match child.wait().await {
        Ok(status) if status.success() => CommandOutput { out, failed: None },
        Ok(status) => CommandOutput {
            failed: Some(error_line(&err).unwrap_or_else(|| status.to_string())),
            out,
        },
        Err(error) => failed(error),
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // On an error the data read so far is used.
        let _ = from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the most relevant line of docker's error output: the last that is not a usage hint.
pub(super) fn error_line(stderr: &str) -> Option<String> {
    let noise = ["See 'docker", "Run 'docker", "WARNING:", "errors pretty printing info"];
    let mut lines = stderr.lines().map(str::trim).rev();
    let line =
        lines.find(|line| !line.is_empty() && !noise.iter().any(|it| line.starts_with(it)))?;
    let prefixes = ["docker: ", "ERROR: ", "Error response from daemon: ", "Error: "];
    let mut line = line;
    for prefix in prefixes {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    let line = line.trim_end_matches('.');
    let printable = line.chars().filter(|c| !c.is_control()).take(400);
    Some(printable.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_relevant_line_of_dockers_output_is_kept() {
        let absent = "Unable to find image 'ydl/none:1' locally\ndocker: Error response from daemon: pull access denied for \
                      ydl/none, repository does not exist or may require 'docker login'.\nSee 'docker run --help'.\n";
        let expected = "pull access denied for ydl/none, repository does not exist or may require 'docker login'";
        assert_eq!(error_line(absent).as_deref(), Some(expected));
        let unreachable = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?";
        assert_eq!(error_line(unreachable).as_deref(), Some(unreachable));
        assert_eq!(error_line("\n \n"), None);
    }
}
