//! Support code of ydl's integration tests: users with their directories, commands and their output,
//! jobs on this machine and on real clusters.
//!
//! A test on this machine starts with [`local::Home`], a test on a cluster with [`yarn::Workspace`].
//! Both run the binary of this build ([`ydl`]). Waits end with [`wait_until`]'s timeout, never with a
//! fixed sleep.

mod command;
pub mod dashboards;
pub mod elastic;
pub mod local;
mod own_process;
mod python;
mod wait;
pub mod yarn;

pub use command::{CommandOutput, assert_rejected, finish};
pub use own_process::run_in_own_process;
pub use python::{
    example_environment, mxnet_environment, packed_mxnet_environments, requirements_environment,
};
pub use wait::wait_until;

use std::path::{Path, PathBuf};

/// Returns the path of the `ydl` binary that Cargo built for the running test program.
///
/// # Panics
/// Panics if there is none: only tests of the package `ydl` have Cargo build it.
pub fn ydl() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    // Test programs are in `deps`, binaries in its parent directory.
    let folder = program.parent().and_then(Path::parent).expect("a target directory");
    let ydl = folder.join("ydl");
    assert!(ydl.exists(), "`{}` does not exist; run `cargo build -p ydl`", ydl.display());
    ydl
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
