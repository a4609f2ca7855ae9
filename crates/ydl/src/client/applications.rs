//! Lists and finds jobs on a cluster.

use super::{
    cluster::ClusterClient,
    submit::{APPLICATION_TYPE, staging_in, tasks_in},
};
use crate::client::jobs::ambiguous;
use yarn_native::{
    client::{ApplicationFilter, ApplicationScope},
    rpc::{ExceptionKind, RpcError},
    types::{ApplicationId, ApplicationReport, ApplicationState, FinalStatus},
};
use ydl_os::report::Report;
use ydl_storage::hdfs::Hdfs;

/// Returns this user's jobs, newest first.
pub async fn list(cluster: &ClusterClient) -> Result<Vec<ApplicationReport>, Report> {
    let kinds = vec![APPLICATION_TYPE.into()];
    let filter = match cluster.is_secure() {
        // With Kerberos, a ResourceManager compares the caller's whole principal with short owner names and finds nothing.
        true => ApplicationFilter {
            kinds,
            users: vec![user(cluster).await?],
            ..ApplicationFilter::default()
        },
        false => ApplicationFilter {
            kinds,
            scope: Some(ApplicationScope::Own),
            ..ApplicationFilter::default()
        },
    };
    let request = cluster.rm.applications(&filter, cluster.deadline());
    let mut all = cluster.call(request).await?;
    all.sort_by_key(|report| std::cmp::Reverse((report.start_time, report.id)));
    Ok(all)
}

/// Returns the caller's short name, which on a secure cluster depends on the ticket.
async fn user(cluster: &ClusterClient) -> Result<String, Report> {
    let (config, deadline) = (&cluster.config, cluster.deadline());
    let hdfs = Hdfs::connect(config, None, &cluster.identity, deadline).await?;
    Ok(hdfs.user(deadline).await?)
}

/// Returns this user's newest job.
pub async fn newest(cluster: &ClusterClient) -> Result<Option<ApplicationReport>, Report> {
    Ok(list(cluster).await?.into_iter().next())
}

/// Finds a job by application id (of any user), or among the caller's jobs by name (the newest) or by unique id prefix.
pub async fn find(
    cluster: &ClusterClient,
    name: &str,
) -> Result<Option<ApplicationReport>, Report> {
    // A prefix may parse as another id: `application_1_003` as `application_1_0003`.
    if let Ok(id) = name.parse::<ApplicationId>()
        && id.to_string() == name
    {
        return match cluster.rm.application(id, cluster.deadline()).await {
            Ok(report) => Ok(Some(report)),
            Err(RpcError::Rejected { exception, .. })
                if exception.kind() == ExceptionKind::ApplicationNotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(cluster.report(error)),
        };
    }
    let mut all = list(cluster).await?;
    if let Some(at) = all.iter().position(|report| report.name == name) {
        return Ok(Some(all.swap_remove(at)));
    }
    all.retain(|report| !name.is_empty() && report.id.to_string().starts_with(name));
    match all.len() {
        0 | 1 => Ok(all.pop()),
        _ => Err(ambiguous(name, all.iter().map(|report| report.id.to_string()))),
    }
}

/// Returns the staging directory recorded by an application, if not in its owner's home directory.
pub(crate) fn staging_of(report: &ApplicationReport) -> Option<String> {
    staging_in(&report.tags)
}

/// Returns the job's number of tasks at submission, if its application records it.
pub(crate) fn tasks_of(report: &ApplicationReport) -> Option<u64> {
    tasks_in(&report.tags)
}

/// Returns an application's state as one word.
pub fn state_of(report: &ApplicationReport) -> &'static str {
    match (report.state, report.final_status) {
        (ApplicationState::New | ApplicationState::NewSaving | ApplicationState::Submitted, _) => {
            "submitted"
        }
        (ApplicationState::Accepted, _) => "accepted",
        (ApplicationState::Running, _) => "running",
        (ApplicationState::Finished, FinalStatus::Succeeded) => "succeeded",
        (ApplicationState::Finished, FinalStatus::Killed) => "killed",
        (ApplicationState::Finished | ApplicationState::Failed, _) => "failed",
        (ApplicationState::Killed, _) => "killed",
        _ => "unknown",
    }
}
