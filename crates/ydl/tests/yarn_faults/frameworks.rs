//! Frameworks with a rendezvous in the master, on a real cluster, while masters are killed.

use testbed::{Cluster, File, Lease, Options};
use yarn_native::types::FinalStatus;
use ydl_testkit::yarn::{
    ClusterJob, digits, shared,
    training::{TrainingOptions, printed, printed_value, submit_training},
    version, wait_finished, wait_for,
};

fn cluster() -> Lease {
    let options = Options { nodes: 2, ..Options::new(version()) };
    // The tests kill masters.
    let attempts = "yarn.resourcemanager.am.max-attempts";
    shared(options.set(File::Yarn, attempts, "100"))
}

fn submit<'a>(
    cluster: &'a Cluster,
    framework: &str,
    arguments: &str,
    instances: u32,
) -> ClusterJob<'a> {
    let more = TrainingOptions {
        worker: &format!("instances: {instances}"),
        waits: true,
        ..TrainingOptions::default()
    };
    submit_training(cluster, framework, arguments, more)
}

/// Kills two masters: the first while the programs load, the second after a program has printed `line`. Asserts that
/// the same programs succeed.
fn assert_survives_killed_masters(job: &ClusterJob, instances: u32, line: &str) {
    let started = job.wait_starts(instances as usize);
    job.wait_reported_running(started.iter().map(|it| &it.container));
    job.kill_master(1);
    job.wait_led_by(2);
    wait_for(&format!("`{line}` of {}", job.describe()), || {
        printed(job, 0, 1).contains(line).then_some(())
    });
    job.kill_master(2);
    job.release();
    // The third master may find that all programs have ended, and exit at once.
    let report = wait_finished(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    digits::wait_cleaned_up(job.cluster, &job.id);
    assert_eq!(job.count("round-started"), 1, "{:#?}", job.stored_history());
    assert_eq!(job.count("attempt-started"), instances as usize);
    assert_eq!(job.master_attempts().len(), 3);
}

#[test]
fn pytorch_training_survives_killed_masters() {
    let cluster = &*cluster();
    let job = submit(cluster, "pytorch", "--epochs 6 --pause 0.1", 2);
    assert_survives_killed_masters(&job, 2, "epoch 2 ");
    let weights = |worker| printed_value(&job, worker, 1, "2, from epoch 1\n", "weights ");
    assert_eq!(weights(0), weights(1));
}

#[test]
fn xgboost_training_survives_killed_masters() {
    let cluster = &*cluster();
    let job = submit(cluster, "xgboost", "--rounds 20 --pause 0.5", 3);
    assert_survives_killed_masters(&job, 3, "round 2 ");
    let gain = |worker| printed_value(&job, worker, 1, "3\n", "gain ");
    assert_eq!([gain(0), gain(1)], [gain(1), gain(2)]);
}

#[test]
fn horovod_training_survives_killed_masters() {
    let cluster = &*cluster();
    let job = submit(cluster, "horovod", "--epochs 6 --pause 0.1", 2);
    assert_survives_killed_masters(&job, 2, "epoch 2 ");
    let weights = |worker| printed_value(&job, worker, 1, "2, from epoch 1\n", "weights ");
    assert_eq!(weights(0), weights(1));
}
