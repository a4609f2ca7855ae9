//! Jobs of the examples' programs on a cluster, whose output is seen here at once.
//!
//! The nodes are this machine, and the examples' environments are large: what travels to nodes is tested elsewhere.

use super::{Desk, environment_of, job::Job};
use std::{fs, path::Path};
use testbed::Cluster;

/// More of a job than its workers' program.
#[derive(Clone, Copy, Debug, Default)]
pub struct More<'a> {
    /// Keys of the role `worker`.
    pub worker: &'a str,
    /// Further roles, whose command is the workers', each after a comma.
    pub roles: &'a str,
    /// Lines of the job.
    pub job: &'a str,
    /// Whether those whose program has ended well wait for the file `go`, so that the job is not over before.
    pub waits: bool,
}

/// Submits a job whose workers train with these arguments.
pub fn train<'a>(cluster: &'a Cluster, framework: &str, arguments: &str, more: More) -> Job<'a> {
    let More { worker, roles, job, waits } = more;
    let desk = Desk::at(cluster);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let from = root.join(format!("{framework}-digits/train.py"));
    fs::copy(from, desk.path().join("train.py")).expect("the example's file");
    let python = environment_of(framework).join("bin/python");
    let (python, seen) = (python.display(), desk.path().display());
    let after = match waits {
        true => format!(" && until test -e {seen}/go; do sleep 0.1; done"),
        false => String::new(),
    };
    let id = desk.detach(&format!(
        "name: {framework}\nframework: {framework}\nfiles: [train.py]\nenv: {{OMP_NUM_THREADS: '1'}}\n\
         roles: {{worker: {{{worker}, memory: 1 GiB, shell: '{python} train.py {arguments} \
         >> {seen}/$YDL_ROLE.$YDL_INDEX.$YDL_ROUND{after}'}}{roles}}}\n{job}"
    ));
    Job::of(desk, id)
}

/// What a worker has printed in a round.
pub fn printed(job: &Job, worker: u32, round: u32) -> String {
    let seen = job.file(&format!("worker.{worker}.{round}"));
    fs::read_to_string(seen).unwrap_or_default()
}

/// What a worker has said in a round after that word; it said that it is the one that it is.
pub fn said(job: &Job, worker: u32, round: u32, rank: &str, word: &str) -> String {
    let text = printed(job, worker, round);
    let rank = format!("rank {worker} of {rank}");
    assert!(text.contains(&rank), "no `{rank}` in {text}");
    let found = text.lines().find_map(|line| line.strip_prefix(word));
    found.unwrap_or_else(|| panic!("no `{word}` in {text}")).to_owned()
}
