//! `ydl doctor`: checks the prerequisites of a job and suggests fixes.
//!
//! * `checklist`: results of the checks. * `yarn`: a cluster. * `local`: this machine. * `test_job`: a job that does nothing.

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

/// Looks at everything, and names the culprit where something is wrong.
pub fn run(args: cli::DoctorArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let wait = span(&args.wait).map_err(|(what, hint)| Report::bad_input(what).hint(hint))?;
    let Span(wait_ms) = wait;
    if wait_ms == 0 {
        let what = "`--wait` is 0: no job starts in no time";
        return Err(Report::bad_input(what).hint("write it as `30s` or `5m`"));
    }
    let afar = match global.cluster {
        Some(Cluster::Yarn) => true,
        Some(Cluster::Local) => false,
        // A configuration that cannot be read, or a directory that has none, was meant to lead somewhere.
        None => named_directory().is_some() || !matches!(configuration(), Ok(None)),
    };
    let of_clusters =
        [("--queue", &args.queue), ("--label", &args.label), ("--staging", &args.staging)];
    if let Some((flag, _)) = of_clusters.iter().find(|(_, said)| said.is_some())
        && !afar
    {
        let hint = "leave it out, or set `HADOOP_CONF_DIR` to a cluster's configuration";
        let what = format!("`{flag}` is for a cluster, and this machine is looked at");
        return Err(Report::bad_input(what).hint(hint));
    }
    let mut sheet = Checklist::new(global);
    block_on(async {
        match afar {
            true => yarn::examine(&args, wait, &mut sheet).await,
            false => local::examine(&args, wait, &mut sheet).await,
        }
    })?;
    sheet.conclude()
}
