//! What makes sure that no process of a cluster outlives it.
//!
//! A shell that reads a pipe whose other end only this process holds. When the pipe closes (because
//! the cluster is dropped, or this process ended in whatever way, `kill -9` included) the shell
//! ends every process that carries the cluster's mark in its environment, and removes the cluster's
//! directory. The mark reaches the daemons directly, and the containers through the NodeManagers'
//! configuration: they are found even though they live in sessions of their own and go on when
//! their NodeManager is killed.
//!
//! The kernel's parent-death signal would not do: it follows the thread that started the child, and
//! the thread of one test ends while others still use the cluster.

use crate::{
    failure::{Failure, Kind},
    scratch,
};
use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The variable that marks a cluster's processes.
pub(crate) const MARK: &str = "TESTBED_CLUSTER";

/// Reads the mark and the directory as lines, so that they are in nobody's arguments.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
read -r mark
read -r directory
while read -r _; do :; done
tries=0
while [ "$tries" -lt 200 ]; do
    found=$(grep -l -a -s -F "$mark" /proc/[0-9]*/environ)
    [ -n "$found" ] || break
    for process in $found; do
        process=${process#/proc/}
        kill -KILL "${process%/environ}" 2>/dev/null
    done
    tries=$((tries + 1))
    sleep 0.05
done
case $directory in */testbed-????????????????) rm -rf -- "$directory" ;; esac
[ -z "$found" ]
"#;

/// How long ending everything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends its processes when it is dropped, or its own process ends.
#[derive(Debug)]
pub(crate) struct Watcher {
    shell: Child,
    text: String,
    ended: bool,
}

impl Watcher {
    /// `directory` is removed in the end; none if it is to stay.
    pub(crate) fn start(id: &str, directory: Option<&Path>) -> Result<Watcher, Failure> {
        let directory = directory.map(|path| path.display().to_string()).unwrap_or_default();
        let text = format!("{MARK}={id}\n{directory}\n");
        Ok(Watcher { shell: shell(&text)?, text, ended: false })
    }

    /// For a program that takes long: it shall not go on when nobody waits for it any more.
    pub(crate) fn over(command: &mut Command) -> Result<Watcher, Failure> {
        let id = scratch::random_id()?;
        command.env(MARK, &id);
        Watcher::start(&id, None)
    }

    /// Ends everything now, and returns when it has ended.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.ended = true;
        if finish(&mut self.shell) {
            return Ok(());
        }
        // Somebody has ended the watcher itself: what it would have done is done by another.
        match finish(&mut shell(&self.text)?) {
            true => Ok(()),
            false => Err(Failure::new(Kind::Trouble, "processes of the cluster cannot be ended")),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.ended
            && let Err(failure) = self.end()
        {
            eprintln!("testbed: {failure}");
        }
    }
}

/// In a group of its own: Ctrl-C must not reach it.
fn shell(text: &str) -> Result<Child, Failure> {
    let trouble = |error| Failure::new(Kind::Missing, format!("cannot run `sh`: {error}"));
    let mut shell = Command::new("sh")
        .args(["-c", SCRIPT])
        .process_group(0)
        .current_dir("/")
        .env_remove(MARK)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(trouble)?;
    let stdin = shell.stdin.as_mut().expect("it was piped in the lines above");
    stdin.write_all(text.as_bytes()).map_err(trouble)?;
    Ok(shell)
}

fn finish(shell: &mut Child) -> bool {
    shell.stdin = None;
    let ended = crate::fact::wait_for("the watcher", PATIENCE, || shell.try_wait().transpose());
    matches!(ended, Ok(Ok(status)) if status.success())
}
