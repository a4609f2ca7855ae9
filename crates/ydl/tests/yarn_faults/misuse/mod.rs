//! Messages for users about faulty clusters: stopped queues, a ResourceManager in standby, a read-only HDFS, and nodes
//! that cannot run the binary.

mod nodes;
mod pending;
mod rejected;
mod traffic;

use std::{process::Command, time::Duration};
use testbed::{Failover, File, Lease, Options, Queue};
use ydl_testkit::yarn::{exclusive, shared, version};

/// Leases the shared cluster.
fn shared_cluster() -> Lease {
    shared(options())
}

/// Leases the cluster exclusively. The test must repair what it breaks.
fn exclusive_cluster() -> Lease {
    exclusive(options())
}

/// Two nodes of 4 GiB and two ResourceManagers. Queues: `tiny` is limited to a tenth, `stopped` takes no jobs, `closed`
/// none of ordinary users, below `users` queues are created on demand, and containers of `loan` beyond a tenth are
/// preempted.
fn options() -> Options {
    let options = Options {
        nodes: 2,
        node_memory_mib: 4096,
        node_vcores: 32,
        queues: vec![
            Queue::new("default", 50),
            Queue::new("tiny", 10),
            Queue::new("stopped", 5),
            Queue::new("closed", 5),
            Queue::new("users", 20),
            Queue::new("loan", 10),
        ],
        preemption: Some(Duration::from_secs(1)),
        users: ["alice", "foreign", "poor", "careless"].map(str::to_owned).into(),
        rm_ha: Some(Failover::Manual),
        expiry: Duration::from_secs(120),
        ..Options::new(version())
    };
    let own = Command::new("id").arg("-un").output().expect("a name");
    let own = String::from_utf8(own.stdout).expect("text");
    let own = own.trim();
    let queues = [
        ("acl_submit_applications", " "),
        ("acl_administer_queue", own),
        ("default.acl_submit_applications", "*"),
        ("tiny.acl_submit_applications", "*"),
        ("stopped.acl_submit_applications", "*"),
        ("closed.acl_submit_applications", own),
        ("users.acl_submit_applications", "*"),
        ("loan.acl_submit_applications", "*"),
        ("tiny.maximum-capacity", "10"),
        ("stopped.state", "STOPPED"),
        ("users.auto-queue-creation-v2.enabled", "true"),
    ];
    let yarn = [
        ("yarn.acl.enable", "true"),
        ("yarn.admin.acl", own),
        ("yarn.nodemanager.disk-health-checker.interval-ms", "1000"),
        // Otherwise Hadoop 3.5 leaves memory limits to control groups, which the test bed does not have.
        ("yarn.nodemanager.resource.memory.enforced", "false"),
        ("yarn.nodemanager.vmem-check-enabled", "true"),
        ("yarn.nodemanager.vmem-pmem-ratio", "20"),
        ("yarn.nodemanager.container-monitor.interval-ms", "300"),
    ];
    let options = queues.iter().fold(options, |options, (key, value)| {
        let key = format!("yarn.scheduler.capacity.root.{key}");
        options.set(File::Queues, &key, value)
    });
    yarn.iter().fold(options, |options, (key, value)| options.set(File::Yarn, key, value))
}

fn expect_ok<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}
