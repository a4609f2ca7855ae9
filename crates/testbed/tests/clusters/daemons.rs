//! Daemons can be killed, stopped, paused and restarted; redundant pairs fail over.

use testbed::{Cluster, ErrorKind, Failover, Hdfs, Options, Version, is_open};

fn start(options: Options) -> Cluster {
    Cluster::start(options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_daemon_restarts_after_a_kill() {
    let cluster = start(Options { nodes: 2, ..Options::new(Version::V3_5_0) });
    cluster.fs(&["-mkdir", "/persisted"]).unwrap();
    let names: Vec<_> = cluster.daemons().map(str::to_owned).collect();
    assert_eq!(names, ["rm", "nn", "dn", "nm1", "nm2"]);
    for name in &names {
        let before = cluster.pid(name).unwrap().unwrap();
        cluster.kill(name).unwrap();
        assert_eq!(cluster.pid(name).unwrap(), None);
        assert_eq!(cluster.kill(name).unwrap_err().kind, ErrorKind::InvalidRequest);
        cluster.start_daemon(name).unwrap();
        assert_ne!(cluster.pid(name).unwrap().unwrap(), before);
    }
    cluster.wait_active().unwrap();
    cluster.wait_nodes(2).unwrap();
    cluster.wait_hdfs().unwrap();
    cluster.fs(&["-ls", "/persisted"]).unwrap();
    assert_eq!(cluster.kill("nm9").unwrap_err().kind, ErrorKind::InvalidRequest);
}

#[test]
fn stopped_and_paused_nodes_are_reported_shut_down_and_lost() {
    let cluster = start(Options {
        hdfs: Hdfs::None,
        nodes: 2,
        expiry: std::time::Duration::from_secs(2),
        nm_recovery: false,
        ..Options::new(Version::V2_10_2)
    });
    cluster.stop("nm1").unwrap();
    cluster.pause("nm2").unwrap();
    cluster.wait_node("nm2", "LOST").unwrap();
    cluster.wait_node("nm1", "SHUTDOWN").unwrap();
    cluster.wait_nodes(0).unwrap();
    cluster.resume("nm2").unwrap();
    cluster.start_daemon("nm1").unwrap();
    cluster.wait_nodes(2).unwrap();
}

#[test]
fn manual_failover_activates_the_standby_resource_manager() {
    let cluster = start(Options {
        hdfs: Hdfs::None,
        rm_ha: Some(Failover::Manual),
        ..Options::new(Version::V3_4_2)
    });
    assert!(cluster.is_active("rm") && !cluster.is_active("rm2"));
    cluster.kill("rm").unwrap();
    cluster.fail_over("rm2").unwrap();
    assert_eq!(cluster.wait_active().unwrap().id, "rm2");
    cluster.wait_nodes(1).unwrap();
    cluster.start_daemon("rm").unwrap();
    assert!(cluster.is_active("rm2") && !cluster.is_active("rm"));
}

#[test]
fn zookeeper_activates_the_standby_resource_manager() {
    let cluster = start(Options {
        hdfs: Hdfs::None,
        rm_ha: Some(Failover::Automatic),
        ..Options::new(Version::V2_10_2)
    });
    let (active, other) = match cluster.is_active("rm") {
        true => ("rm", "rm2"),
        false => ("rm2", "rm"),
    };
    cluster.kill(active).unwrap();
    assert_eq!(cluster.wait_active().unwrap().daemon, other);
    cluster.wait_nodes(1).unwrap();
}

#[test]
fn failover_to_the_second_namenode_keeps_written_files() {
    let cluster =
        start(Options { nodes: 0, hdfs: Hdfs::HighlyAvailable, ..Options::new(Version::V3_3_6) });
    assert_eq!(cluster.default_fs(), "hdfs://testbed");
    assert!(cluster.is_active("nn") && !cluster.is_active("nn2"));
    cluster.fs(&["-mkdir", "/persisted"]).unwrap();
    cluster.kill("nn").unwrap();
    cluster.fail_over("nn2").unwrap();
    cluster.fs(&["-ls", "/persisted"]).unwrap();
}

#[test]
fn two_file_systems_have_separate_files() {
    let cluster = start(Options { nodes: 0, hdfs: Hdfs::Two, ..Options::new(Version::V3_5_0) });
    let [one, two] = cluster.namenodes() else {
        panic!("{:?}", cluster.namenodes());
    };
    assert!(is_open(one.rpc) && is_open(two.rpc));
    let path = |namenode: &testbed::NameNode| format!("hdfs://{}/here", namenode.rpc);
    cluster.fs(&["-mkdir", &path(one)]).unwrap();
    cluster.fs(&["-ls", &path(one)]).unwrap();
    assert_eq!(cluster.fs(&["-ls", &path(two)]).unwrap_err().kind, ErrorKind::Exited);
}

#[test]
fn a_viewfs_mounts_two_file_systems_one_of_them_highly_available() {
    let cluster = start(Options { nodes: 0, hdfs: Hdfs::ViewFs, ..Options::new(Version::V3_5_0) });
    assert_eq!(cluster.default_fs(), "viewfs://root");
    let [_, _, third] = cluster.namenodes() else {
        panic!("{:?}", cluster.namenodes());
    };
    cluster.fs(&["-mkdir", "-p", "/user/persisted", "/data/other"]).unwrap();
    cluster.fs(&["-ls", "hdfs://root/user/persisted"]).unwrap();
    cluster.fs(&["-ls", &format!("hdfs://{}/data/other", third.rpc)]).unwrap();
    cluster.kill("nn").unwrap();
    cluster.fail_over("nn2").unwrap();
    cluster.fs(&["-ls", "/user/persisted"]).unwrap();
}
