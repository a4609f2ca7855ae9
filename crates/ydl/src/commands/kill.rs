//! `ydl kill`: stops a job and waits for its end.

use super::ls::state_of;
use crate::{
    cli::{self, GlobalArgs},
    client::{
        applications,
        cluster::ClusterClient,
        jobs::{JobHandle, JobStatus},
        master_client::{
            MasterClient, block_on, call_report, settled_status, signal_master,
            wait_for_master_exit,
        },
        mirror::Mirror,
        resolve::{ResolvedJob, resolve_running_job},
    },
    terminal,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use yarn_native::types::{ApplicationId, ApplicationReport};
use ydl_core::Span;
use ydl_net::client::CallError;
use ydl_os::report::{Exit, Report};

/// Margin for the release of resources beyond the job's own timeouts.
const MARGIN: Duration = Duration::from_secs(30);
/// Delay of the notice that explains the wait.
const NOTICE_DELAY: Duration = Duration::from_secs(3);
/// Poll interval of a local job.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Poll interval of a job on a cluster; longer, to limit the load on the ResourceManager.
const CLUSTER_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Message about a job that takes long to stop, printed once.
struct StopNotice {
    at: Option<Instant>,
}

impl StopNotice {
    fn after_delay() -> StopNotice {
        StopNotice { at: Some(Instant::now() + NOTICE_DELAY) }
    }

    fn print(&mut self, id: &str) {
        if self.at.is_some_and(|at| Instant::now() >= at) {
            self.at = None;
            terminal::message(format!(
                "waiting for {id} to stop; `ydl status {id}` names the tasks that still run"
            ));
        }
    }
}

/// Stops the job and waits for its end.
pub(crate) fn run(args: cli::KillArgs, global: GlobalArgs) -> Result<Exit, Report> {
    block_on(async {
        match resolve_running_job(&args.job, "kill", global).await? {
            ResolvedJob::Full(job, None) => kill(*job, args.now, global).await,
            ResolvedJob::Full(job, Some(mirror)) => {
                let (id, cluster) = (mirror.id, mirror.cluster.clone());
                kill_on_cluster(id, &cluster, Some((*job, mirror)), args.now, global).await
            }
            ResolvedJob::ReportOnly { report, cluster, .. } => {
                kill_on_cluster(report.id, &cluster, None, args.now, global).await
            }
        }
    })
}

/// Stops the job through its master, or through the ResourceManager if the master does not respond.
async fn kill_on_cluster(
    id: ApplicationId,
    cluster: &ClusterClient,
    job: Option<(JobHandle, Arc<Mirror>)>,
    now: bool,
    global: GlobalArgs,
) -> Result<Exit, Report> {
    let by = if now { "`ydl kill --now`" } else { "`ydl kill`" };
    let poll = async || {
        let report = cluster.rm.application(id, cluster.deadline()).await;
        report.map_err(|error| cluster.report(error))
    };
    let report_end = |report: &ApplicationReport, killed: bool| -> Result<Exit, Report> {
        let state = applications::state_of(report);
        let ended = if killed { "ended" } else { "had already ended" };
        match global.json {
            true => {
                let id = id.to_string();
                terminal::print_json(
                    &serde_json::json!({ "id": id, "state": state, "stopped": killed }),
                )?;
            }
            false => terminal::message(format!("{id} {ended}: {state}")),
        }
        Ok(Exit::Success)
    };
    let report = poll().await?;
    if report.state.is_over() {
        return report_end(&report, false);
    }
    let mut timeout = MARGIN;
    let stop_request = match &job {
        Some((job, _)) => match job.status() {
            JobStatus::Running(address) => {
                let timeouts = &job.submitted.spec.timeouts;
                let Span(ms) = timeouts.grace + timeouts.stop + timeouts.upload;
                timeout += Duration::from_millis(ms);
                match MasterClient::to(&job.dir, &address) {
                    Ok(master) => match master.kill(by, now).await {
                        // A client that the master rejects must not bypass it through the ResourceManager.
                        Err(error @ CallError::Refused { status: 403, .. }) => {
                            return Err(call_report(error));
                        }
                        stop_request => stop_request.map_err(|error| error.to_string()),
                    },
                    Err(report) => Err(report.what),
                }
            }
            _ => Err("it is not running yet".to_owned()),
        },
        None => Err("the job's files are unavailable".to_owned()),
    };
    if let Err(why) = stop_request {
        terminal::message(format!(
            "cannot stop {id} through its master ({why}); stopping it through the ResourceManager"
        ));
        let why = format!("ended by {by}");
        let ended = cluster.rm.kill_and_wait(id, &why, cluster.deadline()).await;
        ended.map_err(|error| cluster.report(error))?;
    }
    let end = Instant::now() + timeout;
    let mut notice = StopNotice::after_delay();
    loop {
        let report = poll().await?;
        if report.state.is_over() {
            return report_end(&report, true);
        }
        notice.print(&id.to_string());
        if Instant::now() > end {
            let what = format!("`{id}` is still running after {}s", timeout.as_secs());
            let hint = format!("see `ydl status {id}` for its state");
            return Err(Report::new(Exit::Unreachable, what).hint(hint));
        }
        sleep(CLUSTER_POLL_INTERVAL).await;
    }
}

async fn kill(job: JobHandle, now: bool, global: GlobalArgs) -> Result<Exit, Report> {
    let report_end = |status: JobStatus, killed: bool| -> Result<Exit, Report> {
        let state = match &status {
            JobStatus::Finished(last) => state_of(last),
            JobStatus::NoResult(ended) => ended.state,
            JobStatus::Starting | JobStatus::Running(_) | JobStatus::Lost => "lost",
        };
        if global.json {
            terminal::print_json(
                &serde_json::json!({ "id": job.id(), "state": state, "stopped": killed }),
            )?;
        } else if killed {
            terminal::message(format!("{} ended: {state}", job.id()));
        } else {
            terminal::message(format!("{} had already ended: {state}", job.id()));
        }
        Ok(Exit::Success)
    };
    let address = match settled_status(&job).await {
        JobStatus::Running(address) => address,
        status => return report_end(status, false),
    };
    let by = if now { "`ydl kill --now`" } else { "`ydl kill`" };
    match MasterClient::to(&job.dir, &address)?.kill(by, now).await {
        Ok(()) => {}
        // The job ended during the call.
        Err(CallError::Refused { status: 410, .. } | CallError::Unreachable { .. })
            if !matches!(job.status(), JobStatus::Running(_)) =>
        {
            return report_end(job.status(), false);
        }
        Err(CallError::Unreachable { .. } | CallError::Timeout { .. }) => {
            let (name, hint) = match now {
                true => ("SIGKILL", ""),
                false => ("SIGTERM", " (if that does not help: `ydl kill --now`)"),
            };
            terminal::message(format!(
                "the master of {} does not respond; sending {name} to its process {}{hint}",
                job.id(),
                address.pid
            ));
            signal_master(&address, now)?;
        }
        Err(error) => return Err(call_report(error)),
    }
    let timeouts = &job.submitted.spec.timeouts;
    let Span(ms) = timeouts.grace + timeouts.stop + timeouts.upload;
    let timeout = Duration::from_millis(ms) + MARGIN;
    let end = Instant::now() + timeout;
    let mut notice = StopNotice::after_delay();
    loop {
        match job.status() {
            JobStatus::Running(_) | JobStatus::Starting if Instant::now() < end => {
                notice.print(job.id());
                sleep(POLL_INTERVAL).await
            }
            JobStatus::Running(_) | JobStatus::Starting => {
                let what = format!("`{}` is still running after {}s", job.id(), timeout.as_secs());
                let hint = format!("see `ydl status {}` for its state", job.id());
                return Err(Report::new(Exit::Unreachable, what).hint(hint));
            }
            status => {
                wait_for_master_exit(&job).await;
                return report_end(status, true);
            }
        }
    }
}
