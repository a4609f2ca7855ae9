//! Which jobs a cluster has.

use super::{
    gateway::Gateway,
    submission::{KIND, staged_at},
};
use crate::{hdfs::Hdfs, report::Report};
use yarn_native::{
    client::{ApplicationFilter, Scope},
    rpc::{ExceptionKind, RpcError},
    types::{ApplicationId, ApplicationReport},
};

/// This user's jobs, newest first.
pub async fn list(gateway: &Gateway) -> Result<Vec<ApplicationReport>, Report> {
    let kinds = vec![KIND.into()];
    let filter = match gateway.is_secure() {
        // A ResourceManager compares whole principals with the short names of owners there, and finds nothing.
        true => ApplicationFilter {
            kinds,
            users: vec![user(gateway).await?],
            ..ApplicationFilter::default()
        },
        false => ApplicationFilter {
            kinds,
            scope: Some(Scope::Own),
            ..ApplicationFilter::default()
        },
    };
    let listed = gateway.client.applications(&filter, gateway.deadline());
    let mut all = listed.await.map_err(|error| gateway.report(error))?;
    all.sort_by_key(|report| std::cmp::Reverse((report.start_time, report.id)));
    Ok(all)
}

/// Who asks, as a ticket alone knows.
async fn user(gateway: &Gateway) -> Result<String, Report> {
    let (config, deadline) = (&gateway.config, gateway.deadline());
    let hdfs = Hdfs::connect(config, None, &gateway.identity, deadline).await?;
    Ok(hdfs.user(deadline).await?)
}

/// This user's newest job.
pub async fn newest(gateway: &Gateway) -> Result<Option<ApplicationReport>, Report> {
    Ok(list(gateway).await?.into_iter().next())
}

/// The job that a person means: by the id of its application, anybody's; or by its name or the beginning of its id, the
/// newest of one's own.
pub async fn find(gateway: &Gateway, word: &str) -> Result<Option<ApplicationReport>, Report> {
    if let Ok(id) = word.parse::<ApplicationId>() {
        return match gateway.client.application(id, gateway.deadline()).await {
            Ok(report) => Ok(Some(report)),
            Err(RpcError::Rejected { exception, .. })
                if exception.kind() == ExceptionKind::ApplicationNotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(gateway.report(error)),
        };
    }
    let all = list(gateway).await?;
    let named = all.iter().position(|report| report.name == word);
    let begun = || {
        let mut ids = all.iter().map(|report| report.id.to_string());
        ids.position(|id| !word.is_empty() && id.starts_with(word))
    };
    let found = named.or_else(begun);
    Ok(found.and_then(|at| all.into_iter().nth(at)))
}

/// Where an application says that it is staged, if not in its owner's home directory.
pub fn staging_of(report: &ApplicationReport) -> Option<String> {
    staged_at(&report.tags)
}
