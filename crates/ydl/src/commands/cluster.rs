//! Choice between the cluster of a Hadoop configuration and this machine.

use crate::{
    cli::{Cluster, GlobalArgs},
    mirror::{Gateway, configuration},
    preflight::Findings,
    show,
};
use ydl_core::JobSpec;
use ydl_os::report::{Exit, Report};

/// The cluster, where one is meant: asked for by `--cluster yarn`, or found and not declined.
pub fn gateway(global: GlobalArgs) -> Result<Option<Gateway>, Report> {
    match global.cluster {
        Some(Cluster::Local) => Ok(None),
        Some(Cluster::Yarn) => Gateway::open().map(Some),
        None => configuration()?.map(Gateway::with).transpose(),
    }
}

/// The cluster; one machine does for nothing.
pub fn required(global: GlobalArgs) -> Result<Gateway, Report> {
    if global.cluster == Some(Cluster::Local) {
        let what = "this machine has neither nodes nor queues";
        return Err(Report::bad_input(what).hint("leave out `--cluster local`"));
    }
    Gateway::open()
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

/// Says whether the job could run, and touches nothing.
pub fn dry(spec: &JobSpec, findings: &Findings, global: GlobalArgs) -> Result<Exit, Report> {
    let exit = tell(findings).unwrap_or(Exit::Success);
    if global.json {
        let refusals = findings.refusals.iter();
        let refusals: Vec<_> =
            refusals.map(|c| serde_json::json!({ "what": c.what, "hint": c.hint })).collect();
        show::json(&serde_json::json!({ "refusals": refusals, "notes": findings.notes }))?;
    } else if exit == Exit::Success {
        show::tell(format!(
            "the job could run: {} tasks and its master; nothing was submitted",
            spec.task_count()
        ));
    }
    Ok(exit)
}
