//! Where a job runs: on the cluster that a Hadoop configuration leads to, or on this machine.

use crate::{
    cli::{Cluster, Manners},
    mirror::{Gateway, configuration},
    preflight::{self, Findings},
    report::{Exit, Report},
    show,
};
use yarn_native::types::Resource;
use ydl_core::JobSpec;

/// The cluster, where one is meant: asked for by `--cluster yarn`, or found and not declined.
pub fn gateway(manners: Manners) -> Result<Option<Gateway>, Report> {
    match manners.cluster {
        Some(Cluster::Local) => Ok(None),
        Some(Cluster::Yarn) => Gateway::open().map(Some),
        None => configuration()?.map(Gateway::with).transpose(),
    }
}

/// The cluster; one machine does for nothing.
pub fn required(manners: Manners) -> Result<Gateway, Report> {
    if manners.cluster == Some(Cluster::Local) {
        let what = "this machine has neither nodes nor queues";
        return Err(Report::bad_input(what).hint("leave out `--cluster local`"));
    }
    Gateway::open()
}

/// Asks the cluster whether it can run the job. Where its largest container is known, that counts, too.
pub async fn preflight(
    gateway: &Gateway,
    spec: &JobSpec,
    largest: Option<&Resource>,
) -> Result<Findings, Report> {
    let deadline = gateway.deadline();
    let (client, config) = (&gateway.client, &gateway.config);
    let has = preflight::gather(client, config, &gateway.user, deadline).await;
    let mut has = has.map_err(|error| gateway.report(error))?;
    if let Some(largest) = largest {
        has.largest = Some(largest.into());
    }
    Ok(preflight::check(spec, &has))
}

/// Every complaint at once, and the notes where there is none.
pub fn tell(findings: &Findings) -> Option<Exit> {
    if !findings.refusals.is_empty() {
        show::tell(findings.to_string());
        return Some(Exit::BadInput);
    }
    for note in &findings.notes {
        show::tell(format!("note: {note}"));
    }
    None
}
