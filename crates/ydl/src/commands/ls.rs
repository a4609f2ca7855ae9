//! `ydl ls`: lists the jobs of this machine and the user's jobs on the cluster.

use crate::{
    cli::{self, Cluster, GlobalArgs},
    client::{
        applications, cluster,
        jobs::{self, JobHandle, JobStatus, LocalJobs},
        master_client::{MasterClient, block_on},
    },
    terminal::{self, Cell, Paint},
};
use std::{io, time::Duration};
use tokio::task::JoinSet;
use yarn_native::types::{ApplicationReport, ApplicationState};
use ydl_core::{Outcome, Time};
use ydl_os::report::{Exit, Report};
use ydl_proto::messages::JobSnapshot;

/// Number of jobs shown without `--all`.
const SHOWN_MAX: usize = 20;
/// Number of jobs of another version that are reported individually.
const UNSUPPORTED_MAX: usize = 3;
/// Maximum time for a live master to respond.
const RESPONSE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of masters queried concurrently.
const REQUESTS_MAX: usize = 32;

/// A job in the list.
struct Row {
    id: String,
    name: String,
    submitted: Time,
    state: &'static str,
    tasks: String,
    outcome: String,
    object: serde_json::Value,
}

impl Row {
    /// Creates the row of a job on a cluster from the ResourceManager's report.
    fn from_application(report: ApplicationReport) -> Row {
        let state = applications::state_of(&report);
        let containers = report.usage.as_ref().map(|usage| usage.containers);
        let all = applications::tasks_of(&report);
        let tasks = match (report.state, containers) {
            (ApplicationState::Running, Some(n)) => task_counts(n, all),
            _ => all.map_or(String::new(), |all| all.to_string()),
        };
        let outcome = match state {
            "failed" | "killed" | "accepted" => short_diagnostics(&report.diagnostics).to_owned(),
            _ => String::new(),
        };
        let submitted = Time(u64::try_from(report.start_time).unwrap_or(0));
        let id = report.id.to_string();
        Row {
            object: serde_json::json!({
                "id": id,
                "name": report.name,
                "state": state,
                "tasks": all,
                "submitted": submitted,
                "queue": report.queue,
                "diagnostics": report.diagnostics,
                "cluster": "yarn",
                "application": super::status::application(&report),
            }),
            id,
            name: report.name,
            submitted,
            state,
            tasks,
            outcome,
        }
    }

    /// Creates the row of a job on this machine.
    fn from_local(job: JobHandle, state: &'static str, viewed: Option<Box<JobSnapshot>>) -> Row {
        let spec = &job.submitted.spec;
        let tasks = match &viewed {
            Some(viewed) if viewed.view.outcome.is_none() => {
                let running: u32 = viewed.view.roles.iter().map(|role| role.running).sum();
                format!("{running}/{}", viewed.view.tasks.len())
            }
            _ => spec.task_count().to_string(),
        };
        let outcome = match (&viewed, state) {
            (_, "lost") => "its master died".to_string(),
            (Some(viewed), _) => viewed.view.outcome.as_ref().map_or(String::new(), outcome_text),
            (None, _) => String::new(),
        };
        Row {
            object: object(&job, state, viewed.as_deref()),
            id: job.id().to_owned(),
            name: spec.name.clone(),
            submitted: job.submitted.at,
            state,
            tasks,
            outcome,
        }
    }
}

/// Prints the table.
pub(crate) fn run(args: cli::LsArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let LocalJobs { mut jobs, unsupported } = match global.cluster {
        Some(Cluster::Yarn) => LocalJobs::default(),
        Some(Cluster::Local) | None => jobs::list()?,
    };
    let mut all = jobs.len();
    for report in unsupported.values().take(UNSUPPORTED_MAX) {
        terminal::message(report.to_string());
    }
    if unsupported.len() > UNSUPPORTED_MAX {
        let n = unsupported.len() - UNSUPPORTED_MAX;
        terminal::message(format!("… and {n} more of another version"));
    }
    if !args.all {
        jobs.truncate(SHOWN_MAX);
    }
    let cluster = cluster::select(global)?;
    let (rows, exit) = block_on(async {
        let mut rows = rows_of(jobs).await?;
        let mut exit = Exit::Success;
        let listed = match &cluster {
            Some(cluster) => applications::list(cluster).await,
            None => Ok(Vec::new()),
        };
        match listed {
            Ok(reports) => {
                all += reports.len();
                rows.extend(reports.into_iter().map(Row::from_application));
            }
            // An unreachable cluster does not hide the jobs of this machine, but the list is incomplete.
            Err(report) if !rows.is_empty() => {
                terminal::message(report.to_string());
                exit = report.exit;
            }
            Err(report) => return Err(report),
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.submitted));
        if !args.all {
            rows.truncate(SHOWN_MAX);
        }
        Ok((rows, exit))
    })?;
    if global.json {
        for row in &rows {
            terminal::print_json(&row.object)?;
        }
        return Ok(exit);
    }
    if rows.is_empty() {
        terminal::message(match cluster {
            Some(_) => "no jobs",
            None => "no jobs on this machine",
        });
        return Ok(Exit::Success);
    }
    let paint = Paint::of(global.use_color(), &io::stdout());
    let head = ["JOB", "NAME", "STATE", "TASKS", "AGE", "OUTCOME"];
    let cells = rows.iter().map(|row| cells(row, paint)).collect();
    terminal::print(terminal::table(&head, cells, None).join("\n") + "\n")?;
    if all > rows.len() {
        terminal::message(format!("… and {} older ones: `ydl ls --all`", all - rows.len()));
    }
    Ok(exit)
}

