//! Frameworks whose rendezvous the master serves, on a real cluster, while masters die.

use crate::yarn_support::{
    example,
    job::Job,
    shared,
    training::{More, printed, said, train},
    version, wait_for, wait_over,
};
use testbed::{Cluster, File, Options};
use yarn_native::types::FinalStatus;

fn cluster() -> &'static Cluster {
    let options = Options { nodes: 2, ..Options::new(version()) };
    // Masters die often here.
    let attempts = "yarn.resourcemanager.am.max-attempts";
    shared(options.set(File::Yarn, attempts, "100"))
}

fn submit(framework: &str, arguments: &str, instances: u32) -> Job<'static> {
    let more = More { worker: &format!("instances: {instances}"), waits: true, ..More::default() };
    train(cluster(), framework, arguments, more)
}

/// Two masters die: one before the programs meet, if it takes them any time to be loaded, and one when the first has
/// printed that. The same programs end well.
fn goes_on_while_masters_die(job: &Job, instances: u32, line: &str) {
    let started = job.all_started(instances as usize);
    job.heard_of(started.iter().map(|it| &it.container));
    job.kill_master(1);
    job.led_by(2);
    wait_for(&format!("`{line}` of {}", job.words()), || {
        printed(job, 0, 1).contains(line).then_some(())
    });
    job.kill_master(2);
    job.go();
    // The third may find that the programs have ended, and be gone as soon as it is there.
    let report = wait_over(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    example::wait_gone(job.cluster, &job.id);
    assert_eq!(job.count("round-started"), 1, "{:#?}", job.kept());
    assert_eq!(job.count("attempt-started"), instances as usize);
    assert_eq!(job.attempts().len(), 3);
}

#[test]
fn pytorch_s_training_goes_on_while_masters_die() {
    let job = submit("pytorch", "--epochs 6 --pause 0.1", 2);
    goes_on_while_masters_die(&job, 2, "epoch 2 ");
    let weights = |worker| said(&job, worker, 1, "2, from epoch 1\n", "weights ");
    assert_eq!(weights(0), weights(1));
}

#[test]
fn xgboost_s_training_goes_on_while_masters_die() {
    let job = submit("xgboost", "--rounds 20 --pause 0.5", 3);
    goes_on_while_masters_die(&job, 3, "round 2 ");
    let gain = |worker| said(&job, worker, 1, "3\n", "gain ");
    assert_eq!([gain(0), gain(1)], [gain(1), gain(2)]);
}

#[test]
fn horovod_s_training_goes_on_while_masters_die() {
    let job = submit("horovod", "--epochs 6 --pause 0.1", 2);
    goes_on_while_masters_die(&job, 2, "epoch 2 ");
    let weights = |worker| said(&job, worker, 1, "2, from epoch 1\n", "weights ");
    assert_eq!(weights(0), weights(1));
}
