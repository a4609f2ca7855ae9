//! Elastic roles on a real cluster.

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
    fs::write(exclude_file(), "").expect("a file");
    let options = Options {
        nodes: 4,
        // Room for one worker per node, and for the master on one of them.
        node_memory_mib: 1536,
        ..Options::new(version())
    };
    let path = exclude_file().display().to_string();
    shared(options.set(File::Yarn, "yarn.resourcemanager.nodes.exclude-path", &path))
}

/// Returns the path of the cluster's list of excluded nodes.
fn exclude_file() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("elastic-excluded")
}

fn expect_ok<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Submits the elastic example. All nodes are this machine, so the test reads its output and checkpoints directly, and
/// its environment is not packed.
fn submit<'a>(cluster: &'a Cluster, instances: &str, settle: &str) -> ClusterJob<'a> {
    let workspace = Workspace::new(cluster);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pytorch-digits");
    for name in ["train.py", "train_elastic.py"] {
        fs::copy(root.join(name), workspace.path().join(name)).expect("the example's file");
    }
    let python = example_environment("pytorch").join("bin/python");
    let (python, dir) = (python.display(), workspace.path().display());
    let id = workspace.detach(&format!(
        "name: elastic\nframework: pytorch\nfiles: [train.py, train_elastic.py]\n\
         env: {{OMP_NUM_THREADS: '1'}}\ngang: {{settle: {settle}}}\n\
         roles: {{worker: {{instances: {instances}, memory: 1 GiB, shell: 'exec {python} train_elastic.py \
         --epochs 6 --until {dir}/enough --checkpoint {dir}/kept --save-every {SAVE_EVERY} --pause 0.01 \
         >> {dir}/worker.$YDL_INDEX.$YDL_ATTEMPT'}}}}\n"
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

fn wait_for_rounds(job: &ClusterJob, sizes: &[u32]) {
    wait_for(&format!("rounds of {sizes:?} of {}", job.describe()), || {
        training(job).has_reached(sizes).then_some(())
    });
}

fn assert_success(job: &ClusterJob, sizes: &[u32]) {
    fs::write(job.file("enough"), "").expect("a file");
    job.assert_succeeded();
    training(job).assert_successful(sizes, SAVE_EVERY);
}

/// Excludes all nodes but these, and readmits these.
fn set_nodes(cluster: &Cluster, included: &[&str]) {
    let nodes = cluster.nodes().iter();
    let hosts = nodes.map(|node| (node.address.ip().to_string(), &node.daemon));
    let (included_nodes, excluded_nodes): (Vec<_>, Vec<_>) =
        hosts.partition(|(host, _)| included.contains(&&**host));
    let names: Vec<_> = excluded_nodes.iter().map(|(host, _)| &**host).collect();
    fs::write(exclude_file(), names.join("\n")).expect("a file");
    for (_, daemon) in &excluded_nodes {
        if expect_ok(cluster.pid(daemon)).is_some() {
            expect_ok(cluster.kill(daemon));
        }
    }
    expect_ok(cluster.rm_admin(&["-refreshNodes"]));
    for (_, daemon) in included_nodes {
        if expect_ok(cluster.pid(daemon)).is_none() {
            expect_ok(cluster.start_daemon(daemon));
        }
    }
}

#[test]
fn pytorch_continues_with_two_four_one_and_two_workers() {
    // With a long settle time a round starts only with all requested workers.
    let cluster = &*cluster();
    let job = submit(cluster, "{min: 1, max: 4, start: 2}", "1h");
    wait_for_rounds(&job, &[2]);
    job.scale(4);
    wait_for_rounds(&job, &[2, 4]);
    let own = application(cluster, &job.id).host;
    set_nodes(cluster, &[&own]);
    wait_for_rounds(&job, &[2, 4, 1]);
    let why = job.status()["view"]["reason"].to_string();
    assert!(why.contains("`worker` continues with 1 of 4"), "{why}");
    let hosts = cluster.nodes().iter();
    let mut hosts = hosts.map(|node| node.address.ip().to_string());
    let other = hosts.find(|host| *host != own).expect("another node");
    // The cluster has room for two workers.
    job.scale(2);
    set_nodes(cluster, &[&own, &other]);
    wait_for_rounds(&job, &[2, 4, 1, 2]);
    assert_success(&job, &[2, 4, 1, 2]);
}
