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

/// One node with two devices, which its administrator names.
fn cluster() -> Lease {
    let options = Options { nodes: 1, gpus: vec![2], ..Options::new(version()) };
    let name = "yarn.nodemanager.admin-env.YDL_GPUS";
    shared(options.set(File::Yarn, name, &devices().join(",")))
}

/// Waits until this number of tasks has reported. Returns the device and the container of each.
fn seen(place: &Path, count: usize) -> Vec<(String, String)> {
    wait_for("every task's word", || {
        let files = fs::read_dir(place).expect("a directory");
        let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()));
        let texts: Vec<_> = texts.map(|text| text.expect("text")).collect();
        let whole = texts.iter().filter_map(|text| text.strip_suffix('\n'));
        let whole = whole.filter_map(|text| text.split_once(' '));
        let whole: Vec<_> = whole.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        (whole.len() == count).then_some(whole)
    })
}

/// A job whose tasks say what they see and wait until they are told that it is over.
fn job(place: &Path, assignment: &str) -> String {
    let place = place.display();
    let lines = [
        format!("gpu_assignment: {assignment}"),
        "restart: {limit: 1}".to_owned(),
        "roles:".to_owned(),
        "  worker:".to_owned(),
        "    instances: 2".to_owned(),
        "    gpus: 1".to_owned(),
        "    memory: 64 MiB".to_owned(),
        "    shell: |".to_owned(),
        format!(
            "      echo $CUDA_VISIBLE_DEVICES $YDL_CONTAINER > {place}/$YDL_INDEX-$YDL_ATTEMPT"
        ),
        format!("      while [ ! -e {place}.over ]; do sleep 0.1; done"),
    ];
    lines.join("\n")
}

/// The agent in that container.
fn agent(container: &str) -> i32 {
    let processes = fs::read_dir("/proc").expect("processes");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let read = |pid: i32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let variable = format!("CONTAINER_ID={container}");
    let mut agents = pids.filter(|pid| {
        let variables = String::from_utf8_lossy(&read(*pid, "environ")).into_owned();
        read(*pid, "cmdline") == b"./ydl\0agent\0" && variables.split('\0').any(|it| it == variable)
    });
    agents.next().expect("an agent")
}

fn names(seen: &[(String, String)]) -> BTreeSet<&str> {
    seen.iter().map(|(device, _)| device.as_str()).collect()
}

/// Tells the tasks that it is over, and sees to it that it went well.
fn finish(workspace: &Workspace<'_>, id: &str) {
    fs::write(workspace.path().join("seen.over"), "").expect("a file");
    let report = wait_finished(workspace.cluster, id);
    assert!(report.diagnostics.contains("succeeded"), "{report:?}");
}

fn begin(workspace: &Workspace<'_>, assignment: &str) -> (String, PathBuf) {
    let place = workspace.path().join("seen");
    fs::create_dir(&place).expect("a directory");
    (workspace.detach(&job(&place, assignment)), place)
}

/// One after the other: there are no more devices than one job needs.
#[test]
fn tasks_on_one_node_have_different_devices_and_those_of_a_dead_agent_are_free() {
    let devices = devices();
    let both: BTreeSet<&str> = devices.iter().map(String::as_str).collect();
    let cluster = &*cluster();
    let counted = Workspace::new(cluster);
    let (id, place) = begin(&counted, "cluster");
    assert_eq!(names(&seen(&place, 2)), both);
    finish(&counted, &id);

    let uncounted = Workspace::new(cluster);
    let (id, place) = begin(&uncounted, "agent");
    let first = seen(&place, 2);
    assert_eq!(names(&first), both);
    let pid = Pid::from_raw(agent(&first[0].1)).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    let all = seen(&place, 3);
    let again = all.iter().find(|one| !first.contains(one)).expect("a second attempt");
    assert_eq!(again.0, first[0].0, "the device that was freed");
    finish(&uncounted, &id);
}
