//! Jobs and the modules on their path, on real Hadoop daemons.

#[path = "../agent_harness/mod.rs"]
mod agent_harness;

mod agent;
mod backend;
mod client;
mod compat;
mod dashboards;
mod data;
mod devices;
mod docker;
mod doctor;
mod jobs;
mod journal;
mod pack;
mod python;
mod skein;
mod stage;
mod tf_yarn;
mod views;

use testbed::{File, Label, Lease, Options, Queue};
use ydl_testkit::yarn::{shared, version};

/// Leases the cluster of all modules that need nothing special: two nodes with room for several jobs, and one
/// whose label only the queue `ml-gpu` may use.
fn common_cluster() -> Lease {
    let labels = vec!["gpu".to_owned()];
    let options = Options {
        nodes: 3,
        node_memory_mib: 24 << 10,
        node_vcores: 60,
        labels: vec![Label { name: "gpu".to_owned(), nodes: vec![3], exclusive: true }],
        queues: vec![Queue::new("default", 80), Queue { labels, ..Queue::new("ml-gpu", 20) }],
        users: vec!["alice".to_owned()],
        ..Options::new(version())
    };
    // Tests kill masters and change priorities.
    let options = options.set(File::Yarn, "yarn.resourcemanager.am.max-attempts", "100");
    shared(options.set(File::Yarn, "yarn.cluster.max-application-priority", "10"))
}
