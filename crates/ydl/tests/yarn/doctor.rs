//! `ydl doctor` on healthy and faulty clusters: each time it names the cause first. The test without a ticket is in
//! `yarn_kerberos`.

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

fn must<T>(outcome: Result<T, testbed::Error>) -> T {
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
    found.unwrap_or_else(|| panic!("nothing of {name} in {lines:?}"))
}

/// The first thing that stderr calls an error is this, with a hint; and that check alone is wrong.
fn blames(ran: &CommandOutput, name: &str, code: i32, what: &str, hint: &str) {
    assert_eq!(ran.code, code, "{ran:#?}");
    let errors: Vec<_> = ran.stderr.lines().filter(|it| it.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{ran:#?}");
    assert!(errors[0].starts_with(&format!("error: {name}: ")), "{ran:#?}");
    assert!(errors[0].contains(what), "`{what}` is not in {ran:#?}");
    assert!(ran.stderr.contains("\n\nhint: "), "{ran:#?}");
    assert!(ran.stderr.contains(hint), "`{hint}` is not in {ran:#?}");
    assert_eq!(state_of(&lines(ran), name).0, "wrong", "{ran:#?}");
}

fn is_skipped(ran: &CommandOutput, name: &str, because: &str) {
    let lines = lines(ran);
    let (state, rest) = state_of(&lines, name);
    assert_eq!(state, "skipped", "{ran:#?}");
    assert!(rest.ends_with(&format!("because of `{because}`")), "{ran:#?}");
}

/// One cluster, well at first; then one thing after the other is taken away, and brought back.
#[test]
fn every_culprit_is_named_first() {
    let cluster = &*cluster();
    let alice = Workspace::of(cluster, "alice");
    a_good_cluster(&alice);
    a_queue_that_is_not_there(&alice);
    staging_that_cannot_be_written(cluster, &alice);
    a_home_that_cannot_be_reached(cluster, &alice);
    a_configuration_that_leads_nowhere(&alice);
    an_address_where_nobody_listens(cluster, &alice);
    a_datanode_that_is_down(cluster, &alice);
    a_namenode_that_is_down(cluster, &alice);
    a_resource_manager_that_is_down(cluster, &alice);
}

fn a_good_cluster(alice: &Workspace) {
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
    let said = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let said: Vec<Value> = said.collect();
    let states = said.iter().filter_map(|check| check["state"].as_str());
    assert_eq!(states.collect::<Vec<_>>(), ["ok"; 7], "{ran:#?}");
    assert_eq!(said[7]["result"]["ok"], true, "{ran:#?}");
    assert!(said[4]["found"].as_str().is_some_and(|it| it.contains("`other`")), "{ran:#?}");
    assert_eq!(applications(alice.cluster).len(), before, "no job was run");
}

fn a_queue_that_is_not_there(alice: &Workspace) {
    let ran = alice.run(&["doctor", "--queue", "reserch", "--json"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    let last = ran.stdout.lines().last().expect("a line");
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["result"]["culprit"], "queue", "{ran:#?}");
    let ran = alice.run(&["doctor", "--queue", "reserch"]);
    let what = "there is no queue `reserch` among the 2 of the cluster";
    blames(&ran, "queue", 2, what, "set `--queue` to one of `default`, `other`");
    is_skipped(&ran, "job", "queue");
    assert_eq!(state_of(&lines(&ran), "staging").0, "ok", "{ran:#?}");

    let ran = alice.run(&["doctor", "--label", "gpu"]);
    let what = "asks for nodes with label `gpu`, which the cluster does not have";
    blames(&ran, "label", 2, what, "leave `--label` out: the cluster has no labels");
    is_skipped(&ran, "job", "label");
}

fn staging_that_cannot_be_written(cluster: &Cluster, alice: &Workspace) {
    must(cluster.fs(&["-mkdir", "/shut"]));
    must(cluster.fs(&["-chmod", "700", "/shut"]));
    let ran = alice.run(&["doctor", "--staging", "/shut/alice"]);
    let what = "user `alice` has no ";
    blames(&ran, "staging", 123, what, "name another directory with `staging:`");
    is_skipped(&ran, "job", "staging");

    // A staging directory outside of HDFS fails only its own check.
    let ran = alice.run(&["doctor", "--staging", "file:///tmp/x"]);
    blames(&ran, "staging", 2, "file:///tmp/x", "hdfs://");
    for name in ["queue", "NameNode"] {
        assert_eq!(state_of(&lines(&ran), name).0, "ok", "{ran:#?}");
    }
}

/// A user without access to `/user` can name another staging directory. The check of the NameNode succeeds.
fn a_home_that_cannot_be_reached(cluster: &Cluster, alice: &Workspace) {
    must(cluster.fs(&["-mkdir", "/open"]));
    must(cluster.fs(&["-chmod", "777", "/open"]));
    must(cluster.fs(&["-chmod", "700", "/user"]));
    let ran = alice.run(&["doctor", "--no-job"]);
    let elsewhere = alice.run(&["doctor", "--no-job", "--staging", "/open/alice"]);
    must(cluster.fs(&["-chmod", "755", "/user"]));
    let what = "user `alice` has no ";
    blames(&ran, "staging", 123, what, "name another directory with `staging:`");
    assert_eq!(state_of(&lines(&ran), "NameNode").0, "ok", "{ran:#?}");
    assert_eq!(elsewhere.code, 0, "{elsewhere:#?}");
}

fn a_configuration_that_leads_nowhere(alice: &Workspace) {
    let mut command = alice.ydl();
    command.args(["doctor"]);
    let empty = alice.path().join("nowhere");
    std::fs::create_dir(&empty).expect("a directory");
    command.env("HADOOP_CONF_DIR", empty);
    let ran = CommandOutput::from(command.output().expect("ydl can be started"));
    blames(
        &ran,
        "configuration",
        2,
        "there is no Hadoop configuration in `",
        "set `HADOOP_CONF_DIR`",
    );
    for name in ["ticket", "ResourceManager", "queue", "NameNode", "staging", "job"] {
        is_skipped(&ran, name, "configuration");
    }
}

/// The ResourceManager runs, and the configuration has another address for its clients.
fn an_address_where_nobody_listens(cluster: &Cluster, alice: &Workspace) {
    let at = cluster.resource_managers()[0].client.to_string();
    let wrong = "127.0.0.1:1";
    let conf = alice.path().join("wrong");
    std::fs::create_dir(&conf).expect("a directory");
    for entry in std::fs::read_dir(cluster.configuration()).expect("the configuration") {
        let path = entry.expect("a file").path();
        let Some(name) = path.file_name().filter(|_| path.is_file()) else {
            continue;
        };
        let text = std::fs::read(&path).expect("a file");
        let text = String::from_utf8_lossy(&text).replace(&at, wrong);
        std::fs::write(conf.join(name), text).expect("a file");
    }
    let ran = |words: &[&str]| {
        let mut command = alice.ydl();
        command.args(words).env("HADOOP_CONF_DIR", &conf);
        CommandOutput::from(command.output().expect("ydl can be started"))
    };
    let what = format!("can be reached at `{wrong}`: connection refused");
    let hint = "is `yarn.resourcemanager.address` in `";
    blames(&ran(&["doctor"]), "ResourceManager", 122, &what, hint);
    let nodes = ran(&["nodes"]);
    assert_eq!(nodes.code, 122, "{nodes:#?}");
    assert!(nodes.stderr.contains(&what), "{nodes:#?}");
    assert!(nodes.stderr.contains(hint), "{nodes:#?}");
}

/// The NameNode answers; it believes for a while that its DataNode does, too.
fn a_datanode_that_is_down(cluster: &Cluster, alice: &Workspace) {
    must(cluster.kill("dn"));
    let ran = alice.run(&["doctor"]);
    must(cluster.start_daemon("dn"));
    must(cluster.wait_hdfs());
    let tells = "`hdfs dfsadmin -report` tells";
    blames(&ran, "staging", ran.code, "no DataNode ", tells);
    is_skipped(&ran, "job", "staging");
    assert_eq!(state_of(&lines(&ran), "NameNode").0, "ok", "{ran:#?}");
}

fn a_namenode_that_is_down(cluster: &Cluster, alice: &Workspace) {
    must(cluster.kill("nn"));
    let ran = alice.run(&["doctor"]);
    must(cluster.start_daemon("nn"));
    must(cluster.wait_hdfs());
    let at = format!("`{}`", cluster.namenodes()[0].rpc);
    blames(&ran, "NameNode", 122, &at, "see whether HDFS runs");
    is_skipped(&ran, "staging", "NameNode");
    is_skipped(&ran, "job", "NameNode");
    assert_eq!(state_of(&lines(&ran), "queue").0, "ok", "{ran:#?}");
}

fn a_resource_manager_that_is_down(cluster: &Cluster, alice: &Workspace) {
    must(cluster.kill("rm"));
    let ran = alice.run(&["doctor"]);
    must(cluster.start_daemon("rm"));
    must(cluster.wait_nodes(1));
    let at = format!("at `{}`", cluster.resource_managers()[0].client);
    blames(&ran, "ResourceManager", 122, &at, "check that it runs and that `");
    for name in ["nodes", "queue", "job"] {
        is_skipped(&ran, name, "ResourceManager");
    }
    assert_eq!(state_of(&lines(&ran), "staging").0, "ok", "{ran:#?}");
    // Everything is as it was.
    wait_for("a good cluster again", || {
        (alice.run(&["doctor", "--no-job"]).code == 0).then_some(())
    });
}
