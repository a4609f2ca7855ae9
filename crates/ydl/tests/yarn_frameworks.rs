//! Frameworks whose rendezvous the master serves, on a real cluster, while masters die.

mod yarn_support;

use std::{fs, path::Path};
use testbed::{Cluster, File, Options};
use yarn_native::types::FinalStatus;
use yarn_support::{Desk, environment_of, example, job::Job, shared, version, wait_for, wait_over};

fn cluster() -> &'static Cluster {
    let options = Options {
        nodes: 2,
        ..Options::new(version())
    };
    // Masters die often here.
    let attempts = "yarn.resourcemanager.am.max-attempts";
    shared(options.set(File::Yarn, attempts, "100"))
}

/// A job of an example's program, whose output is seen here at once. The nodes are this machine: what travels there is not
/// tested here, and these environments are large.
fn submit<'a>(framework: &str, instances: u32, arguments: &str) -> Job<'a> {
    let desk = Desk::at(cluster());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let from = root.join(format!("{framework}-digits/train.py"));
    fs::copy(from, desk.path().join("train.py")).expect("the example's file");
    let python = environment_of(framework).join("bin/python");
    let seen = desk.path().display();
    let python = python.display();
    let id = desk.detach(&format!(
        "name: {framework}\nframework: {framework}\nfiles: [train.py]\nenv: {{OMP_NUM_THREADS: '1'}}\n\
         roles: {{worker: {{instances: {instances}, memory: 1 GiB, shell: '{python} train.py {arguments} \
         >> {seen}/worker.$YDL_INDEX'}}}}\n"
    ));
    Job::of(desk, id)
}

fn printed(job: &Job, worker: u32) -> String {
    let seen = job.file(&format!("worker.{worker}"));
    fs::read_to_string(seen).unwrap_or_default()
}

/// Two masters die: one before the programs meet, if it takes them any time to be loaded, and one when the first has
/// printed that. The same programs end well.
fn goes_on_while_masters_die(job: &Job, instances: u32, line: &str) {
    job.all_started(instances as usize);
    job.kill_master(1);
    job.led_by(2);
    wait_for(&format!("`{line}` of {}", job.words()), || {
        printed(job, 0).contains(line).then_some(())
    });
    job.kill_master(2);
    // The third may find that the programs have ended, and be gone as soon as it is there.
    let report = wait_over(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    example::wait_gone(job.cluster, &job.id);
    assert_eq!(job.count("round-started"), 1, "{:#?}", job.kept());
    assert_eq!(job.count("attempt-started"), instances as usize);
    assert_eq!(job.attempts().len(), 3);
}

/// What a worker has said after that word; it said that it is the one that it is.
fn said(job: &Job, worker: u32, rank: &str, word: &str) -> String {
    let text = printed(job, worker);
    let rank = format!("rank {worker} of {rank}\n");
    assert!(text.contains(&rank), "{text}");
    let found = text.lines().find_map(|line| line.strip_prefix(word));
    found
        .unwrap_or_else(|| panic!("no `{word}` in {text}"))
        .to_owned()
}

#[test]
fn pytorch_s_training_goes_on_while_masters_die() {
    let job = submit("pytorch", 2, "--epochs 6 --pause 0.1");
    goes_on_while_masters_die(&job, 2, "epoch 2 ");
    let weights = |worker| said(&job, worker, "2, from epoch 1", "weights ");
    assert_eq!(weights(0), weights(1));
}

#[test]
fn xgboost_s_training_goes_on_while_masters_die() {
    let job = submit("xgboost", 3, "--rounds 20 --pause 0.5");
    goes_on_while_masters_die(&job, 3, "round 2 ");
    let gain = |worker| said(&job, worker, "3", "gain ");
    assert_eq!([gain(0), gain(1)], [gain(1), gain(2)]);
}

#[test]
fn horovod_s_training_goes_on_while_masters_die() {
    let job = submit("horovod", 2, "--epochs 6 --pause 0.1");
    goes_on_while_masters_die(&job, 2, "epoch 2 ");
    let weights = |worker| said(&job, worker, "2, from epoch 1", "weights ");
    assert_eq!(weights(0), weights(1));
}
