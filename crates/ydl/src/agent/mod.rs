//! The agent: runs in every container and executes a program there.
//!
//! * `lifecycle`: the loop: asks the master for its order and acts on it.
//! * `bootstrap`, `yarn_container`: what an agent is given, on this machine and by YARN.
//! * `program`: starts a program through its shim. `shim`: the process `ydl shim`. `shim_protocol`: messages between
//!   both. `container_shim`: a shim in a container of an image. `exec`: finds and checks executables.
//! * `output`, `segments`: capture of stdout and stderr into rotated files. `container_logs`: their place in a YARN
//!   container. `tail`: their last lines. `output_mux`: output
//!   of several processes. `record`: exit records. `shipping`: logs and outputs to HDFS.
//! * `links`: the program's rendezvous port.
//! * `task_env`, `environment`, `inputs`: a program's files and variables. `image`: checks that a cluster has used the
//!   image. `ports`, `devices`, `network`: what it reserves on the node. `outputs`: copies its outputs. `measure`: its
//!   resource usage.

pub mod bootstrap;
mod container_logs;
mod container_shim;
mod devices;
pub mod environment;
mod exec;
mod image;
mod inputs;
mod lifecycle;
mod links;
pub mod measure;
mod network;
pub mod output;
mod output_mux;
pub mod outputs;
mod ports;
pub mod program;
mod record;
mod segments;
pub(crate) mod shim;
pub mod shim_protocol;
mod shipping;
mod tail;
mod task_env;
mod yarn_container;

pub use container_logs::ContainerLogs;
pub use shipping::UNSYNCED_BYTES_MAX;

use std::{path::PathBuf, process::ExitCode};

/// Exit code of a process terminated by SIGTERM, as shells report it.
const TERMINATED: u8 = 128 + 15;

/// Runs an agent in a container's directory until nothing is left to do. Without a directory it prepares one from the
/// environment of its YARN container. Output of programs is stored in `container_logs`, if given.
///
/// One small thread is enough: slow work runs in processes and pipes.
pub(crate) fn run(dir: Option<PathBuf>, container_logs: Option<PathBuf>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(async {
                let dir = dir.map_or_else(yarn_container::prepare_directory, Ok)?;
                lifecycle::Agent::new(dir, container_logs).await?.run().await
            });
            // Outputs still being copied at the exit are abandoned.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match ended {
        Ok(lifecycle::AgentEnd::Done) => ExitCode::SUCCESS,
        // A NodeManager treats another status as the container's own exit, and loses its reason for the kill.
        Ok(lifecycle::AgentEnd::Terminated) => ExitCode::from(TERMINATED),
        Err(why) => {
            tracing::error!("{why}");
            ExitCode::FAILURE
        }
    }
}
