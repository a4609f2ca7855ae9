//! Asking a docker engine, through its command.

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

/// The most that is kept of what the command says.
const OUTPUT_BYTES_MAX: u64 = 256 << 10;
/// What small questions may take.
const SOON: Duration = Duration::from_secs(20);
/// The label of a job's containers.
pub(super) const LABEL: &str = "ydl.job";

/// The docker command.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) program: PathBuf,
}

/// What the command has said.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) out: String,
    /// Why it has failed, if it has: the line that tells most.
    pub(super) failed: Option<String>,
}

/// As whom processes in containers run, for files here to be this user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMapping {
    /// As they are called here.
    Same,
    /// The engine maps users to others, and can be told not to.
    Mapped,
    /// The engine is this user's own: its root is this user.
    Own,
}

impl Engine {
    /// The first of that name in `PATH`.
    pub fn find() -> Option<Engine> {
        let path = env::var_os("PATH")?;
        let mut candidates = env::split_paths(&path).map(|dir| dir.join("docker"));
        let program = candidates.find(|path| is_program(path))?;
        Some(Engine { program })
    }

    /// A question to be asked.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }

    /// Asks, and waits for the answer that long.
    pub(super) async fn ask(&self, words: &[&str], within: Duration) -> CommandOutput {
        let late = || CommandOutput {
            out: String::new(),
            failed: Some(format!("it did not answer in {} s", within.as_secs())),
        };
        let said = timeout(within, hear(self.command(words))).await;
        said.unwrap_or_else(|_| late())
    }

    /// Whether an engine answers; else why none does.
    pub async fn answers(&self) -> Result<(), String> {
        let said = self.ask(&["version", "--format", "{{.Server.Version}}"], SOON).await;
        said.failed.map_or(Ok(()), Err)
    }

    /// As whom processes in its containers run.
    pub async fn users(&self) -> UserMapping {
        let said = self.ask(&["info", "--format", "{{json .SecurityOptions}}"], SOON).await;
        // What an engine does not know of, it does not do.
        if said.out.contains("name=rootless") {
            UserMapping::Own
        } else if said.out.contains("name=userns") {
            UserMapping::Mapped
        } else {
            UserMapping::Same
        }
    }

    /// Removes a container, whatever runs in it. That there is none is as well.
    pub async fn remove(&self, names: &[&str]) {
        let words: Vec<_> = ["rm", "--force"].iter().chain(names).copied().collect();
        let said = self.ask(&words, SOON).await;
        if let Some(why) = said.failed.filter(|why| !why.contains("No such container")) {
            tracing::warn!("cannot remove the container `{}`: {why}", names.join("`, `"));
        }
    }
}

/// Removes what a job has left: a container that was never started is removed by nobody else.
pub async fn clean(job: &str) {
    let Some(engine) = Engine::find() else {
        return;
    };
    let filter = format!("label={LABEL}={job}");
    let words = ["ps", "--all", "--quiet", "--filter", filter.as_str()];
    let said = engine.ask(&words, SOON).await;
    let left: Vec<_> = said.out.split_whitespace().collect();
    if !left.is_empty() {
        engine.remove(&left).await;
    }
}

fn is_program(path: &Path) -> bool {
    let access = rustix::fs::access(path, rustix::fs::Access::EXEC_OK);
    path.is_file() && access.is_ok()
}

async fn hear(mut command: Command) -> CommandOutput {
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
        Ok(status) => {
            CommandOutput { failed: Some(telling(&err).unwrap_or_else(|| status.to_string())), out }
        }
        Err(error) => failed(error),
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // What was read before it failed is what there is.
        let _ = from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line of docker's words that tells most: the last that is not about how to use it.
pub(super) fn telling(words: &str) -> Option<String> {
    let noise = ["See 'docker", "Run 'docker", "WARNING:", "errors pretty printing info"];
    let mut lines = words.lines().map(str::trim).rev();
    let line =
        lines.find(|line| !line.is_empty() && !noise.iter().any(|it| line.starts_with(it)))?;
    let prefixes = ["docker: ", "ERROR: ", "Error response from daemon: ", "Error: "];
    let mut line = line;
    for prefix in prefixes {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    let line = line.trim_end_matches('.');
    let kept = line.chars().filter(|c| !c.is_control()).take(400);
    Some(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_dockers_words_the_telling_ones_are_kept() {
        let absent = "Unable to find image 'ydl/none:1' locally\ndocker: Error response from daemon: pull access denied for \
                      ydl/none, repository does not exist or may require 'docker login'.\nSee 'docker run --help'.\n";
        let expected = "pull access denied for ydl/none, repository does not exist or may require 'docker login'";
        assert_eq!(telling(absent).as_deref(), Some(expected));
        let away = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?";
        assert_eq!(telling(away).as_deref(), Some(away));
        assert_eq!(telling("\n \n"), None);
    }
}
