//! Training jobs of the examples on a cluster. Programs write their output to the workspace.
//!
//! The nodes are this machine, so jobs use the examples' environments without staging them.

use super::{ClusterJob, Workspace};
use crate::{example_environment, repository};
use std::fs;
use testbed::Cluster;

/// Optional parts of a training job.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainingOptions<'a> {
    /// Keys of the role `worker`.
    pub worker: &'a str,
    /// Further roles, each after a comma.
    pub roles: &'a str,
    /// Keys of the job.
    pub job: &'a str,
    /// Tasks that succeed wait for the file `go` before they end.
    pub waits: bool,
}

/// Submits a job whose workers train with these arguments.
pub fn submit_training<'a>(
    cluster: &'a Cluster,
    framework: &str,
    arguments: &str,
    options: TrainingOptions,
) -> ClusterJob<'a> {
    let TrainingOptions { worker, roles, job, waits } = options;
    let workspace = Workspace::new(cluster);
    let from = repository().join(format!("examples/{framework}-digits/train.py"));
    fs::copy(from, workspace.path().join("train.py")).expect("the example's file");
    let python = example_environment(framework).join("bin/python");
    let (python, seen) = (python.display(), workspace.path().display());
    let after = match waits {
        true => format!(" && until test -e {seen}/go; do sleep 0.1; done"),
        false => String::new(),
    };
    let id = workspace.detach(&format!(
        "name: {framework}\nframework: {framework}\nfiles: [train.py]\nenv: {{OMP_NUM_THREADS: '1'}}\n\
         roles: {{worker: {{{worker}, memory: 1 GiB, shell: '{python} train.py {arguments} \
         >> {seen}/$YDL_ROLE.$YDL_INDEX.$YDL_ROUND{after}'}}{roles}}}\n{job}"
    ));
    ClusterJob::of(workspace, id)
}

/// Returns the output of a worker in a round.
pub fn printed(job: &ClusterJob, worker: u32, round: u32) -> String {
    let file = job.file(&format!("worker.{worker}.{round}"));
    fs::read_to_string(file).unwrap_or_default()
}

/// Returns the rest of a line that a worker printed in a round after `label`, and asserts its rank, such as
/// `2 in round 1`.
pub fn printed_value(job: &ClusterJob, worker: u32, round: u32, rank: &str, label: &str) -> String {
    let text = printed(job, worker, round);
    let rank = format!("rank {worker} of {rank}");
    assert!(text.contains(&rank), "no `{rank}` in {text}");
    let found = text.lines().find_map(|line| line.strip_prefix(label));
    found.unwrap_or_else(|| panic!("no `{label}` in {text}")).to_owned()
}
