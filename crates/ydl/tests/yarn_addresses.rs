//! Frameworks that need nothing but each other's addresses, on a real cluster: TensorFlow and JAX.

mod yarn_support;

use std::{fs, path::Path};
use testbed::{Cluster, Options};
use yarn_native::types::FinalStatus;
use yarn_support::{
    Desk, environment_of, example, job::Job, processes::signal, shared, version, wait_for,
    wait_over,
};

fn cluster() -> &'static Cluster {
    shared(Options {
        nodes: 2,
        ..Options::new(version())
    })
}

/// A job of two workers of an example's program, whose output and process are seen here at once. The nodes are this machine:
/// what travels there is not tested here, and these environments are large.
fn submit<'a>(framework: &str, arguments: &str) -> Job<'a> {
    let desk = Desk::at(cluster());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let from = root.join(format!("{framework}-digits/train.py"));
    fs::copy(from, desk.path().join("train.py")).expect("the example's file");
    let python = environment_of(framework).join("bin/python");
    let seen = desk.path().display();
    let python = python.display();
    let id = desk.detach(&format!(
        "name: {framework}\nframework: {framework}\nfiles: [train.py]\ndeadlines: {{run: 10m}}\n\
         env: {{TF_CPP_MIN_LOG_LEVEL: '2', JAX_ENABLE_PREEMPTION_SERVICE: 'false'}}\n\
         restart: {{limit: 1, backoff: {{first: 10ms, most: 10ms}}}}\n\
         roles: {{worker: {{instances: 2, memory: 2 GiB, shell: 'echo $$ > \
         {seen}/pid.$YDL_INDEX; exec {python} train.py {arguments} >> {seen}/worker.$YDL_INDEX'}}}}\n"
    ));
    Job::of(desk, id)
}

fn printed(job: &Job, worker: u32) -> String {
    let seen = job.file(&format!("worker.{worker}"));
    fs::read_to_string(seen).unwrap_or_default()
}

/// What a worker has said last after that word.
fn said(job: &Job, worker: u32, word: &str) -> String {
    let text = printed(job, worker);
    let mut lines = text.lines().rev();
    let found = lines.find_map(|line| line.strip_prefix(word));
    found
        .unwrap_or_else(|| panic!("no `{word}` of worker {worker} in {text}"))
        .to_owned()
}

/// The job succeeds in so many rounds and leaves nothing; both workers are who they are, are good enough and have the same
/// network.
fn learns(job: &Job, rounds: usize) {
    let report = wait_over(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    example::wait_gone(job.cluster, &job.id);
    assert_eq!(job.count("round-started"), rounds, "{:#?}", job.kept());
    for worker in 0..2 {
        let rank = said(job, worker, "rank ");
        assert!(rank.starts_with(&format!("{worker} of 2")), "{rank}");
        let accuracy: f64 = said(job, worker, "test accuracy ")
            .parse()
            .expect("a number");
        assert!(accuracy >= 0.9, "{accuracy}");
        assert_eq!(said(job, worker, "weights "), said(job, 0, "weights "));
    }
}

#[test]
fn tensorflow_s_mirrored_workers_learn_the_same() {
    learns(&submit("tensorflow", "--epochs 8"), 1);
}

#[test]
fn jax_s_processes_begin_a_new_round_when_one_is_killed() {
    let job = submit("jax", "--epochs 8 --pause 0.05");
    wait_for(&format!("the second epoch of {}", job.words()), || {
        printed(&job, 1).contains("epoch 2 ").then_some(())
    });
    let pid = fs::read_to_string(job.file("pid.1")).expect("a number");
    signal("-9", &[pid.trim().parse().expect("a number")]);
    learns(&job, 2);
    assert_eq!(said(&job, 1, "present "), "[0, 1]");
}
