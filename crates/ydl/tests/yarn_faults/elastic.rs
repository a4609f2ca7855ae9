//! Roles whose tasks come and go, on a real cluster.

use std::{
    fs,
    path::{Path, PathBuf},
};
use testbed::{Cluster, File, Lease, Options};
use ydl_testkit::{
    elastic::Training,
    example_environment,
    yarn::{ClusterJob, Workspace, application, shared, version, wait_for},
};

/// Steps between regular checkpoints of the program.
const SAVE_EVERY: u32 = 10;

fn cluster() -> Lease {
    fs::write(excluded(), "").expect("a file");
    let options = Options {
        nodes: 4,
        // A worker, and on one of them the master: so each of four workers has a node of its own.
        node_memory_mib: 1536,
        ..Options::new(version())
    };
    let path = excluded().display().to_string();
    shared(options.set(File::Yarn, "yarn.resourcemanager.nodes.exclude-path", &path))
}

/// The cluster's list of nodes that it does without.
fn excluded() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("elastic-excluded")
}

fn must<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

/// The elastic example. The nodes are this machine: its output and its checkpoints are seen here at once, and its large
/// environment does not travel.
fn submit<'a>(cluster: &'a Cluster, instances: &str, settle: &str) -> ClusterJob<'a> {
    let workspace = Workspace::new(cluster);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pytorch-digits");
    for name in ["train.py", "train_elastic.py"] {
        fs::copy(root.join(name), workspace.path().join(name)).expect("the example's file");
    }
    let python = example_environment("pytorch").join("bin/python");
    let (python, seen) = (python.display(), workspace.path().display());
    let id = workspace.detach(&format!(
        "name: elastic\nframework: pytorch\nfiles: [train.py, train_elastic.py]\n\
         env: {{OMP_NUM_THREADS: '1'}}\ngang: {{settle: {settle}}}\n\
         roles: {{worker: {{instances: {instances}, memory: 1 GiB, shell: 'exec {python} train_elastic.py \
         --epochs 6 --until {seen}/enough --checkpoint {seen}/kept --save-every {SAVE_EVERY} --pause 0.01 \
         >> {seen}/worker.$YDL_INDEX.$YDL_ATTEMPT'}}}}\n"
    ));
    ClusterJob::of(workspace, id)
}

fn training(job: &ClusterJob) -> Training {
    let mut all = Vec::new();
    for entry in fs::read_dir(job.workspace.path()).expect("a directory").flatten() {
        if entry.file_name().to_string_lossy().starts_with("worker.") {
            all.push(fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    Training::read(&all)
}

fn reaches(job: &ClusterJob, worlds: &[u32]) {
    wait_for(&format!("rounds of {worlds:?} of {}", job.describe()), || {
        training(job).has_reached(worlds).then_some(())
    });
}

fn ends_well(job: &ClusterJob, worlds: &[u32]) {
    fs::write(job.file("enough"), "").expect("a file");
    job.assert_succeeded();
    training(job).assert_successful(worlds, SAVE_EVERY);
}

/// The cluster takes every node but these, and gives back those it had taken.
fn nodes_are(cluster: &Cluster, welcome: &[&str]) {
    let nodes = cluster.nodes().iter();
    let hosts = nodes.map(|node| (node.address.ip().to_string(), &node.daemon));
    let (here, gone): (Vec<_>, Vec<_>) = hosts.partition(|(host, _)| welcome.contains(&&**host));
    let taken: Vec<_> = gone.iter().map(|(host, _)| &**host).collect();
    fs::write(excluded(), taken.join("\n")).expect("a file");
    for (_, daemon) in &gone {
        if must(cluster.pid(daemon)).is_some() {
            must(cluster.kill(daemon));
        }
    }
    must(cluster.rm_admin(&["-refreshNodes"]));
    for (_, daemon) in here {
        if must(cluster.pid(daemon)).is_none() {
            must(cluster.start_daemon(daemon));
        }
    }
}

#[test]
fn pytorch_goes_on_with_two_four_one_and_two_workers() {
    // With a long settle time a round starts only with all requested workers.
    let cluster = &*cluster();
    let job = submit(cluster, "{min: 1, max: 4, start: 2}", "1h");
    reaches(&job, &[2]);
    job.scale(4);
    reaches(&job, &[2, 4]);
    let own = application(cluster, &job.id).host;
    nodes_are(cluster, &[&own]);
    reaches(&job, &[2, 4, 1]);
    let why = job.status()["view"]["reason"].to_string();
    assert!(why.contains("`worker` continues with 1 of 4"), "{why}");
    let hosts = cluster.nodes().iter();
    let mut hosts = hosts.map(|node| node.address.ip().to_string());
    let other = hosts.find(|host| *host != own).expect("another node");
    // There will be no more than two for now.
    job.scale(2);
    nodes_are(cluster, &[&own, &other]);
    reaches(&job, &[2, 4, 1, 2]);
    ends_well(&job, &[2, 4, 1, 2]);
}
