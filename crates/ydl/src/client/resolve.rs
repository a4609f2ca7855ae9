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

/// Jobs named when a name is that of several.
const NAMED_MAX: usize = 8;

/// A job, as far as it is accessible.
#[derive(Debug)]
pub enum ResolvedJob {
    /// All of it; on a cluster with the place it is in.
    Full(Box<JobHandle>, Option<Arc<Mirror>>),
    /// The application report alone, and the reason.
    ReportOnly { report: Box<ApplicationReport>, why: String, cluster: Box<ClusterClient> },
}

impl ResolvedJob {
    /// Returns the job with its files, or an error if only the application report is available.
    pub fn into_full(self) -> Result<(Box<JobHandle>, Option<Arc<Mirror>>), Report> {
        match self {
            ResolvedJob::Full(job, mirror) => Ok((job, mirror)),
            ResolvedJob::ReportOnly { report, why, .. } => {
                let what = format!("the files of `{}` cannot be had: {why}", report.id);
                Err(Report::bad_input(what)
                    .hint(format!("`ydl status {}` shows its state on the cluster", report.id)))
            }
        }
    }
}

/// The job of that id or name; without a word the newest. On a cluster, where there is one, before this machine.
pub async fn resolve_job(word: Option<&str>, global: GlobalArgs) -> Result<ResolvedJob, Report> {
    let Some(cluster) = cluster::select(global)? else {
        return find_local(word);
    };
    let includes_local = global.cluster.is_none();
    // An id of this machine is unique and needs no cluster.
    if let (true, Some(word)) = (includes_local, word)
        && let Ok(job) = jobs::find(word)
        && job.id() == word
    {
        return Ok(ResolvedJob::Full(Box::new(job), None));
    }
    let found = match word {
        Some(word) => applications::find(&cluster, word).await,
        None => applications::newest(&cluster).await,
    };
    match found {
        Ok(Some(report)) => open(cluster, report).await,
        Ok(None) if includes_local => {
            find_local(word).map_err(|_| not_found(word, " nor on this machine"))
        }
        Ok(None) => Err(not_found(word, "")),
        Err(unreachable) if includes_local => match find_local(word) {
            Ok(job) if word.is_some() => Ok(job),
            _ => Err(unreachable),
        },
        Err(unreachable) => Err(unreachable),
    }
}

/// The job that is to be changed. A name may be that of several jobs: then it means the one that runs, and none of them
/// where several do.
pub async fn resolve_running_job(
    word: &str,
    verb: &str,
    global: GlobalArgs,
) -> Result<ResolvedJob, Report> {
    let cluster = cluster::select(global)?;
    let mut ids = Vec::new();
    let includes_local = cluster.is_none() || global.cluster.is_none();
    if includes_local {
        let jobs = jobs::list()?.jobs;
        if jobs.iter().any(|job| job.id() == word) {
            return resolve_job(Some(word), global).await;
        }
        let runs =
            |job: &&JobHandle| matches!(job.status(), JobStatus::Starting | JobStatus::Running(_));
        let named = jobs.iter().filter(|job| job.submitted.spec.name == word);
        ids.extend(named.filter(runs).map(|job| job.id().to_owned()));
    }
    if let Some(cluster) = cluster.filter(|_| word.parse::<ApplicationId>().is_err()) {
        match applications::list(&cluster).await {
            Ok(all) => {
                let named = all.iter().filter(|report| report.name == word);
                let running = named.filter(|report| !report.state.is_over());
                ids.extend(running.map(|report| report.id.to_string()));
            }
            // Then it can only be one of this machine.
            Err(unreachable) if ids.is_empty() => {
                let job = includes_local.then(|| find_local(Some(word)).ok());
                return job.flatten().ok_or(unreachable);
            }
            Err(_) => {}
        }
    }
    match &ids[..] {
        [] => resolve_job(Some(word), global).await,
        [id] => resolve_job(Some(id), global).await,
        [id, ..] => {
            let hint = format!("use an id: `ydl {verb} {id}`");
            Err(ambiguous_name(word, &ids).hint(hint))
        }
    }
}

fn ambiguous_name(word: &str, ids: &[String]) -> Report {
    let named: Vec<_> = ids.iter().take(NAMED_MAX).map(|id| format!("`{id}`")).collect();
    let rest = if ids.len() > NAMED_MAX { ", …" } else { "" };
    let (n, named) = (ids.len(), named.join(", "));
    Report::bad_input(format!("{n} running jobs are named `{word}`: {named}{rest}"))
}

fn find_local(word: Option<&str>) -> Result<ResolvedJob, Report> {
    let job = match word {
        Some(word) if word.parse::<ApplicationId>().is_ok() => {
            let what = format!("`{word}` is on a cluster, and there is no Hadoop configuration");
            return Err(Report::bad_input(what).hint("set `HADOOP_CONF_DIR`"));
        }
        Some(word) => jobs::find(word)?,
        None => jobs::newest()?,
    };
    Ok(ResolvedJob::Full(Box::new(job), None))
}

fn not_found(word: Option<&str>, beside: &str) -> Report {
    match word {
        Some(word) => Report::bad_input(format!("there is no job `{word}` on the cluster{beside}"))
            .hint("`ydl ls` lists the jobs"),
        None => Report::bad_input(format!("there is no job of yours on the cluster{beside}"))
            .hint("start one with `ydl submit`"),
    }
}

async fn open(cluster: ClusterClient, report: ApplicationReport) -> Result<ResolvedJob, Report> {
    if report.kind != APPLICATION_TYPE {
        let what = format!("`{}` is of type `{}`, and no job of ydl", report.id, report.kind);
        return Err(Report::bad_input(what).hint("`ydl ls` lists the jobs"));
    }
    Ok(match JobAccess::open(&cluster, report).await? {
        JobAccess::Full(job, mirror) => ResolvedJob::Full(job, Some(mirror)),
        JobAccess::ReportOnly(report, why) => {
            ResolvedJob::ReportOnly { report, why, cluster: Box::new(cluster) }
        }
    })
}
