//! A user's home for one test: its own state directory, and eyes for whatever is left behind in it.
#![allow(dead_code)] // Each test binary uses its own part of this.

#[path = "../user/mod.rs"]
mod user;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
pub use user::*;

/// How long a fact may take to become true before a test fails: more than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A directory with a job file in it and a state directory beside it. Whatever still runs in it when the test ends is
/// ended too.
pub struct Home {
    dir: tempfile::TempDir,
}

/// A process that belongs to a home.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub command: String,
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

    /// The binary, in this home.
    pub fn ydl(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ydl"));
        command.current_dir(self.path()).env("XDG_STATE_HOME", self.path().join("state"));
        for name in ["HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs `ydl` with these words to its end.
    pub fn run(&self, words: &[&str]) -> Ran {
        Ran::from(self.ydl().args(words).output().expect("ydl can be started"))
    }

    /// Submits this job file and waits for its end.
    pub fn submit(&self, yaml: &str) -> Ran {
        self.write("job.yaml", yaml);
        self.run(&["submit", "job.yaml"])
    }

    /// Submits this job file and leaves it running; the id comes back.
    pub fn detach(&self, yaml: &str) -> String {
        self.write("job.yaml", yaml);
        let ran = self.run(&["submit", "--detach", "job.yaml"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.trim().to_owned()
    }

    /// Starts `ydl submit job.yaml` and comes back at once.
    pub fn start(&self, yaml: &str) -> Child {
        // In one moment: one that was started before may be reading what was there.
        let whole = self.write("job.whole", yaml);
        fs::rename(whole, self.path().join("job.yaml")).expect("a file can be put in its place");
        let mut command = self.ydl();
        command.args(["submit", "job.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ydl can be started")
    }

    /// The only job's directory.
    pub fn job(&self) -> PathBuf {
        let jobs = self.path().join("state/ydl/jobs");
        let mut all =
            fs::read_dir(&jobs).expect("there are jobs").map(|job| job.expect("one").path());
        let job = all.next().expect("there is a job");
        assert!(all.next().is_none(), "there is one job");
        job
    }

    /// Waits until the only job has a directory.
    pub fn wait_for_job(&self) {
        self.wait_for("a job", |home| {
            let jobs = fs::read_dir(home.path().join("state/ydl/jobs")).ok()?;
            jobs.flatten().find(|job| job.path().join("job.json").exists()).map(drop)
        });
    }

    /// What the job recorded, as text.
    pub fn facts(&self) -> String {
        fs::read_to_string(self.job().join("history.jsonl")).unwrap_or_default()
    }

    /// Every process that was started in this home: all of them carry its state directory.
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

    /// Processes whose command line contains this.
    pub fn find(&self, part: &str) -> Vec<Process> {
        let mut found = self.processes();
        found.retain(|process| process.command.contains(part));
        found
    }

    /// Waits until this is true, and fails with the words if it never is.
    pub fn wait_for<T>(&self, what: &str, mut fact: impl FnMut(&Home) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = fact(self) {
                return found;
            }
            assert!(
                Instant::now() < end,
                "{what} did not happen; processes: {:?}",
                self.processes()
            );
            // Looked at again and again: nobody tells us when a process or a file appears.
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Waits until nothing of this home runs any more.
    pub fn wait_until_empty(&self) {
        self.wait_for("the end of every process", |home| home.processes().is_empty().then_some(()));
    }

    /// Waits until a file in the job's or the home's directory holds this text.
    pub fn wait_for_text(&self, path: impl Fn(&Home) -> PathBuf, text: &str) {
        self.wait_for(&format!("`{text}`"), |home| {
            fs::read_to_string(path(home)).is_ok_and(|all| all.contains(text)).then_some(())
        });
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Twice, because what is ended may have been starting something.
        for _ in 0..2 {
            for process in self.processes() {
                kill(process.pid, 9);
            }
        }
    }
}

pub fn kill(pid: u32, signal: i32) {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
    // It may be gone already.
    drop(status);
}

/// The words that submit the example of that framework, laid out in this home, with another command of its workers.
pub fn example(home: &Home, framework: &str, run: &str) -> Vec<String> {
    laid_out(home, framework, ["job.yaml", "train.py"], run)
}

/// The same for an example of which these are the job file and the program.
pub fn laid_out(home: &Home, framework: &str, files: [&str; 2], run: &str) -> Vec<String> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in files {
        let from = examples.join(format!("{framework}-digits/{name}"));
        fs::copy(from, home.path().join(name)).expect("the example's file");
    }
    let environment = format!("environment={}", environment_of(framework).display());
    let run = format!("roles.worker.run={run}");
    // A job that hangs fails.
    let end = "timeouts.run=10m";
    let words = ["submit", files[0], "--set", &environment, "--set", &run, "--set", end];
    words.map(String::from).to_vec()
}

/// Submits an example with these words, which ends well, brings its result and leaves nothing behind.
pub fn runs_well(home: &Home, words: &[String]) -> Ran {
    let ran = Ran::from(home.ydl().args(words).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let metrics = home.path().join("result/metrics.json");
    assert!(metrics.exists(), "the model was not copied");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    ran
}

/// Everybody is who he is, is good enough, and says the same after that word.
pub fn agree(ran: &Ran, workers: u32, least: f64, word: &str) {
    for worker in 0..workers {
        let rank = said(ran, worker, "rank");
        assert!(rank.starts_with(&format!("{worker} of {workers}")), "{rank}");
        let accuracy: f64 = said(ran, worker, "test accuracy").parse().expect("a number");
        assert!(accuracy >= least, "{accuracy}");
        assert_eq!(said(ran, worker, word), said(ran, 0, word), "{ran:#?}");
    }
}

/// What a worker has printed last after that word, at the beginning of a line.
pub fn said<'a>(ran: &'a Ran, worker: u32, word: &str) -> &'a str {
    let prefix = format!("worker:{worker} | {word} ");
    let mut lines = ran.out.lines().rev();
    let found = lines.find_map(|line| line.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("no `{prefix}` in {ran:#?}"))
}

/// A program of an example with pauses until the third round, so that there is time to kill it in the middle, on a busy machine
/// too.
pub fn slowly(run: &str, pause: f64) -> String {
    format!("sh -c 'exec {run} $([ $YDL_ROUND -gt 2 ] || echo --pause {pause})'")
}

/// Submits with these words and sees a third round end well: in the first the program that has this variable is killed once
/// worker 1 has printed the one line, in the second it is stopped once worker 1 has printed the other.
pub fn kill_and_stop(home: &Home, words: Vec<String>, lines: [&str; 2], variable: &str) -> Ran {
    let words = restarting(words, 2);
    let silence = ["--set", "timeouts.heartbeat=10s"].map(String::from);
    let child = begin(home, &[&words[..], &silence].concat());
    for (attempt, line, signal) in [(1, lines[0], 9), (2, lines[1], 19)] {
        home.wait_for_text(log_of(&format!("worker/1/{attempt}")), line);
        kill(program_with(home, "python train.py", variable), signal);
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let facts = home.facts();
    assert!(facts.contains(r#""round-started":{"round":3,"#), "{facts}");
    // TensorFlow misses a peer after ten seconds, too, and may be the first to say so.
    let noticed = ["was stopped (SIGSTOP) for ", "heartbeat timeout"];
    assert!(noticed.iter().any(|how| facts.contains(how)), "{facts}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    ran
}

/// Submits with these words and so many restarts, and kills the program that has this variable once worker 1 has printed
/// that; however it ends, with the time that it took from there.
pub fn kill_one(
    home: &Home,
    words: Vec<String>,
    limit: u32,
    line: &str,
    variable: &str,
) -> (Ran, Duration) {
    signal_one(home, &restarting(words, limit), 9, "worker/1", |said| said.contains(line), variable)
}

fn restarting(mut words: Vec<String>, limit: u32) -> Vec<String> {
    let restart =
        format!("restart={{scope: job, limit: {limit}, backoff: {{initial: 10ms, max: 10ms}}}}");
    words.extend(["--set", &restart].map(String::from));
    words
}

/// Submits with these words, sends the program that has this variable a signal once what that task has printed is so, and waits
/// for the end; the time that it took from there.
pub fn signal_one(
    home: &Home,
    words: &[String],
    signal: i32,
    task: &str,
    so: impl Fn(&str) -> bool,
    variable: &str,
) -> (Ran, Duration) {
    let child = begin(home, words);
    let log = log_of(&format!("{task}/1"));
    home.wait_for(&format!("what {task} was to print"), |home| {
        let said = fs::read_to_string(log(home));
        said.is_ok_and(|said| so(&said)).then_some(())
    });
    let began = Instant::now();
    kill(program_with(home, "python train.py", variable), signal);
    (finish(child), began.elapsed())
}

fn begin(home: &Home, words: &[String]) -> Child {
    let mut command = home.ydl();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("ydl");
    home.wait_for_job();
    child
}

fn log_of(attempt: &str) -> impl Fn(&Home) -> PathBuf + use<> {
    let attempt = attempt.to_owned();
    move |home| home.job().join(format!("logs/{attempt}/stdout.0"))
}

/// The process of a program that has this variable.
pub fn program_with(home: &Home, program: &str, variable: &str) -> u32 {
    let has = |process: &&Process| {
        let environ = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let mut variables = environ.split(|b| *b == 0);
        variables.any(|it| it == variable.as_bytes())
    };
    let programs = home.find(program);
    programs.iter().find(has).expect("a program").pid
}
