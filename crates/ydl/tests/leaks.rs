//! A job of many tasks leaves nothing behind. The only test of its binary, because others would change the counts.

use std::fs;
use ydl_testkit::local::Home;

/// Returns the open files of this process.
fn open() -> Vec<String> {
    let mine = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let mut open: Vec<_> = mine
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| !target.ends_with("/fd"))
        .collect();
    open.sort();
    open
}

#[test]
fn two_hundred_tasks_of_true_leak_nothing() {
    let home = Home::new();
    let before = open();
    home.write(
        "job.yaml",
        "name: t\nroles: {worker: {instances: 200, memory: 64 MiB, run: 'true'}}\n",
    );
    let log = fs::File::create(home.path().join("log")).expect("a file");
    let mut command = home.ydl();
    let mut child = command.args(["submit", "job.yaml"]).stderr(log).spawn().expect("ydl");
    drop(command);
    // The master is watched while it works: its descriptors and children must not pile up.
    let (mut most_descriptors, mut most_processes) = (0, 0);
    let status = loop {
        if let Some(master) = home.find(" master ").first() {
            let fds = fs::read_dir(format!("/proc/{}/fd", master.pid)).map_or(0, |all| all.count());
            most_descriptors = most_descriptors.max(fds);
            most_processes = most_processes.max(home.processes().len());
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
    };
    drop(child);
    assert!(status.success(), "{status}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    assert!(most_processes > 0, "the master was never seen");
    // Eight tasks run at a time on two cores; each has an agent, a shim, a program and a connection or two.
    assert!(most_descriptors < 150, "the master had {most_descriptors} descriptors");
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    assert!(most_processes < 20 + cores * 20, "there were {most_processes} processes at once");
    assert_eq!(open(), before);
}
