//! The agent: what runs in every container, and the hands that run a program there.

mod carry;
mod contained;
mod container;
mod devices;
pub mod environment;
pub mod exec;
mod fetch;
mod inside;
pub mod keeper;
pub mod keeping;
mod life;
mod links;
pub mod measure;
mod network;
pub mod output;
pub mod outputs;
pub mod ports;
pub mod program;
mod record;
mod segments;
pub mod setting;
mod surroundings;
mod tail;
mod voices;

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
                let dir = dir.map_or_else(container::arrive, Ok)?;
                life::Agent::new(dir).await?.live().await
            });
            // Outputs that are still being copied when the agent must go are not waited for.
            runtime.shutdown_background();
            lived
        }
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match lived {
        Ok(life::Left::Done) => ExitCode::SUCCESS,
        // A NodeManager takes another status for the container's own end, and forgets why it told it to end.
        Ok(life::Left::Told) => ExitCode::from(TERMINATED),
        Err(why) => {
            tracing::error!("{why}");
            ExitCode::FAILURE
        }
    }
}
