//! `ydl master-access`: writes what a caller of a job's HTTP API needs into a directory of the caller.

use crate::{
    cli::GlobalArgs,
    client::{
        jobs::JobStatus,
        master_client::{self, block_on, settled_status},
        resolve::resolve_job,
    },
};
use std::{fs, path::Path};
use ydl_os::{
    private,
    report::{Exit, Report},
};
use ydl_proto::{files::JobDir, version::to_json_line};

/// Maximum size of a certificate or a token.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// Writes `master.json`, `certificate.pem` and `client.token`, readable by this user alone. The directory of a job on a
/// cluster is not kept on this machine.
pub(crate) fn run(job: &str, dir: &Path, global: GlobalArgs) -> Result<Exit, Report> {
    block_on(async {
        let (job, _mirror) = resolve_job(Some(job), global).await?.into_full()?;
        let address = match settled_status(&job).await {
            JobStatus::Running(address) => address,
            JobStatus::Starting => return Err(master_client::no_master(&job)),
            JobStatus::Finished(_) | JobStatus::Lost | JobStatus::NoResult(_) => {
                let what = format!("`{}` has ended: its master is gone", job.id());
                return Err(Report::new(Exit::Unreachable, what));
            }
        };
        let failed = |what: String| {
            Report::bad_input(format!("cannot write to `{}`: {what}", dir.display()))
        };
        let to = JobDir::at(dir);
        let token = private::read(&job.dir.token_file(), SECRET_BYTES_MAX)
            .map_err(|error| Report::bad_input(error.to_string()))?;
        let certificate = fs::read(job.dir.certificate_file())
            .map_err(|error| Report::internal(format!("cannot read the certificate: {error}")))?;
        let master = to_json_line(&address)
            .map_err(|error| Report::internal(format!("cannot write the address: {error}")))?;
        for (path, bytes) in [
            (to.token_file(), token),
            (to.certificate_file(), certificate),
            (to.master_file(), master),
        ] {
            private::write(&path, &bytes).map_err(|error| failed(error.to_string()))?;
        }
        Ok(Exit::Success)
    })
}
