//! The agent: what runs in every container, and the hands that run a program there.

pub mod bootstrap;
mod container_shim;
mod devices;
pub mod environment;
pub mod exec;
mod image;
mod inputs;
mod lifecycle;
mod links;
pub mod measure;
mod network;
pub mod output;
mod output_mux;
pub mod outputs;
pub mod ports;
pub mod program;
mod record;
mod segments;
pub mod shim;
pub mod shim_protocol;
mod shipping;
mod tail;
mod task_env;
mod yarn_container;

use std::{path::PathBuf, process::ExitCode};

/// What a shell says of a process that SIGTERM has ended.
const TERMINATED: u8 = 128 + 15;

/// Runs an agent in the container whose directory this is, until it has nothing left to do. Without a directory it is in
/// a container of a cluster, and finds there what it needs.
///
/// One thread is enough, and small: what is slow goes on in processes and pipes.
pub fn run(dir: Option<PathBuf>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let lived = match runtime {
        Ok(runtime) => {
            let lived = runtime.block_on(async {
                let dir = dir.map_or_else(yarn_container::arrive, Ok)?;
                lifecycle::Agent::new(dir).await?.live().await
            });
            // Outputs that are still being copied when the agent must go are not waited for.
            runtime.shutdown_background();
            lived
        }
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match lived {
        Ok(lifecycle::AgentEnd::Done) => ExitCode::SUCCESS,
        // A NodeManager takes another status for the container's own end, and forgets why it told it to end.
        Ok(lifecycle::AgentEnd::Terminated) => ExitCode::from(TERMINATED),
        Err(why) => {
            tracing::error!("{why}");
            ExitCode::FAILURE
        }
    }
}
