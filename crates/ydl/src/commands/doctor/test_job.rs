//! Test job that runs `true`.
//!
//! It is submitted by a child process, `ydl submit --json`, so that the check takes the same path as a user's job and
//! can stop a submission that hangs.

use super::checklist::{Checklist, millis};
use crate::{cli::Cluster, terminal::clean};
use serde::Deserialize;
use serde_json::json;
use std::{collections::VecDeque, io, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::{Child, Command},
    time::{Instant, timeout, timeout_at},
};
use ydl_core::{
    HistoryEvent, JobSpec, JobView, NodeName, Outcome, Span, Time,
    history::{Disposition, HistoryKind},
};
use ydl_jobfile::Flags;
use ydl_os::{
    process::{Identity, Signal},
    reason,
    report::{Exit, Report},
};

const JOB: &str = "job";
const NAME: &str = "ydl-doctor";
const MEMORY: &str = "128MiB";
const COMMAND: &str = "true";
/// Maximum time for the job in addition to its queue wait: preflight, upload of the binary, container starts.
const OVERHEAD_MAX: Duration = Duration::from_secs(5 * 60);
/// Maximum time for the submitting process to end after SIGINT.
const STOPPING_MAX: Duration = Duration::from_secs(60);
/// Maximum length of a line read from the submitting process.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of bytes read from each of its streams.
const BYTES_MAX: u64 = 16 << 20;
/// Number of lines kept from the end of its stderr.
const LINES_MAX: usize = 200;

/// Settings of the test job.
#[derive(Clone, Debug)]
pub(crate) struct TestJob {
    pub cluster: Cluster,
    pub queue: Option<String>,
    pub label: Option<String>,
    pub staging: Option<String>,
    /// Maximum wait for containers.
    pub wait: Span,
}

impl TestJob {
    /// Overrides, in the form that `--set` takes.
    fn sets(&self) -> Vec<String> {
        let mut sets = vec![format!("timeouts.allocation={}ms", self.wait.0)];
        let keys =
            [("queue", &self.queue), ("node_label", &self.label), ("staging", &self.staging)];
        for (key, value) in keys {
            // Quoted, because a name may look like a number.
            let value = value.as_deref().map(|value| json!(value).to_string());
            sets.extend(value.map(|value| format!("{key}={value}")));
        }
        sets
    }

