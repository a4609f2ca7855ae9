//! The MXNet example on a cluster, and what must be gone when a job is over.

use super::{Desk, Ran, application, environment, wait_for};
use std::{fs, path::Path};
use testbed::Cluster;

/// The tasks of the example.
pub const TASKS: [(&str, u32); 4] = [("worker", 0), ("worker", 1), ("server", 0), ("server", 1)];

/// Lays the example out at this desk, as `make demo` does.
pub fn lay_out(desk: &Desk) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mxnet-digits");
    for name in ["train.py", "job.yaml"] {
        fs::copy(from.join(name), desk.path().join(name)).expect("the example's file");
    }
    std::os::unix::fs::symlink(environment(), desk.path().join("venv")).expect("a link");
}

/// The job's id, from what an attached submit has said.
pub fn id(ran: &Ran) -> String {
    let words = ran.err.split_whitespace();
    let mut ids = words
        .filter(|word| word.starts_with("application_"))
        .map(|word| word.trim_end_matches(':'));
    ids.next_back().unwrap_or_else(|| panic!("no id in {ran:#?}")).to_owned()
}

/// Both workers have printed how good they are.
pub fn learned(printed: &str) {
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

/// How the containers of a job are named.
fn containers(id: &str) -> String {
    id.replace("application_", "container_")
}

/// Processes of that job: the number, and the words it was started with.
pub fn processes(id: &str) -> Vec<(u32, String)> {
    // Names of containers may have an epoch in them: `container_e02_…`.
    let mark = id.trim_start_matches("application_");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let place = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let words = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        // NodeManagers stay, and a client that follows the job is no part of it.
        let own = place.display().to_string().contains(mark)
            || String::from_utf8_lossy(&read("environ")).contains(&format!("_{mark}_"));
        if own && !words.is_empty() {
            found.push((pid, words));
        }
    }
    found
}

/// The ResourceManager counts no container of this job, no node has one, and no process is left.
pub fn wait_gone(cluster: &Cluster, id: &str) {
    wait_for(&format!("the end of all containers of {id}"), || {
        let usage = application(cluster, id).usage;
        let used = usage.map_or(0, |usage| usage.containers);
        (used <= 0).then_some(())
    });
    for node in cluster.nodes() {
        let what = format!("that {} has no container of {id}", node.daemon);
        wait_for(&what, || {
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
