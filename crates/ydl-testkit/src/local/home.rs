//! A user's home directory for one test.

use super::WAIT_TIMEOUT;
use crate::{CommandOutput, wait_until};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A directory with a job file and a state directory of its own. Dropping it kills the processes that
/// were started in it.
#[derive(Debug)]
pub struct Home {
    dir: tempfile::TempDir,
}

/// A process that was started in a home.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

impl Default for Home {
    fn default() -> Home {
        Home::new()
    }
}

impl Home {
    pub fn new() -> Home {
        Home { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// Returns a command of the binary in this home, without a cluster's configuration.
    pub fn ydl(&self) -> Command {
        let mut command = Command::new(crate::ydl());
        command.current_dir(self.path()).env("XDG_STATE_HOME", self.path().join("state"));
        for name in ["HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs `ydl` with these arguments to its end.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.ydl().args(arguments).output();
        CommandOutput::from(output.expect("ydl can be started"))
    }

    /// Submits a job file and waits for the end of the job.
    pub fn submit(&self, yaml: &str) -> CommandOutput {
        self.write("job.yaml", yaml);
        self.run(&["submit", "job.yaml"])
    }

    /// Submits a job file detached, and returns the id of the job.
    pub fn detach(&self, yaml: &str) -> String {
        self.write("job.yaml", yaml);
        let output = self.run(&["submit", "--detach", "job.yaml"]);
        assert_eq!(output.code, 0, "{output:?}");
        output.stdout.trim().to_owned()
    }

    /// Starts `ydl submit job.yaml` without waiting for it.
    pub fn start(&self, yaml: &str) -> Child {
        // Renamed into place, because a command that was started before may be reading the old file.
        let complete = self.write("job.complete", yaml);
        fs::rename(complete, self.path().join("job.yaml")).expect("a file can be renamed");
        let mut command = self.ydl();
        command.args(["submit", "job.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ydl can be started")
    }

    /// Returns the directory of the only job.
    pub fn job(&self) -> PathBuf {
        let jobs = fs::read_dir(self.path().join("state/ydl/jobs")).expect("a directory of jobs");
        let jobs: Vec<_> = jobs.map(|job| job.expect("an entry").path()).collect();
        match &jobs[..] {
            [job] => job.clone(),
            others => panic!("there is not exactly one job: {others:?}"),
        }
    }

    /// Waits until the only job has a directory.
    pub fn wait_for_job(&self) {
        self.wait_for("a job", |home| {
            let jobs = fs::read_dir(home.path().join("state/ydl/jobs")).ok()?;
            jobs.flatten().find(|job| job.path().join("job.json").exists()).map(drop)
        });
    }

    /// Returns the text of the only job's `history.jsonl`.
    pub fn history(&self) -> String {
        fs::read_to_string(self.job().join("history.jsonl")).unwrap_or_default()
    }

    /// Returns the processes that were started in this home; their environment has its state directory.
    pub fn processes(&self) -> Vec<Process> {
        let mark = format!("XDG_STATE_HOME={}", self.path().join("state").display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("/proc").flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid else { continue };
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.split(|b| *b == 0).any(|variable| variable == mark.as_bytes()) {
                let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push(Process { pid, command });
            }
        }
        found
    }

    /// Returns the processes of this home whose command line contains `part`.
    pub fn find(&self, part: &str) -> Vec<Process> {
        let mut found = self.processes();
        found.retain(|process| process.command.contains(part));
        found
    }

    /// Polls until `condition` returns a value; panics after [`WAIT_TIMEOUT`].
    pub fn wait_for<T>(&self, event: &str, mut condition: impl FnMut(&Home) -> Option<T>) -> T {
        let context = || format!("processes: {:?}", self.processes());
        let interval = Duration::from_millis(5);
        wait_until(event, WAIT_TIMEOUT, interval, context, || condition(self))
    }

    /// Waits until all processes of this home have ended.
    pub fn wait_until_empty(&self) {
        self.wait_for("the end of every process", |home| home.processes().is_empty().then_some(()));
    }

    /// Waits until a file contains this text.
    pub fn wait_for_text(&self, path: impl Fn(&Home) -> PathBuf, text: &str) {
        self.wait_for(&format!("`{text}`"), |home| {
            fs::read_to_string(path(home)).is_ok_and(|all| all.contains(text)).then_some(())
        });
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Twice, because a killed process may have been starting another.
        for _ in 0..2 {
            for process in self.processes() {
                kill(process.pid, 9);
            }
        }
    }
}

/// Sends a signal to a process, which may have ended.
pub fn kill(pid: u32, signal: i32) {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
    drop(status);
}

/// Returns the process whose command line contains `program` and whose environment has `variable`.
pub fn program_with_variable(home: &Home, program: &str, variable: &str) -> u32 {
    let has = |process: &&Process| {
        let environ = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let mut variables = environ.split(|b| *b == 0);
        variables.any(|it| it == variable.as_bytes())
    };
    let programs = home.find(program);
    programs.iter().find(has).expect("a program").pid
}
