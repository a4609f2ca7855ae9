//! Nothing of a cluster outlives it: no daemon, no container, no file; however it ends.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use testbed::{Cluster, Hdfs, Options, Version, field, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { hdfs: Hdfs::None, ..Options::new(Version::V3_5_0) }
}

/// The processes of the cluster with that directory, found by the mark in their environment.
fn processes(directory: &Path) -> Vec<u32> {
    let id = directory.to_str().unwrap().rsplit('-').next().unwrap();
    let mark = format!("TESTBED_CLUSTER={id}");
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    numbers.filter(marked).collect()
}

fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer).unwrap();
    answer
}

/// An application whose only container sleeps for an hour in a session of its own; returns when it
/// does. The sleep's length tells it from all other processes.
fn run_container(web: SocketAddr, seconds: u32) {
    let answer = post(web, "/ws/v1/cluster/apps/new-application", "");
    let id = field(&answer, "application-id").unwrap_or_else(|| panic!("{answer}"));
    let body = format!(
        r#"{{"application-id":"{id}","application-name":"sleeper","queue":"default",
            "am-container-spec":{{"commands":{{"command":"setsid -w sleep {seconds}"}}}},
            "resource":{{"memory":64,"vCores":1}},"max-app-attempts":1,
            "application-type":"TEST"}}"#
    );
    let answer = post(web, "/ws/v1/cluster/apps", &body);
    assert!(answer.contains(" 202 "), "{answer}");
    wait_for("the container", PATIENCE, || sleeps(seconds).then_some(())).unwrap();
}

fn sleeps(seconds: u32) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut commands = all.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let wanted = format!("sleep\0{seconds}\0");
    commands.any(|command| command == wanted.as_bytes())
}

/// A length of sleep that only this run and this test use.
fn own_length(test: u32) -> u32 {
    100_000 + std::process::id() % 1_000_000 * 10 + test
}

fn nothing_is_left(directory: &Path) {
    wait_for("the end of all processes", PATIENCE, || {
        processes(directory).is_empty().then_some(())
    })
    .unwrap();
    wait_for("the end of all files", PATIENCE, || (!directory.exists()).then_some(())).unwrap();
}

#[test]
fn a_dropped_cluster_leaves_nothing_though_its_node_died_before_its_container() {
    let cluster = Cluster::start(options()).unwrap_or_else(|failure| panic!("{failure}"));
    let directory = cluster.directory().to_path_buf();
    let length = own_length(1);
    run_container(cluster.resource_managers()[0].web, length);
    assert!(processes(&directory).len() > 3, "two daemons and a container's processes");
    cluster.kill("nm1").unwrap();
    assert!(sleeps(length), "a container outlives its NodeManager");
    cluster.pause("rm").unwrap();
    drop(cluster);
    // No waiting: all is done when the drop is.
    assert_eq!(processes(&directory), []);
    assert!(!sleeps(length));
    assert!(!directory.exists());
}

#[test]
fn a_panic_leaves_nothing() {
    let directory = std::thread::spawn(|| {
        let cluster = Cluster::start(Options { nodes: 0, ..options() }).unwrap();
        std::panic::panic_any(cluster.directory().to_path_buf());
    });
    let directory = *directory.join().unwrap_err().downcast::<PathBuf>().unwrap();
    assert_eq!(processes(&directory), []);
    assert!(!directory.exists());
}

/// `testbed up` in a process of its own; returns when it is up, with its directory and web address.
fn up() -> (Child, PathBuf, SocketAddr) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["up", "--nodes", "1", "--hdfs", "none"])
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut value = |name: &str| {
        let found = lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        found.unwrap_or_else(|| panic!("`testbed up` did not say `{name}`"))
    };
    let configuration = PathBuf::from(value("export HADOOP_CONF_DIR="));
    let web = value("rm").replace("http://", "").replace("/cluster", "");
    value("Ctrl-C ends it");
    let directory = configuration.parent().unwrap().to_path_buf();
    (child, directory, web.parse().unwrap())
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_killed_process_leaves_nothing() {
    let (mut child, directory, web) = up();
    let length = own_length(2);
    run_container(web, length);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    nothing_is_left(&directory);
    assert!(!sleeps(length));
}

#[test]
fn an_interrupted_process_leaves_nothing() {
    let (mut child, directory, _) = up();
    assert!(!processes(&directory).is_empty());
    signal(&child, Signal::INT);
    assert!(child.wait().unwrap().success());
    // It waits for the end itself.
    assert_eq!(processes(&directory), []);
    assert!(!directory.exists());
}
