//! The MXNet example on a cluster, and what is left after a job.

use super::{Workspace, application, wait_for};
use crate::{CommandOutput, mxnet_environment, repository};
use std::fs;
use testbed::Cluster;

/// The tasks of the example.
pub const TASKS: [(&str, u32); 4] = [("worker", 0), ("worker", 1), ("server", 0), ("server", 1)];

/// Copies the example to a workspace, as `make demo` does.
pub fn copy_example(workspace: &Workspace) {
    let from = repository().join("examples/mxnet-digits");
    for name in ["train.py", "job.yaml"] {
        fs::copy(from.join(name), workspace.path().join(name)).expect("the example's file");
    }
    let link = workspace.path().join("venv");
    std::os::unix::fs::symlink(mxnet_environment(), link).expect("a link");
}

/// Returns the job's id from the stderr of an attached submit.
pub fn job_id(output: &CommandOutput) -> String {
    let words = output.stderr.split_whitespace();
    let mut ids = words
        .filter(|word| word.starts_with("application_"))
        .map(|word| word.trim_end_matches(':'));
    ids.next_back().unwrap_or_else(|| panic!("no id in {output:#?}")).to_owned()
}

/// Asserts that both workers printed a good accuracy.
pub fn assert_accuracy(printed: &str) {
    for worker in 0..2 {
        let prefix = format!("worker:{worker} | test accuracy ");
        let accuracy = printed.lines().find_map(|line| line.strip_prefix(&prefix));
        let accuracy: f64 = accuracy
            .unwrap_or_else(|| panic!("no `{prefix}` in {printed}"))
            .parse()
            .expect("a number");
        assert!(accuracy >= 0.95, "{accuracy}");
    }
}

/// Returns the common part of the ids of a job's containers.
fn containers(id: &str) -> String {
    id.replace("application_", "container_")
}

/// Returns the processes of a job on this machine, with their command lines.
pub fn processes(id: &str) -> Vec<(u32, String)> {
    // A container's id may contain an epoch: `container_e02_…`.
    let mark = id.trim_start_matches("application_");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let directory = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        // Neither NodeManagers nor clients that follow the job belong to it.
        let belongs = directory.display().to_string().contains(mark)
            || String::from_utf8_lossy(&read("environ")).contains(&format!("_{mark}_"));
        if belongs && !command.is_empty() {
            found.push((pid, command));
        }
    }
    found
}

/// Waits until the ResourceManager and the nodes have no container of a job, and no process is left.
pub fn wait_cleaned_up(cluster: &Cluster, id: &str) {
    wait_for(&format!("the end of all containers of {id}"), || {
        let usage = application(cluster, id).usage;
        let used = usage.map_or(0, |usage| usage.containers);
        (used <= 0).then_some(())
    });
    for node in cluster.nodes() {
        let event = format!("the removal of all containers of {id} from {}", node.daemon);
        wait_for(&event, || {
            let page = testbed::get(node.web, "/ws/v1/node/containers").ok()?;
            (!page.contains(&containers(id))).then_some(())
        });
    }
    let mut left = Vec::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while std::time::Instant::now() < end {
        left = processes(id);
        if left.is_empty() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    panic!("processes of {id} are left: {left:#?}");
}
