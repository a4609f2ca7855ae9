//! Watchdog process that kills all processes of a cluster when the cluster ends.
//!
//! The watcher is a shell that reads a pipe from this process. The pipe closes when the cluster is
//! dropped or this process exits, even by `kill -9`. The shell then kills every process with the
//! cluster id in its environment and removes the cluster's directory. Daemons receive the id
//! directly, containers through the NodeManagers' configuration. That finds containers in sessions
//! of their own and after their NodeManager was killed.
//!
//! The kernel's parent-death signal does not suffice: it follows the thread that started the child,
//! and the thread of one test exits while other tests still use the cluster.

use crate::{
    error::{Error, ErrorKind},
    scratch,
};
use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Environment variable with the cluster id; set in all processes of the cluster.
pub(crate) const CLUSTER_ID_VAR: &str = "TESTBED_CLUSTER";

/// Reads the id and the directory from its input, so that they appear in no process's arguments.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
read -r id
read -r directory
while read -r _; do :; done
tries=0
while [ "$tries" -lt 200 ]; do
    found=$(grep -l -a -s -F "$id" /proc/[0-9]*/environ)
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

/// Timeout of killing all processes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Handle of a watchdog; kills the processes on drop and when this process exits.
#[derive(Debug)]
pub(crate) struct Watcher {
    shell: Child,
    input: String,
    stopped: bool,
}

impl Watcher {
    /// Starts a watcher. It removes `directory` at the end; `None` keeps the files.
    pub(crate) fn start(id: &str, directory: Option<&Path>) -> Result<Watcher, Error> {
        let directory = directory.map(|path| path.display().to_string()).unwrap_or_default();
        let text = format!("{CLUSTER_ID_VAR}={id}\n{directory}\n");
        Ok(Watcher { shell: shell(&text)?, input: text, stopped: false })
    }

    /// Starts a watcher for a long-running program, so that it does not outlive its caller.
    pub(crate) fn guard(command: &mut Command) -> Result<Watcher, Error> {
        let id = scratch::random_id()?;
        command.env(CLUSTER_ID_VAR, &id);
        Watcher::start(&id, None)
    }

    /// Kills all processes now and waits until they have exited.
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        self.stopped = true;
        if finish(&mut self.shell) {
            return Ok(());
        }
        // The watcher itself was killed: a second one does its work.
        match finish(&mut shell(&self.input)?) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::System, "cannot kill all processes of the cluster")),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.stopped
            && let Err(error) = self.stop()
        {
            eprintln!("testbed: {error}");
        }
    }
}

/// Starts the shell in a separate process group, out of reach of Ctrl-C.
fn shell(text: &str) -> Result<Child, Error> {
    let run_error = |error| Error::new(ErrorKind::Missing, format!("cannot run `sh`: {error}"));
    let mut shell = Command::new("sh")
        .args(["-c", SCRIPT])
        .process_group(0)
        .current_dir("/")
        .env_remove(CLUSTER_ID_VAR)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(run_error)?;
    let stdin = shell.stdin.as_mut().expect("stdin is piped");
    stdin.write_all(text.as_bytes()).map_err(run_error)?;
    Ok(shell)
}

fn finish(shell: &mut Child) -> bool {
    shell.stdin = None;
    let ended =
        crate::probe::wait_for("the watcher to exit", TIMEOUT, || shell.try_wait().transpose());
    matches!(ended, Ok(Ok(status)) if status.success())
}
