//! Roles whose tasks come and go, on a real cluster.

mod elastic_support;
mod yarn_support;

use elastic_support::Training;
use std::{fs, path::Path};
use testbed::{Cluster, Options};
use yarn_support::{Desk, environment_of, job::Job, shared, version, wait_for};

/// How often the program saves when nobody tells it to.
const SAVE_EVERY: u32 = 10;

fn cluster() -> &'static Cluster {
    shared(Options {
        nodes: 3,
        ..Options::new(version())
    })
}

/// The elastic example. The nodes are this machine: its output and its checkpoints are seen here at once, and its large
/// environment does not travel.
fn submit<'a>(instances: &str, settle: &str) -> Job<'a> {
    let desk = Desk::at(cluster());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pytorch-digits");
    for name in ["train.py", "train_elastic.py"] {
        fs::copy(root.join(name), desk.path().join(name)).expect("the example's file");
    }
    let python = environment_of("pytorch").join("bin/python");
    let (python, seen) = (python.display(), desk.path().display());
    let id = desk.detach(&format!(
        "name: elastic\nframework: pytorch\nfiles: [train.py, train_elastic.py]\n\
         env: {{OMP_NUM_THREADS: '1'}}\ngang: {{settle: {settle}}}\n\
         roles: {{worker: {{instances: {instances}, memory: 1 GiB, shell: 'exec {python} train_elastic.py \
         --epochs 6 --until {seen}/enough --checkpoint {seen}/kept --save-every {SAVE_EVERY} --pause 0.01 \
         >> {seen}/worker.$YDL_INDEX.$YDL_ATTEMPT'}}}}\n"
    ));
    Job::of(desk, id)
}

fn training(job: &Job) -> Training {
    let mut all = String::new();
    for entry in fs::read_dir(job.desk.path())
        .expect("a directory")
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with("worker.") {
            all += &fs::read_to_string(entry.path()).unwrap_or_default();
        }
    }
    Training::read(&all)
}

fn reaches(job: &Job, worlds: &[u32]) {
    wait_for(&format!("rounds of {worlds:?} of {}", job.words()), || {
        training(job).has_reached(worlds).then_some(())
    });
}

fn ends_well(job: &Job, worlds: &[u32]) {
    fs::write(job.file("enough"), "").expect("a file");
    job.succeeded();
    training(job).went_well(worlds, SAVE_EVERY);
}

#[test]
fn pytorch_goes_on_with_two_four_one_and_two_workers() {
    // Everybody who is asked for comes, however long it takes: nobody begins without them.
    let job = submit("{min: 1, max: 4, start: 2}", "1h");
    reaches(&job, &[2]);
    job.scale(4);
    reaches(&job, &[2, 4]);
    job.scale(1);
    reaches(&job, &[2, 4, 1]);
    job.scale(2);
    reaches(&job, &[2, 4, 1, 2]);
    ends_well(&job, &[2, 4, 1, 2]);
}
