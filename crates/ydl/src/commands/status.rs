//! `ydl status`: shows the state of a job and the reason for it.

use super::{follow::recorded_history, ls::state_of};
use crate::{
    cli::{self, GlobalArgs},
    client::{
        applications,
        jobs::{JobHandle, JobStatus, RemoteEnd},
        master_client::{MasterClient, block_on, settled_status},
        mirror::Mirror,
        output_locations::{OutputLocation, output_locations},
        resolve::{ResolvedJob, resolve_job},
        wait::{wait_until_finished, wait_until_reported_finished},
    },
    terminal::{self, Paint, clean},
};
use std::{collections::VecDeque, io, time::Duration};
use yarn_native::types::{ApplicationReport, ApplicationState};
use ydl_core::{HistoryEvent, Span, view::TaskState};
use ydl_jobfile::span;
use ydl_os::report::{Exit, Report};
use ydl_proto::{files::JobTarget, messages::JobSnapshot, version::to_json_line};

/// Maximum time for a master to respond.
const WAIT: Duration = Duration::from_secs(5);

/// Number of lines shown of YARN's diagnostics.
const DIAGNOSTICS_MAX: usize = 12;
/// Maximum number of bytes of a live master's history.
const HISTORY_BYTES_MAX: usize = 64 << 20;

/// Reason shown for a lost job. Its agents stop the programs with SIGTERM first, so some may still run.
const LOST: &str = "the job's master died without a result; the agents stop the job's programs";

/// Prints the state of a job. A failed job is not a failure of this command.
pub(crate) fn run(args: cli::StatusArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let wait = args.wait.as_deref().map(span).transpose();
    let wait = wait.map_err(|(what, hint)| Report::bad_input(what).hint(hint))?;
    let wait = wait.map(|Span(ms)| Duration::from_millis(ms));
    block_on(async {
        match resolve_job(args.job.as_deref(), global).await? {
            ResolvedJob::Full(job, mirror) => {
                if let Some(wait) = wait {
                    wait_until_finished(&job, mirror.as_ref(), wait).await;
                }
                show_job(&args, global, &job, mirror.as_deref()).await
            }
            ResolvedJob::ReportOnly { report, why, cluster } => {
                let wait = wait.unwrap_or_default();
                let report = wait_until_reported_finished(&cluster, *report, wait).await;
                print_report(&report, &why, global)
            }
        }
    })
}

async fn show_job(
    args: &cli::StatusArgs,
    global: GlobalArgs,
    job: &JobHandle,
    mirror: Option<&Mirror>,
) -> Result<Exit, Report> {
    let StatusReport { state, snapshot, unreachable, ended } = query(job).await?;
    let report = mirror.and_then(Mirror::last_report);
    let exit = match &unreachable {
        Some(_) => Exit::Unreachable,
        None => Exit::Success,
    };
    let events = last_history(job, args.events);
    if global.json {
        terminal::print_json(&serde_json::json!({
            "id": job.id(),
            "state": state,
            "submitted": job.submitted.at,
            "directory": directory(job),
            "application": report.as_ref().map(application),
            "view": snapshot.as_ref().map(|snapshot| &snapshot.view),
            "usage": snapshot.as_ref().map(|snapshot| &snapshot.usage),
            "metrics": snapshot.as_ref().map(|snapshot| &snapshot.metrics),
            "progress": snapshot.as_ref().map(|snapshot| snapshot.progress),
            "priority": snapshot.as_ref().and_then(|snapshot| snapshot.priority),
            "unreachable": unreachable,
            "events": events,
        }))?;
        return Ok(exit);
    }
    let paint = Paint::of(global.use_color(), &io::stdout());
    let why = match (state, unreachable) {
        ("lost", _) => Some(LOST.to_owned()),
        (_, None) => ended,
        (_, Some(why)) => Some(format!("the master is running but does not respond: {why}")),
    };
    let view = snapshot.as_ref().map(|snapshot| &snapshot.view);
    let outputs = output_locations(job, mirror, view).await;
    let page =
        text(job, state, snapshot.as_deref(), why, &outputs, &events, report.as_ref(), paint);
    terminal::print(page)?;
    Ok(exit)
}

