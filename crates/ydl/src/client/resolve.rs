//! Resolves the job that a command names, on a cluster or on this machine.

use crate::{
    cli::GlobalArgs,
    client::{
        applications,
        cluster::{self, ClusterClient},
        jobs::{self, JobHandle, JobStatus},
        mirror::{JobAccess, Mirror},
        submit::APPLICATION_TYPE,
    },
};
use std::sync::Arc;
use yarn_native::types::{ApplicationId, ApplicationReport};
use ydl_os::report::Report;

/// Number of jobs listed for an ambiguous name.
const NAMED_MAX: usize = 8;

/// Accessible part of a job.
#[derive(Debug)]
pub(crate) enum ResolvedJob {
    /// The job with its files; for a job on a cluster, with its mirror.
    Full(Box<JobHandle>, Option<Arc<Mirror>>),
    /// Only the application report, and the reason.
    ReportOnly { report: Box<ApplicationReport>, why: String, cluster: Box<ClusterClient> },
}

impl ResolvedJob {
    /// Returns the job with its files, or an error if only the application report is available.
    pub(crate) fn into_full(self) -> Result<(Box<JobHandle>, Option<Arc<Mirror>>), Report> {
        match self {
            ResolvedJob::Full(job, mirror) => Ok((job, mirror)),
            ResolvedJob::ReportOnly { report, why, .. } => {
                let what = format!("the files of `{}` are unavailable: {why}", report.id);
                Err(Report::bad_input(what)
                    .hint(format!("see its state on the cluster with `ydl status {}`", report.id)))
            }
        }
    }
}

/// Finds a job by id or name, or the newest job. Searches the configured cluster first, then this machine.
pub(crate) async fn resolve_job(
    name: Option<&str>,
    global: GlobalArgs,
) -> Result<ResolvedJob, Report> {
    let Some(cluster) = cluster::select(global)? else {
        return find_local(name);
    };
    let includes_local = global.cluster.is_none();
    // An id of this machine is unique and needs no cluster.
    if let (true, Some(name)) = (includes_local, name)
        && let Ok(job) = jobs::find(name)
        && job.id() == name
    {
        return Ok(ResolvedJob::Full(Box::new(job), None));
    }
    let found = match name {
        Some(name) => applications::find(&cluster, name).await,
        None => applications::newest(&cluster).await,
    };
    match found {
        Ok(Some(report)) => open(cluster, report).await,
        Ok(None) if includes_local => {
            find_local(name).map_err(|_| not_found(name, " nor on this machine"))
        }
        Ok(None) => Err(not_found(name, "")),
        Err(unreachable) if includes_local => match find_local(name) {
            Ok(job) if name.is_some() => Ok(job),
            _ => Err(unreachable),
        },
        Err(unreachable) => Err(unreachable),
    }
}

/// Finds the job that a command changes. A name of several jobs means the one that is running; several running jobs are
/// an error.
pub(crate) async fn resolve_running_job(
    name: &str,
    command: &str,
    global: GlobalArgs,
) -> Result<ResolvedJob, Report> {
    let cluster = cluster::select(global)?;
    let mut ids = Vec::new();
    let includes_local = cluster.is_none() || global.cluster.is_none();
    if includes_local {
        let jobs = jobs::list()?.jobs;
        if jobs.iter().any(|job| job.id() == name) {
            return resolve_job(Some(name), global).await;
        }
        let runs =
            |job: &&JobHandle| matches!(job.status(), JobStatus::Starting | JobStatus::Running(_));
        let matching = jobs.iter().filter(|job| job.submitted.spec.name == name);
        ids.extend(matching.filter(runs).map(|job| job.id().to_owned()));
    }
    if let Some(cluster) = cluster.filter(|_| name.parse::<ApplicationId>().is_err()) {
        match applications::list(&cluster).await {
            Ok(all) => {
                let matching = all.iter().filter(|report| report.name == name);
                let running = matching.filter(|report| !report.state.is_over());
                ids.extend(running.map(|report| report.id.to_string()));
            }
            // Without the cluster, only jobs of this machine remain.
            Err(unreachable) if ids.is_empty() => {
                let job = includes_local.then(|| find_local(Some(name)).ok());
                return job.flatten().ok_or(unreachable);
            }
            Err(_) => {}
        }
    }
    match &ids[..] {
        [] => resolve_job(Some(name), global).await,
        [id] => resolve_job(Some(id), global).await,
        [id, ..] => {
            let hint = format!("use an id: `ydl {command} {id}`");
            Err(ambiguous_name(name, &ids).hint(hint))
        }
    }
}

fn ambiguous_name(name: &str, ids: &[String]) -> Report {
    let matching: Vec<_> = ids.iter().take(NAMED_MAX).map(|id| format!("`{id}`")).collect();
    let rest = if ids.len() > NAMED_MAX { ", …" } else { "" };
    let (n, matching) = (ids.len(), matching.join(", "));
    Report::bad_input(format!("{n} running jobs are named `{name}`: {matching}{rest}"))
}

fn find_local(name: Option<&str>) -> Result<ResolvedJob, Report> {
    let job = match name {
        Some(name) if name.parse::<ApplicationId>().is_ok() => {
            let what = format!("`{name}` is on a cluster, and there is no Hadoop configuration");
            return Err(Report::bad_input(what).hint("set `HADOOP_CONF_DIR`"));
        }
        Some(name) => jobs::find(name)?,
        None => jobs::newest()?,
    };
    Ok(ResolvedJob::Full(Box::new(job), None))
}

fn not_found(name: Option<&str>, scope: &str) -> Report {
    match name {
        Some(name) => Report::bad_input(format!("there is no job `{name}` on the cluster{scope}"))
            .hint("`ydl ls` lists the jobs"),
        None => Report::bad_input(format!("there is no job of yours on the cluster{scope}"))
            .hint("start one with `ydl submit`"),
    }
}

async fn open(cluster: ClusterClient, report: ApplicationReport) -> Result<ResolvedJob, Report> {
    if report.kind != APPLICATION_TYPE {
        let what = format!("`{}` is a `{}` application, not a job of ydl", report.id, report.kind);
        return Err(Report::bad_input(what).hint("`ydl ls` lists the jobs"));
    }
    Ok(match JobAccess::open(&cluster, report).await? {
        JobAccess::Full(job, mirror) => ResolvedJob::Full(job, Some(mirror)),
        JobAccess::ReportOnly(report, why) => {
            ResolvedJob::ReportOnly { report, why, cluster: Box::new(cluster) }
        }
    })
}
