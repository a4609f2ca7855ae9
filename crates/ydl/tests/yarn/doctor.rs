//! `ydl doctor` on healthy and faulty clusters. The test without a ticket is in `yarn_kerberos`.

use serde_json::Value;
use testbed::{Cluster, Lease, Options, Queue};
use ydl_testkit::{
    CommandOutput,
    yarn::{Workspace, applications, hdfs_files, shared, version, wait_for},
};

fn cluster() -> Lease {
    shared(Options {
        nodes: 1,
        queues: vec![Queue::new("default", 90), Queue::new("other", 10)],
        users: ["alice", "bob"].map(str::to_owned).into(),
        ..Options::new(version())
    })
}

fn expect_ok<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns the state and the text of each check, in order.
fn lines(ran: &CommandOutput) -> Vec<(String, String)> {
    let lines = ran.stdout.lines().map(|line| {
        let (state, rest) = line.split_once(' ').unwrap_or((line, ""));
        (state.to_owned(), rest.trim().to_owned())
    });
    lines.collect()
}

fn state_of<'a>(lines: &'a [(String, String)], name: &str) -> &'a (String, String) {
    let found = lines.iter().find(|(_, rest)| rest.starts_with(name));
    found.unwrap_or_else(|| panic!("no check {name} in {lines:?}"))
}