/// Prints the application report alone, where the job's own files are unavailable.
fn print_report(report: &ApplicationReport, why: &str, global: GlobalArgs) -> Result<Exit, Report> {
    if global.json {
        terminal::print_json(&serde_json::json!({
            "id": report.id.to_string(),
            "state": applications::state_of(report),
            "application": application(report),
            "unreachable": why,
        }))?;
        return Ok(Exit::Success);
    }
    let paint = Paint::of(global.use_color(), &io::stdout());
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| lines.push(entry(name, value, paint));
    line("job", &report.id.to_string());
    line("name", &report.name);
    line("state", applications::state_of(report));
    line("files", &format!("unavailable: {why}"));
    application_lines(report, &mut line);
    terminal::print(lines.join("\n") + "\n")?;
    Ok(Exit::Success)
}

/// Prints an application report.
fn application_lines(report: &ApplicationReport, line: &mut dyn FnMut(&str, &str)) {
    line("user", &report.user);
    line("queue", &report.queue);
    line("priority", &report.priority.to_string());
    if let Some(attempt) = &report.attempt {
        line("master", &format!("attempt {}", attempt.number));
    }
    if report.state == ApplicationState::Running {
        line("address", &format!("{}:{}", report.host, report.rpc_port));
    }
    if let Some(usage) = report.usage.as_ref().filter(|_| !report.state.is_over()) {
        let (n, used) = (usage.containers, &usage.used);
        line("containers", &format!("{n}, with {used}"));
    }
    line("page", &report.tracking_url);
    let diagnostics = report.diagnostics.trim();
    for (n, text) in diagnostics.lines().take(DIAGNOSTICS_MAX).enumerate() {
        line(if n == 0 { "yarn" } else { "" }, text);
    }
}

/// Returns an application report as JSON.
pub(super) fn application(report: &ApplicationReport) -> serde_json::Value {
    serde_json::json!({
        "name": report.name,
        "tags": report.tags,
        "host": report.host,
        "port": report.rpc_port,
        "progress": report.progress,
        "started": report.start_time,
        "finished": report.finish_time,
        "state": report.state.to_string(),
        "final_status": report.final_status.to_string(),
        "user": report.user,
        "queue": report.queue,
        "priority": report.priority,
        "attempt": report.attempt.map(|attempt| attempt.number),
        "tracking_url": report.tracking_url,
        "diagnostics": report.diagnostics,
        "containers": report.usage.as_ref().map(|usage| usage.containers),
        "memory_mib_seconds": report.usage.as_ref().map(|usage| usage.memory_mib_seconds),
        "vcore_seconds": report.usage.as_ref().map(|usage| usage.vcore_seconds),
    })
}

/// Returns the location of the job's files.
fn directory(job: &JobHandle) -> String {
    match &job.submitted.target {
        JobTarget::Local(_) => job.dir.path().display().to_string(),
        JobTarget::Yarn(staged) => staged.dir.clone(),
    }
}

fn entry(name: &str, value: &str, paint: Paint) -> String {
    format!("{}{}", paint.dim(&format!("{name:<11}")), clean(value))
}

/// Known state of a job.
struct StatusReport {
    state: &'static str,
    snapshot: Option<Box<JobSnapshot>>,
    /// Reason why the running master could not be queried.
    unreachable: Option<String>,
    /// Reason why the job has not started or left no result, for a job on a cluster.
    ended: Option<String>,
}

impl StatusReport {
    fn view(snapshot: Box<JobSnapshot>) -> StatusReport {
        StatusReport {
            state: state_of(&snapshot),
            snapshot: Some(snapshot),
            unreachable: None,
            ended: None,
        }
    }

    fn ended(ended: RemoteEnd) -> StatusReport {
        StatusReport {
            ended: Some("the job left no result; the cluster's report is below".to_owned()),
            ..StatusReport::state_only(ended.state)
        }
    }

    fn starting(job: &JobHandle) -> StatusReport {
        match job.remote {
            Some(_) => StatusReport {
                ended: Some("waiting for the master's container".to_owned()),
                ..StatusReport::state_only("accepted")
            },
            None => StatusReport::state_only("starting"),
        }
    }

    fn state_only(state: &'static str) -> StatusReport {
        StatusReport { state, snapshot: None, unreachable: None, ended: None }
    }
}