    /// Returns the spec that `submit` builds for this job.
    pub(crate) fn spec(&self) -> Result<JobSpec, Report> {
        let flags = Flags {
            name: Some(NAME.into()),
            memory: Some(MEMORY.into()),
            command: vec![COMMAND.into()],
            ..Flags::default()
        };
        let spec = flags.source().and_then(|mut source| {
            self.sets().iter().for_each(|set| source.set(set));
            if self.cluster == Cluster::Yarn {
                source.for_cluster();
            }
            source.job()
        });
        spec.map_err(|diagnostics| {
            let first = diagnostics.all.into_iter().next();
            let (what, hint) =
                first.map_or_else(Default::default, |first| (first.what, first.hint));
            Report { what, hint, exit: Exit::BadInput }
        })
    }

    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let cluster = match self.cluster {
            Cluster::Yarn => "yarn",
            Cluster::Local => "local",
        };
        command.args(["submit", "--json", "--cluster", cluster]);
        command.args(["--name", NAME, "--memory", MEMORY]);
        for set in self.sets() {
            command.args(["--set", &set]);
        }
        command
            .args(["--", COMMAND])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// Runs the test job and records the time of each of its phases.
pub(crate) async fn run_check(test_job: &TestJob, checklist: &mut Checklist) -> Result<(), Report> {
    match run_job(test_job).await {
        Err(why) => checklist.fail(JOB, why),
        Ok(timings) => {
            let phases = timings.phases();
            let parts: Vec<_> =
                phases.iter().map(|(name, took)| format!("{name} {}", seconds(*took))).collect();
            let message = format!(
                "{} ran on `{}` in {}: {}",
                timings.id,
                timings.node,
                seconds(timings.total),
                parts.join(", ")
            );
            let phases =
                phases.map(|(name, took)| (name.replace(' ', "_") + "_ms", json!(millis(took))));
            checklist.ok_with(JOB, message, ("phases", phases.into_iter().collect()))
        }
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// Times of a test job that has ended.
#[derive(Debug)]
struct JobTimings {
    id: String,
    node: NodeName,
    total: Duration,
    /// Time until the job was submitted.
    submitting: Duration,
    /// This and the following times are of the master's clock.
    started: Time,
    ran: Time,
    ended: Time,
    finished: Time,
}

impl JobTimings {
    /// Returns the phases in order. The remainder of the total time counts as `master`: the wait for its container, its
    /// start, and the delay until the client sees the end.
    fn phases(&self) -> [(&'static str, Duration); 5] {
        let between = |from: Time, to: Time| Duration::from_millis((to - from).0);
        let alive = between(self.started, self.finished);
        let master = self.total.saturating_sub(self.submitting + alive);
        [
            ("submit", self.submitting),
            ("master", master),
            ("container", between(self.started, self.ran)),
            ("program", between(self.ran, self.ended)),
            ("end", between(self.ended, self.finished)),
        ]
    }
}

/// Line printed by `submit --json`.
#[derive(Debug, Deserialize)]
struct PrintedLine {
    job: Option<SubmittedLine>,
    event: Option<HistoryEvent>,
    result: Option<JobView>,
    ended: Option<EndLine>,
}

#[derive(Debug, Deserialize)]
struct SubmittedLine {
    id: String,
}

#[derive(Debug, Deserialize)]
struct EndLine {
    state: String,
    diagnostics: String,
}

/// Output of the submitting process.
#[derive(Debug, Default)]
struct TestJobOutput {
    id: Option<(String, Duration)>,
    events: Vec<HistoryEvent>,
    result: Option<JobView>,
    ended: Option<EndLine>,
}

async fn run_job(test_job: &TestJob) -> Result<JobTimings, Report> {
    let failed =
        |error: io::Error| Report::internal(format!("cannot submit a job: {}", reason(&error)));
    let began = Instant::now();
    let mut child = test_job.command().map_err(failed)?.spawn().map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (Some(out), Some(err)) = (out, err) else {
        return Err(Report::internal("cannot read the output of `ydl submit`"));
    };
    let mut output = TestJobOutput::default();
    let mut stderr_lines = VecDeque::new();
    let deadline = began + Duration::from_millis(test_job.wait.0) + OVERHEAD_MAX;
    let reading = async {
        tokio::join!(read_stdout(out, began, &mut output), read_stderr(err, &mut stderr_lines));
        child.wait().await
    };
    let ended = timeout_at(deadline, reading).await;
    let code = match ended {
        Ok(status) => status.map_err(failed)?.code(),
        Err(_) => {
            stop(child).await;
            return Err(timeout_report(&output, began.elapsed()));
        }
    };
    let total = began.elapsed();
    match timings(&output, total) {
        Some(timings) if code == Some(0) => Ok(timings),
        _ => Err(failure_report(output, &stderr_lines, code)),
    }
}

/// Interrupts the submitting process so that it stops its job; kills it after [`STOPPING_MAX`].
async fn stop(mut child: Child) {
    if let Some(process) = child.id().and_then(Identity::of) {
        // Fails only if the process has already ended.
        let _ = process.signal(Signal::INT);
    }
    if timeout(STOPPING_MAX, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn timeout_report(output: &TestJobOutput, after: Duration) -> Report {
    let Some((id, _)) = &output.id else {
        let what = format!("no job was submitted after {}", seconds(after));
        return Report::new(Exit::Unreachable, what)
            .hint("check the network between this machine and the cluster");
    };
    let what = format!("{id} was not over after {}, and was stopped", seconds(after));
    let hint = format!("see `ydl status {id}` for its progress; `--wait` sets a longer timeout");
    Report::new(Exit::JobFailed, what).hint(hint)
}

async fn read_stdout(out: impl AsyncRead + Unpin, began: Instant, output: &mut TestJobOutput) {
    let mut out = BufReader::new(out.take(BYTES_MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut out).take(LINE_BYTES_MAX);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // Other lines are output of the job.
        let Ok(line) = serde_json::from_slice::<PrintedLine>(&line) else {
            continue;
        };
        if let Some(job) = line.job {
            output.id = Some((job.id, began.elapsed()));
        }
        output.events.extend(line.event);
        output.result = line.result.or(output.result.take());
        output.ended = line.ended.or(output.ended.take());
    }
}

async fn read_stderr(err: impl AsyncRead + Unpin, stderr_lines: &mut VecDeque<String>) {
    let mut err = BufReader::new(err.take(BYTES_MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        match err.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        stderr_lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        if stderr_lines.len() > LINES_MAX {
            stderr_lines.pop_front();
        }
    }
}

/// Returns the job's times if it succeeded.
fn timings(output: &TestJobOutput, total: Duration) -> Option<JobTimings> {
    let when = |is: fn(&HistoryKind) -> bool| {
        let mut events = output.events.iter();
        events.find(|event| is(&event.kind)).map(|event| event.at)
    };
    let node = output.events.iter().find_map(|event| match &event.kind {
        HistoryKind::AttemptStarted { node, .. } => Some(node.clone()),
        _ => None,
    })?;
    let (id, submitting) = output.id.clone()?;
    let succeeded = matches!(output.result.as_ref()?.outcome, Some(Outcome::Succeeded));
    let finished = output.result.as_ref()?.now;
    succeeded.then_some(JobTimings {
        id,
        node,
        total,
        submitting,
        started: when(|kind| matches!(kind, HistoryKind::JobStarted))?,
        ran: when(|kind| matches!(kind, HistoryKind::AttemptStarted { .. }))?,
        ended: when(|kind| {
            matches!(kind, HistoryKind::AttemptEnded { disposition: Disposition::NoAction, .. })
        })
        .or_else(|| when(|kind| matches!(kind, HistoryKind::AttemptEnded { .. })))?,
        finished,
    })
}

/// Returns the cause of the failure: the job's outcome, else the cluster's diagnostics, else the error that `submit`
/// printed.
fn failure_report(
    output: TestJobOutput,
    stderr_lines: &VecDeque<String>,
    code: Option<i32>,
) -> Report {
    let id = output.id.as_ref().map(|(id, _)| id.clone());
    let hint = id.as_ref().map(|id| format!("see `ydl status {id}` and `ydl logs {id}`"));
    let exit = match code {
        Some(2) => Exit::BadInput,
        Some(122) => Exit::Unreachable,
        Some(123) | None => Exit::Internal,
        Some(_) => Exit::JobFailed,
    };
    let id = id.unwrap_or_default();
    let what = match (&output.result, &output.ended) {
        (Some(JobView { outcome: Some(outcome), .. }), _) => format!("{id} {outcome}"),
        (_, Some(ended)) => format!("{id} {}: {}", ended.state, ended.diagnostics.trim()),
        _ => {
            let line = |mark: &str| {
                let found = stderr_lines.iter().find_map(|line| line.strip_prefix(mark));
                found.map(str::to_owned)
            };
            let what = line("error: ").or_else(|| stderr_lines.back().cloned());
            return Report {
                what: clean(&what.unwrap_or_else(|| "`ydl submit` failed silently".to_owned())),
                hint: line("hint: ").or(hint),
                exit,
            };
        }
    };
    Report { what: clean(&what), hint, exit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_and_are_never_negative() {
        let timings = JobTimings {
            id: "j".into(),
            node: NodeName::from("n1"),
            total: Duration::from_secs(10),
            submitting: Duration::from_secs(1),
            started: Time(1_000_000),
            ran: Time(1_002_000),
            ended: Time(1_003_000),
            finished: Time(1_004_000),
        };
        let took: Vec<_> = timings.phases().iter().map(|(_, took)| took.as_secs()).collect();
        assert_eq!(took, [1, 5, 2, 1, 1]);
        let reversed = JobTimings { ran: Time(9), total: Duration::from_secs(1), ..timings };
        assert!(reversed.phases().iter().all(|(_, took)| took.as_secs() < 3000));
    }

    #[tokio::test]
    async fn the_failure_report_prefers_the_jobs_end_to_the_stderr_of_submit() {
        let mut stderr_lines = VecDeque::new();
        let err: &[u8] = b"note: so\nerror: cannot write `x`\n\nhint: make room\n";
        read_stderr(err, &mut stderr_lines).await;
        let report = failure_report(TestJobOutput::default(), &stderr_lines, Some(123));
        assert_eq!(report.what, "cannot write `x`");
        assert_eq!(report.hint.as_deref(), Some("make room"));
        assert_eq!(report.exit, Exit::Internal);

        let mut output = TestJobOutput::default();
        let out: &[u8] = b"{\"job\": {\"id\": \"a1\", \"directory\": \"d\"}}\nnoise\n\
            {\"ended\": {\"state\": \"failed\", \"diagnostics\": \"no such class\"}}\n";
        read_stdout(out, Instant::now(), &mut output).await;
        let report = failure_report(output, &stderr_lines, Some(120));
        assert_eq!(report.what, "a1 failed: no such class");
        assert_eq!(report.exit, Exit::JobFailed);
    }
}
