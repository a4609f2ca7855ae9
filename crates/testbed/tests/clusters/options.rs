//! Clusters of all versions start with the requested options, also concurrently.

use std::time::{Duration, Instant};
use testbed::{
    Cluster, ErrorKind, File, Hdfs, Label, Logs, Options, Placement, Queue, Scheduling, Version,
    field, get,
};

fn start(options: Options) -> Cluster {
    let began = Instant::now();
    let cluster = Cluster::start(options).unwrap_or_else(|error| panic!("{error}"));
    let version = cluster.options().version;
    eprintln!("{version}: up after {:.1} s", began.elapsed().as_secs_f64());
    cluster
}

fn assert_starts(version: Version) {
    let cluster = start(Options::new(version));
    let info = cluster.rest("/ws/v1/cluster/info").unwrap();
    assert_eq!(field(&info, "hadoopVersion"), Some(version.name()));
    cluster.fs(&["-mkdir", "-p", "/a/b"]).unwrap();
    let listing = cluster.fs(&["-ls", "/a"]).unwrap();
    assert!(listing.contains(&cluster.own_user()), "{listing}");
    for daemon in ["rm", "nn", "dn", "nm1"] {
        let memory = cluster.memory_kib(daemon).unwrap().unwrap();
        eprintln!("{version}: {daemon} {} MiB", memory / 1024);
        // The only logging backend writes to the daemon's log file.
        assert!(cluster.log(daemon).unwrap().contains("STARTUP_MSG"), "{daemon}");
    }
}

#[test]
fn a_cluster_of_2_10_starts() {
    assert_starts(Version::V2_10_2);
}

#[test]
fn a_cluster_of_3_3_starts() {
    assert_starts(Version::V3_3_6);
}

#[test]
fn a_cluster_of_3_4_starts() {
    assert_starts(Version::V3_4_2);
}

#[test]
fn a_cluster_of_3_5_starts() {
    assert_starts(Version::V3_5_0);
}

#[test]
fn concurrent_clusters_are_isolated() {
    let small = |version| Options { hdfs: Hdfs::None, ..Options::new(version) };
    let (old, new) = std::thread::scope(|scope| {
        let old = scope.spawn(|| start(small(Version::V2_10_2)));
        (start(small(Version::V3_5_0)), old.join().unwrap())
    });
    assert_ne!(old.nodes()[0].address, new.nodes()[0].address);
    assert_eq!(old.nodes()[0].address.ip(), new.nodes()[0].address.ip());
    old.kill("rm").unwrap();
    new.wait_nodes(1).unwrap();
    drop(old);
    new.wait_nodes(1).unwrap();
    assert!(new.pid("nm1").unwrap().is_some());
}

#[test]
fn labels_devices_and_queues_are_configured() {
    let cluster = start(Options {
        hdfs: Hdfs::None,
        nodes: 2,
        gpus: vec![0, 4],
        labels: vec![Label { name: "fast".to_owned(), nodes: vec![2], exclusive: true }],
        queues: vec![Queue::new("default", 70), Queue::new("ml", 30)],
        ..Options::new(Version::V3_3_6)
    });
    let node = |index: usize| {
        let page = format!("/ws/v1/cluster/nodes/{}", cluster.nodes()[index].address);
        cluster.rest(&page).unwrap()
    };
    let (plain, labelled) = (node(0), node(1));
    assert!(labelled.contains(r#""nodeLabels":["fast"]"#), "{labelled}");
    assert!(!plain.contains("fast"), "{plain}");
    let devices = |node: &str| {
        let total = node.split(r#""totalResource""#).nth(1).unwrap();
        let part = total.split(r#""name":"yarn.io/gpu""#).nth(1).unwrap();
        field(part, "value").unwrap().to_owned()
    };
    assert_eq!((devices(&plain).as_str(), devices(&labelled).as_str()), ("0", "4"));
    let queues = cluster.rest("/ws/v1/cluster/scheduler").unwrap();
    assert!(queues.contains(r#""queueName":"ml""#), "{queues}");
}

#[test]
fn a_cluster_starts_with_rarely_used_options() {
    let cluster = start(
        Options {
            attributes: vec![(1, "model".to_owned(), "a100".to_owned())],
            scheduling: Scheduling::Continuous,
            preemption: Some(Duration::from_secs(4)),
            placement: Placement::Processor,
            token_interval: Some(Duration::from_secs(12)),
            logs: Logs::Indexed,
            users: vec!["alice".to_owned()],
            ..Options::new(Version::V3_4_2)
        }
        .set(File::Yarn, "testbed.key", "<value>"),
    );
    let page = format!("/ws/v1/cluster/nodes/{}", cluster.nodes()[0].address);
    let node = cluster.rest(&page).unwrap();
    assert!(node.contains(r#""name":"model""#) && node.contains("a100"), "{node}");
    let homes = cluster.fs(&["-ls", "/user"]).unwrap();
    assert!(homes.contains("drwxrwxrwx") && homes.contains("/user/alice"), "{homes}");
    let configuration = get(cluster.resource_managers()[0].web, "/conf").unwrap();
    assert!(configuration.contains("testbed.key"), "{configuration}");
}

#[test]
fn equal_options_share_one_cluster() {
    let options = || Options { hdfs: Hdfs::None, nodes: 0, ..Options::new(Version::V2_10_2) };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| Cluster::shared(options()).unwrap());
        (one.join().unwrap(), Cluster::shared(options()).unwrap())
    });
    assert!(std::ptr::eq(one, two));
    // The cluster outlives the thread that started it.
    assert!(one.pid("rm").unwrap().is_some());
    let wrong = Cluster::shared(Options { nodes: 1000, ..options() }).unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::InvalidRequest);
}