async fn query(job: &JobHandle) -> Result<StatusReport, Report> {
    let address = match settled_status(job).await {
        JobStatus::Finished(last) => return Ok(StatusReport::view(last)),
        JobStatus::Lost => return Ok(StatusReport::state_only("lost")),
        JobStatus::NoResult(ended) => return Ok(StatusReport::ended(ended)),
        JobStatus::Starting => return Ok(StatusReport::starting(job)),
        JobStatus::Running(address) => address,
    };
    let master = match MasterClient::to(&job.dir, &address) {
        Ok(master) => master,
        // Viewers of other users' jobs have no token for the master.
        Err(report) if job.remote.is_some() => {
            return Ok(StatusReport {
                unreachable: Some(report.what),
                ..StatusReport::state_only("running")
            });
        }
        Err(report) => return Err(report),
    };
    let why = match master.view(0, WAIT).await {
        Ok(Some(snapshot)) => {
            if job.remote.is_some() {
                copy_history(job, &master).await;
            }
            return Ok(StatusReport::view(Box::new(snapshot)));
        }
        Ok(None) => format!("no response within {}s", WAIT.as_secs()),
        Err(error) => error.to_string(),
    };
    // The job may have ended during the call.
    Ok(match job.status() {
        JobStatus::Finished(last) => StatusReport::view(last),
        JobStatus::Lost => StatusReport::state_only("lost"),
        JobStatus::NoResult(ended) => StatusReport::ended(ended),
        JobStatus::Starting | JobStatus::Running(_) => {
            StatusReport { unreachable: Some(why), ..StatusReport::state_only("no-answer") }
        }
    })
}

/// Copies the history of a live master to the job's local directory. A failure only shortens the list of events.
async fn copy_history(job: &JobHandle, master: &MasterClient) {
    let (mut lines, mut after) = (Vec::new(), 0);
    while let Ok(Some(events)) = master.history(after, Duration::ZERO).await {
        for event in &events.events {
            lines.extend(to_json_line(event).unwrap_or_default());
        }
        if events.events.is_empty() || events.next <= after || lines.len() > HISTORY_BYTES_MAX {
            break;
        }
        after = events.next;
    }
    let _ = std::fs::write(job.dir.history_file(), lines);
}

/// Returns the last recorded events.
fn last_history(job: &JobHandle, count: usize) -> Vec<HistoryEvent> {
    let mut last = VecDeque::new();
    for event in recorded_history(job, 0) {
        last.push_back(event);
        if last.len() > count {
            last.pop_front();
        }
    }
    last.into()
}

#[allow(clippy::too_many_arguments)]
fn text(
    job: &JobHandle,
    state: &str,
    snapshot: Option<&JobSnapshot>,
    why: Option<String>,
    outputs: &[OutputLocation],
    events: &[HistoryEvent],
    report: Option<&ApplicationReport>,
    paint: Paint,
) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| lines.push(entry(name, value, paint));
    line("job", job.id());
    line("state", state);
    if let Some(why) = why {
        line("reason", &why);
        if job.remote.is_none() {
            line("master log", &job.dir.master_log().display().to_string());
        }
    }
    if let Some(snapshot) = snapshot {
        line("reason", &snapshot.view.reason);
        line("round", &snapshot.view.round.to_string());
        if snapshot.progress > 0.0 {
            line("progress", &format!("{:.0} %", (snapshot.progress * 100.0).floor()));
        }
        line("ran", &(snapshot.view.now - snapshot.view.started).to_string());
        for (n, text) in terminal::sizes_of_roles(snapshot).iter().enumerate() {
            line(if n == 0 { "elastic" } else { "" }, text);
        }
        for (n, text) in terminal::metrics_of_roles(snapshot).iter().enumerate() {
            line(if n == 0 { "metrics" } else { "" }, text);
        }
    }
    line("submitted", &format!("{} ago", terminal::span_since(job.submitted.at)));
    line("directory", &directory(job));
    for task in snapshot.iter().flat_map(|snapshot| &snapshot.view.tasks) {
        let role = job.submitted.spec.role(&task.task.role);
        let has_ports = role.is_some_and(|role| !role.ports.is_empty());
        if has_ports && task.state == TaskState::Running {
            line("ports", &format!("ydl port-forward {} {}", job.id(), task.task));
        }
    }
    for output in outputs {
        line("output", &output.line);
    }
    for warning in outputs.iter().filter_map(|output| output.warning.as_ref()) {
        line("warning", warning);
    }
    if let Some(report) = report {
        application_lines(report, &mut line);
    }
    if let Some(snapshot) = snapshot {
        lines.push(String::new());
        lines.extend(terminal::task_table(snapshot, paint));
    }
    if !events.is_empty() {
        lines.push(String::new());
        lines.push(paint.dim("last events"));
        for event in events {
            let ago = terminal::span_since(event.at).to_string();
            lines.push(format!("  {ago:>8} ago  {}", clean(&event.kind.to_string())));
        }
    }
    lines.join("\n") + "\n"
}
