//! A job of many tasks leaks nothing. The only test of its binary, because others would change the counts.

use std::fs;
use ydl_testkit::local::Home;

/// Returns the open files of this process.
fn open_files() -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let mut open_files: Vec<_> = descriptors
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| !target.ends_with("/fd"))
        .collect();
    open_files.sort();
    open_files
}

/// Number of tasks. Far more than run at a time, so a leak per task exceeds it.
const TASKS: usize = 200;

#[test]
fn two_hundred_tasks_leak_no_descriptor_and_no_process() {
    let home = Home::new();
    let before = open_files();
    home.write(
        "job.yaml",
        &format!(
            "name: t\nroles: {{worker: {{instances: {TASKS}, memory: 64 MiB, run: 'true'}}}}\n"
        ),
    );
    let log = fs::File::create(home.path().join("log")).expect("a file");
    let mut command = home.ydl();
    // Eight tasks at a time on any machine.
    command.args(["submit", "--resources", "vcores=8", "job.yaml"]);
    let mut child = command.stderr(log).spawn().expect("ydl");
    drop(command);
    // The master is watched while it works: its descriptors and children must not pile up.
    let (mut descriptors_max, mut processes_max) = (0, 0);
    let status = loop {
        if let Some(master) = home.find(" master ").first() {
            let fds = fs::read_dir(format!("/proc/{}/fd", master.pid)).map_or(0, |all| all.count());
            descriptors_max = descriptors_max.max(fds);
            processes_max = processes_max.max(home.processes().len());
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
    };
    drop(child);
    assert!(status.success(), "{status}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    assert!(processes_max > 0, "no process of the job was seen");
    // Each of the eight has an agent, a shim, a program and a connection or two.
    assert!(descriptors_max < TASKS, "the master had {descriptors_max} descriptors");
    assert!(processes_max < TASKS, "there were {processes_max} processes at once");
    assert_eq!(open_files(), before);
}
