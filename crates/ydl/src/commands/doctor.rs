//! `ydl doctor`: checks the prerequisites of a job and suggests fixes.
//!
//! * `checklist`: results of the checks.
//! * `yarn`: checks of a cluster.
//! * `local`: checks of this machine.
//! * `test_job`: the job that is submitted as the last check.

mod checklist;
mod local;
mod test_job;
mod yarn;

use crate::{
    cli::{self, Cluster, GlobalArgs},
    client::{
        cluster::{configuration, named_directory},
        master_client::block_on,
    },
};
use checklist::Checklist;
use ydl_core::Span;
use ydl_jobfile::span;
use ydl_os::report::{Exit, Report};

/// Runs every check and reports the first cause of failure.
pub(crate) fn run(args: cli::DoctorArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let wait = span(&args.wait).map_err(|(what, hint)| Report::bad_input(what).hint(hint))?;
    let Span(wait_ms) = wait;
    if wait_ms == 0 {
        let what = "`--wait` is 0: a job needs time to start";
        return Err(Report::bad_input(what).hint("write it as `30s` or `5m`"));
    }
    let on_cluster = match global.cluster {
        Some(Cluster::Yarn) => true,
        Some(Cluster::Local) => false,
        // An unreadable or missing configuration in a directory that the user named is an error of the cluster checks.
        None => named_directory().is_some() || !matches!(configuration(), Ok(None)),
    };
    let cluster_flags =
        [("--queue", &args.queue), ("--label", &args.label), ("--staging", &args.staging)];
    if let Some((flag, _)) = cluster_flags.iter().find(|(_, value)| value.is_some())
        && !on_cluster
    {
        let hint = "leave it out, or set `HADOOP_CONF_DIR` to a cluster's configuration";
        let what = format!("`{flag}` applies to a cluster, and this run checks the local machine");
        return Err(Report::bad_input(what).hint(hint));
    }
    let mut checklist = Checklist::new(global);
    block_on(async {
        match on_cluster {
            true => yarn::run_checks(&args, wait, &mut checklist).await,
            false => local::run_checks(&args, wait, &mut checklist).await,
        }
    })?;
    checklist.conclude()
}