/// Asserts that this check alone failed, with this error and hint.
fn assert_only_failure(ran: &CommandOutput, name: &str, code: i32, message: &str, hint: &str) {
    assert_eq!(ran.code, code, "{ran:#?}");
    let errors: Vec<_> = ran.stderr.lines().filter(|it| it.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{ran:#?}");
    assert!(errors[0].starts_with(&format!("error: {name}: ")), "{ran:#?}");
    assert!(errors[0].contains(message), "`{message}` is not in {ran:#?}");
    assert!(ran.stderr.contains("\n\nhint: "), "{ran:#?}");
    assert!(ran.stderr.contains(hint), "`{hint}` is not in {ran:#?}");
    assert_eq!(state_of(&lines(ran), name).0, "failed", "{ran:#?}");
}

fn assert_skipped(ran: &CommandOutput, name: &str, cause: &str) {
    let lines = lines(ran);
    let (state, rest) = state_of(&lines, name);
    assert_eq!(state, "skipped", "{ran:#?}");
    assert!(rest.ends_with(&format!("because `{cause}` failed")), "{ran:#?}");
}

/// Breaks and repairs parts of one cluster, one after another.
#[test]
fn doctor_names_each_fault_first() {
    let cluster = &*cluster();
    let alice = Workspace::of(cluster, "alice");
    check_healthy_cluster(&alice);
    check_unknown_queue_and_label(&alice);
    check_unwritable_staging(cluster, &alice);
    check_inaccessible_home(cluster, &alice);
    check_missing_configuration(&alice);
    check_wrong_address(cluster, &alice);
    check_stopped_datanode(cluster, &alice);
    check_stopped_namenode(cluster, &alice);
    check_stopped_resource_manager(cluster, &alice);
}

fn check_healthy_cluster(alice: &Workspace) {
    let ran = alice.run(&["doctor", "--wait", "10m"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let lines = lines(&ran);
    let names = [
        "configuration",
        "ticket",
        "ResourceManager",
        "nodes",
        "queue",
        "NameNode",
        "staging",
        "job",
    ];
    for (name, (state, rest)) in names.iter().zip(&lines) {
        assert!(rest.starts_with(name), "{ran:#?}");
        assert!(state == "ok" || (*name == "NameNode" && state == "warning"), "{ran:#?}");
    }
    assert_eq!(lines.len(), names.len(), "{ran:#?}");
    let (_, job) = state_of(&lines, "job");
    for phase in [": submit ", ", master ", ", container ", ", program ", ", end "] {
        assert!(job.contains(phase), "{job}");
    }
    assert!(ran.stderr.contains("all checks passed"), "{ran:#?}");
    let left = hdfs_files(alice.cluster, "/user/alice/.ydl");
    assert!(!left.iter().any(|path| path.contains("probe-")), "{left:?}");

    let before = applications(alice.cluster).len();
    let ran = alice.run(&["doctor", "--no-job", "--queue", "other", "--json"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let output = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let output: Vec<Value> = output.collect();
    let states = output.iter().filter_map(|check| check["state"].as_str());
    assert_eq!(states.collect::<Vec<_>>(), ["ok"; 7], "{ran:#?}");
    assert_eq!(output[7]["result"]["ok"], true, "{ran:#?}");
    assert!(output[4]["message"].as_str().is_some_and(|it| it.contains("`other`")), "{ran:#?}");
    assert_eq!(applications(alice.cluster).len(), before, "a job was submitted");
}

fn check_unknown_queue_and_label(alice: &Workspace) {
    let ran = alice.run(&["doctor", "--queue", "reserch", "--json"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    let last = ran.stdout.lines().last().expect("a line");
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["result"]["first_failure"], "queue", "{ran:#?}");
    let ran = alice.run(&["doctor", "--queue", "reserch"]);
    let message = "there is no queue `reserch` among the 2 of the cluster";
    assert_only_failure(&ran, "queue", 2, message, "set `--queue` to one of `default`, `other`");
    assert_skipped(&ran, "job", "queue");
    assert_eq!(state_of(&lines(&ran), "staging").0, "ok", "{ran:#?}");

    let ran = alice.run(&["doctor", "--label", "gpu"]);
    let message = "asks for nodes with label `gpu`, which the cluster does not have";
    assert_only_failure(
        &ran,
        "label",
        2,
        message,
        "leave `--label` out: the cluster has no labels",
    );
    assert_skipped(&ran, "job", "label");
}

fn check_unwritable_staging(cluster: &Cluster, alice: &Workspace) {
    expect_ok(cluster.fs(&["-mkdir", "/shut"]));
    expect_ok(cluster.fs(&["-chmod", "700", "/shut"]));
    let ran = alice.run(&["doctor", "--staging", "/shut/alice"]);
    let message = "user `alice` has no ";
    assert_only_failure(&ran, "staging", 123, message, "name another directory with `staging:`");
    assert_skipped(&ran, "job", "staging");

    // A staging directory outside of HDFS fails only its own check.
    let ran = alice.run(&["doctor", "--staging", "file:///tmp/x"]);
    assert_only_failure(&ran, "staging", 2, "file:///tmp/x", "hdfs://");
    for name in ["queue", "NameNode"] {
        assert_eq!(state_of(&lines(&ran), name).0, "ok", "{ran:#?}");
    }
}

/// A user without access to `/user` can name another staging directory. The check of the NameNode succeeds.
fn check_inaccessible_home(cluster: &Cluster, alice: &Workspace) {
    expect_ok(cluster.fs(&["-mkdir", "/open"]));
    expect_ok(cluster.fs(&["-chmod", "777", "/open"]));
    expect_ok(cluster.fs(&["-chmod", "700", "/user"]));
    let ran = alice.run(&["doctor", "--no-job"]);
    let elsewhere = alice.run(&["doctor", "--no-job", "--staging", "/open/alice"]);
    expect_ok(cluster.fs(&["-chmod", "755", "/user"]));
    let message = "user `alice` has no ";
    assert_only_failure(&ran, "staging", 123, message, "name another directory with `staging:`");
    assert_eq!(state_of(&lines(&ran), "NameNode").0, "ok", "{ran:#?}");
    assert_eq!(elsewhere.code, 0, "{elsewhere:#?}");
}

fn check_missing_configuration(alice: &Workspace) {
    let mut command = alice.ydl();
    command.args(["doctor"]);
    let empty = alice.path().join("nowhere");
    std::fs::create_dir(&empty).expect("a directory");
    command.env("HADOOP_CONF_DIR", empty);
    let ran = CommandOutput::from(command.output().expect("ydl can be started"));
    assert_only_failure(
        &ran,
        "configuration",
        2,
        "there is no Hadoop configuration in `",
        "set `HADOOP_CONF_DIR`",
    );
    for name in ["ticket", "ResourceManager", "queue", "NameNode", "staging", "job"] {
        assert_skipped(&ran, name, "configuration");
    }
}

/// The ResourceManager runs, but the configured client address is wrong.
fn check_wrong_address(cluster: &Cluster, alice: &Workspace) {
    let address = cluster.resource_managers()[0].client.to_string();
    let wrong = "127.0.0.1:1";
    let conf = alice.path().join("wrong");
    std::fs::create_dir(&conf).expect("a directory");
    for entry in std::fs::read_dir(cluster.configuration()).expect("the configuration") {
        let path = entry.expect("a file").path();
        let Some(name) = path.file_name().filter(|_| path.is_file()) else {
            continue;
        };
        let text = std::fs::read(&path).expect("a file");
        let text = String::from_utf8_lossy(&text).replace(&address, wrong);
        std::fs::write(conf.join(name), text).expect("a file");
    }
    let ran = |args: &[&str]| {
        let mut command = alice.ydl();
        command.args(args).env("HADOOP_CONF_DIR", &conf);
        CommandOutput::from(command.output().expect("ydl can be started"))
    };
    let message = format!("can be reached at `{wrong}`: connection refused");
    let hint = "check `yarn.resourcemanager.address` in `";
    assert_only_failure(&ran(&["doctor"]), "ResourceManager", 122, &message, hint);
    let nodes = ran(&["nodes"]);
    assert_eq!(nodes.code, 122, "{nodes:#?}");
    assert!(nodes.stderr.contains(&message), "{nodes:#?}");
    assert!(nodes.stderr.contains(hint), "{nodes:#?}");
}

/// The NameNode responds, and still lists its dead DataNode for a while.
fn check_stopped_datanode(cluster: &Cluster, alice: &Workspace) {
    expect_ok(cluster.kill("dn"));
    let ran = alice.run(&["doctor"]);
    expect_ok(cluster.start_daemon("dn"));
    expect_ok(cluster.wait_hdfs());
    let hint = "`hdfs dfsadmin -report`";
    assert_only_failure(&ran, "staging", ran.code, "no DataNode ", hint);
    assert_skipped(&ran, "job", "staging");
    assert_eq!(state_of(&lines(&ran), "NameNode").0, "ok", "{ran:#?}");
}

fn check_stopped_namenode(cluster: &Cluster, alice: &Workspace) {
    expect_ok(cluster.kill("nn"));
    let ran = alice.run(&["doctor"]);
    expect_ok(cluster.start_daemon("nn"));
    expect_ok(cluster.wait_hdfs());
    let address = format!("`{}`", cluster.namenodes()[0].rpc);
    assert_only_failure(&ran, "NameNode", 122, &address, "see whether HDFS runs");
    assert_skipped(&ran, "staging", "NameNode");
    assert_skipped(&ran, "job", "NameNode");
    assert_eq!(state_of(&lines(&ran), "queue").0, "ok", "{ran:#?}");
}

fn check_stopped_resource_manager(cluster: &Cluster, alice: &Workspace) {
    expect_ok(cluster.kill("rm"));
    let ran = alice.run(&["doctor"]);
    expect_ok(cluster.start_daemon("rm"));
    expect_ok(cluster.wait_nodes(1));
    let address = format!("at `{}`", cluster.resource_managers()[0].client);
    assert_only_failure(&ran, "ResourceManager", 122, &address, "check that it runs and that `");
    for name in ["nodes", "queue", "job"] {
        assert_skipped(&ran, name, "ResourceManager");
    }
    assert_eq!(state_of(&lines(&ran), "staging").0, "ok", "{ran:#?}");
    // The cluster is repaired.
    wait_for("a healthy cluster", || (alice.run(&["doctor", "--no-job"]).code == 0).then_some(()));
}
