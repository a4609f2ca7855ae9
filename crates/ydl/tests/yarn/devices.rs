//! GPUs on a cluster, assigned exclusively, both with and without accounting by the cluster.

use rustix::process::Pid;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};
use testbed::{File, Lease, Options};
use ydl_testkit::yarn::{Workspace, shared, version, wait_finished, wait_for};

/// Returns device names that are unique on this machine, because assignments are visible to all of its clusters.
fn devices() -> [String; 2] {
    [0, 1].map(|n| format!("d{}-{n}", std::process::id()))
}

/// Leases a cluster with one node and two GPUs, named by its administrator.
fn cluster() -> Lease {
    let options = Options { nodes: 1, gpus: vec![2], ..Options::new(version()) };
    let name = "yarn.nodemanager.admin-env.YDL_GPUS";
    shared(options.set(File::Yarn, name, &devices().join(",")))
}

/// Waits until this number of tasks has reported. Returns the device and the container of each.
fn wait_for_devices(dir: &Path, count: usize) -> Vec<(String, String)> {
    wait_for("every task's word", || {
        let files = fs::read_dir(dir).expect("a directory");
        let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()));
        let texts: Vec<_> = texts.map(|text| text.expect("text")).collect();
        let whole = texts.iter().filter_map(|text| text.strip_suffix('\n'));
        let whole = whole.filter_map(|text| text.split_once(' '));
        let whole: Vec<_> = whole.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        (whole.len() == count).then_some(whole)
    })
}

/// Returns a job whose tasks report their GPU and wait for the end of the test.
fn job(dir: &Path, assignment: &str) -> String {
    let dir = dir.display();
    let lines = [
        format!("gpu_assignment: {assignment}"),
        "restart: {limit: 1}".to_owned(),
        "roles:".to_owned(),
        "  worker:".to_owned(),
        "    instances: 2".to_owned(),
        "    gpus: 1".to_owned(),
        "    memory: 64 MiB".to_owned(),
        "    shell: |".to_owned(),
        format!("      echo $CUDA_VISIBLE_DEVICES $YDL_CONTAINER > {dir}/$YDL_INDEX-$YDL_ATTEMPT"),
        format!("      while [ ! -e {dir}.over ]; do sleep 0.1; done"),
    ];
    lines.join("\n")
}

/// Returns the pid of the agent in that container.
fn agent(container: &str) -> i32 {
    let processes = fs::read_dir("/proc").expect("processes");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let read = |pid: i32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let variable = format!("CONTAINER_ID={container}");
    let mut agents = pids.filter(|pid| {
        let variables = String::from_utf8_lossy(&read(*pid, "environ")).into_owned();
        read(*pid, "cmdline").starts_with(b"./ydl\0agent\0")
            && variables.split('\0').any(|it| it == variable)
    });
    agents.next().expect("an agent")
}

fn names(wait_for_devices: &[(String, String)]) -> BTreeSet<&str> {
    wait_for_devices.iter().map(|(device, _)| device.as_str()).collect()
}

/// Ends the tasks and asserts that the job succeeds.
fn finish(workspace: &Workspace<'_>, id: &str) {
    fs::write(workspace.path().join("seen.over"), "").expect("a file");
    let report = wait_finished(workspace.cluster, id);
    assert!(report.diagnostics.contains("succeeded"), "{report:?}");
}

fn start(workspace: &Workspace<'_>, assignment: &str) -> (String, PathBuf) {
    let dir = workspace.path().join("seen");
    fs::create_dir(&dir).expect("a directory");
    (workspace.detach(&job(&dir, assignment)), dir)
}

/// The jobs run one after another, because each needs both GPUs.
#[test]
fn tasks_on_one_node_have_different_gpus_which_a_dead_agent_releases() {
    let devices = devices();
    let both: BTreeSet<&str> = devices.iter().map(String::as_str).collect();
    let cluster = &*cluster();
    let counted = Workspace::new(cluster);
    let (id, dir) = start(&counted, "cluster");
    assert_eq!(names(&wait_for_devices(&dir, 2)), both);
    finish(&counted, &id);

    let uncounted = Workspace::new(cluster);
    let (id, dir) = start(&uncounted, "agent");
    let first = wait_for_devices(&dir, 2);
    assert_eq!(names(&first), both);
    let pid = Pid::from_raw(agent(&first[0].1)).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    let all = wait_for_devices(&dir, 3);
    let again = all.iter().find(|one| !first.contains(one)).expect("a second attempt");
    assert_eq!(again.0, first[0].0, "not the device that was freed");
    finish(&uncounted, &id);
}
