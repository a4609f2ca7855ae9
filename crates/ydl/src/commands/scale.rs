//! `ydl scale`: changes the number of tasks of a role.

use crate::{
    cli::{self, GlobalArgs},
    client::{
        jobs::JobStatus,
        master_client::{MasterClient, block_on, call_report, no_master, settled_status},
        resolve::resolve_running_job,
    },
    terminal,
};
use ydl_os::report::{Exit, Report};

/// Sends the new size to the master.
pub(crate) fn run(args: cli::ScaleArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let size = args.size.split_once('=');
    let size = size.and_then(|(role, n)| Some((role.trim(), n.trim().parse::<u32>().ok()?)));
    let Some((role, instances)) = size.filter(|(role, _)| !role.is_empty()) else {
        let what = format!("`{}` is not of the form ROLE=COUNT", args.size);
        return Err(Report::bad_input(what).hint("write `worker=4`"));
    };
    block_on(async {
        let found = resolve_running_job(&args.job, "scale", global).await?;
        let (job, _mirror) = found.into_full()?;
        let address = match settled_status(&job).await {
            JobStatus::Running(address) => address,
            JobStatus::Starting => return Err(no_master(&job)),
            JobStatus::Finished(_) | JobStatus::Lost | JobStatus::NoResult(_) => {
                let what = format!("`{}` has ended", job.id());
                return Err(Report::bad_input(what).hint("submit it again"));
            }
        };
        let request = MasterClient::to(&job.dir, &address)?.scale(role, instances).await;
        request.map_err(call_report)?;
        match global.json {
            true => terminal::print_json(&serde_json::json!({
                "id": job.id(), "role": role, "instances": instances,
            })),
            false => {
                terminal::message(format!("scaling role `{role}` of {} to {instances}", job.id()));
                Ok(())
            }
        }
    })?;
    Ok(Exit::Success)
}