/// Queries the live masters concurrently, so that a slow one does not delay the others.
async fn rows_of(jobs: Vec<JobHandle>) -> Result<Vec<Row>, Report> {
    let mut rows: Vec<Option<Row>> = Vec::new();
    let mut requests = JoinSet::new();
    for (n, job) in jobs.into_iter().enumerate() {
        rows.push(None);
        while requests.len() >= REQUESTS_MAX {
            if let Some(Ok((n, row))) = requests.join_next().await {
                set_row(&mut rows, n, row);
            }
        }
        requests.spawn(async move { (n, row(job).await) });
    }
    while let Some(response) = requests.join_next().await {
        if let Ok((n, row)) = response {
            set_row(&mut rows, n, row);
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

fn set_row(rows: &mut [Option<Row>], n: usize, row: Row) {
    if let Some(slot) = rows.get_mut(n) {
        *slot = Some(row);
    }
}

async fn row(job: JobHandle) -> Row {
    if let Err(report) = job.check_versions() {
        terminal::message(report.to_string());
        return Row::from_local(job, "unsupported", None);
    }
    let (state, viewed) = match job.status() {
        JobStatus::Starting => ("starting", None),
        JobStatus::Lost => ("lost", None),
        JobStatus::NoResult(ended) => (ended.state, None),
        JobStatus::Finished(last) => (state_of(&last), Some(last)),
        JobStatus::Running(address) => {
            let response = async {
                MasterClient::to(&job.dir, &address).ok()?.view(0, RESPONSE_MAX).await.ok()?
            };
            match tokio::time::timeout(RESPONSE_MAX, response).await {
                Ok(Some(viewed)) => (state_of(&viewed), Some(Box::new(viewed))),
                Ok(None) | Err(_) => ("no-answer", None),
            }
        }
    };
    Row::from_local(job, state, viewed)
}

/// Returns the name of a job's state.
pub(super) fn state_of(viewed: &JobSnapshot) -> &'static str {
    viewed.view.word()
}

fn cells(row: &Row, paint: Paint) -> Vec<Cell> {
    let state = Cell::painted(row.state, |word| match word {
        "running" => paint.bold(word),
        "succeeded" => paint.green(word),
        "failed" | "lost" => paint.red(word),
        _ => word.to_string(),
    });
    let age = terminal::span_since(row.submitted).to_string();
    vec![
        row.id.as_str().into(),
        row.name.as_str().into(),
        state,
        row.tasks.as_str().into(),
        age.into(),
        row.outcome.as_str().into(),
    ]
}

/// Formats the number of running tasks, without the master's container, and of all tasks. A job may have grown since it
/// recorded its size.
fn task_counts(containers: i32, all: Option<u64>) -> String {
    let running = u64::try_from(i64::from(containers) - 1).unwrap_or(0);
    match all {
        Some(all) => format!("{running}/{}", all.max(running)),
        None => running.to_string(),
    }
}

/// Shortens a job's diagnostics to the part that other columns do not show.
fn short_diagnostics(diagnostics: &str) -> &str {
    let line = diagnostics.trim().lines().next().unwrap_or_default();
    let line = line.split_once("; logs are in `").map_or(line, |(outcome, _)| outcome);
    ["the job failed: ", "the job was killed "]
        .iter()
        .find_map(|state| line.strip_prefix(state))
        .unwrap_or(line)
}

/// Shortens the outcome to the part that the state does not show.
fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Succeeded => String::new(),
        Outcome::Failed(cause) => cause.to_string(),
        Outcome::Killed { by } => format!("by {by}"),
    }
}

fn object(job: &JobHandle, state: &str, viewed: Option<&JobSnapshot>) -> serde_json::Value {
    let submitted = &job.submitted;
    let outcome = viewed.and_then(|viewed| viewed.view.outcome.as_ref());
    serde_json::json!({
        "id": submitted.id,
        "name": submitted.spec.name,
        "state": state,
        "tasks": submitted.spec.task_count(),
        "submitted": submitted.at,
        "outcome": outcome,
        "directory": job.dir.path(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_repeats_neither_the_state_nor_the_location_of_logs() {
        let logs = "logs are in `hdfs://nn:8020/user/me/.ydl/jobs/application_1_0001/logs`";
        let short = |text: &str| short_diagnostics(&format!("{text}; {logs}")).to_owned();
        assert_eq!(short("the job was killed by Ctrl-C"), "by Ctrl-C");
        assert_eq!(
            short("the job failed: worker:0 exited with code 1"),
            "worker:0 exited with code 1"
        );
        assert_eq!(short_diagnostics("AM container is launched\nmore"), "AM container is launched");
    }
}
