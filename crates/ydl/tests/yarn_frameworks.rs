//! Frameworks whose rendezvous the master serves, on a real cluster, while masters die.

mod yarn_support;

use std::{fs, path::Path};
use testbed::{Cluster, File, Options};
use yarn_native::types::FinalStatus;
use yarn_support::{
    Desk, example, job::Job, shared, torch_environment, version, wait_for, wait_over,
};

fn cluster() -> &'static Cluster {
    let options = Options {
        nodes: 2,
        ..Options::new(version())
    };
    // Masters die often here.
    let attempts = "yarn.resourcemanager.am.max-attempts";
    shared(options.set(File::Yarn, attempts, "100"))
}

#[test]
fn pytorch_s_training_goes_on_while_masters_die() {
    let desk = Desk::at(cluster());
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pytorch-digits");
    fs::copy(from.join("train.py"), desk.path().join("train.py")).expect("the example's file");
    // The nodes are this machine: what others carry there is not tested here, and PyTorch is large.
    let (python, seen) = (
        torch_environment().join("bin/python"),
        desk.path().display(),
    );
    let python = python.display();
    let id = desk.detach(&format!(
        "name: torch\nframework: pytorch\nfiles: [train.py]\nenv: {{OMP_NUM_THREADS: '1'}}\n\
         roles: {{worker: {{instances: 2, memory: 1 GiB, shell: '{python} train.py --epochs 6 --pause 0.1 | \
         tee -a {seen}/worker.$YDL_INDEX'}}}}\n"
    ));
    let job = Job::of(desk, id);
    let printed = |worker: u32| {
        let seen = job.file(&format!("worker.{worker}"));
        fs::read_to_string(seen).unwrap_or_default()
    };
    // They have begun, and torch takes longer to be loaded than a master to die: they meet at the next one.
    job.all_started(2);
    job.kill_master(1);
    job.led_by(2);
    wait_for(&format!("two epochs of {}", job.words()), || {
        printed(0).contains("epoch 2 ").then_some(())
    });
    job.kill_master(2);
    job.led_by(3);
    let report = wait_over(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    example::wait_gone(job.cluster, &job.id);

    let weights = |worker: u32| {
        let text = printed(worker);
        let rank = format!("rank {worker} of 2, from epoch 1\n");
        assert!(text.contains(&rank), "{text}");
        assert_eq!(text.matches("epoch 6 loss").count(), 1, "{text}");
        let weights = text.lines().find_map(|line| line.strip_prefix("weights "));
        weights.expect("weights").to_owned()
    };
    assert_eq!(weights(0), weights(1));
    assert_eq!(job.count("round-started"), 1, "{:#?}", job.kept());
    assert_eq!(job.count("attempt-started"), 2);
    assert!(job.count("master-recovered") >= 1);
}
