//! No daemon, container or file outlives its cluster, however the cluster ends.

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

const TIMEOUT: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { hdfs: Hdfs::None, ..Options::new(Version::V3_5_0) }
}

/// Returns the processes of the cluster with that directory, found by the id in their environment.
fn processes(directory: &Path) -> Vec<u32> {
    let id = directory.to_str().unwrap().rsplit('-').next().unwrap();
    let variable = format!("TESTBED_CLUSTER={id}");
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let in_cluster = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    numbers.filter(in_cluster).collect()
}

fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = String::new();
    stream.take(1 << 20).read_to_string(&mut response).unwrap();
    response
}

/// Runs an application whose only container sleeps in a session of its own; returns once it sleeps.
/// The unique sleep time identifies the process.
fn run_container(web: SocketAddr, seconds: u32) {
    let response = post(web, "/ws/v1/cluster/apps/new-application", "");
    let id = field(&response, "application-id").unwrap_or_else(|| panic!("{response}"));
    let body = format!(
        r#"{{"application-id":"{id}","application-name":"sleeper","queue":"default",
            "am-container-spec":{{"commands":{{"command":"setsid -w sleep {seconds}"}}}},
            "resource":{{"memory":64,"vCores":1}},"max-app-attempts":1,
            "application-type":"TEST"}}"#
    );
    let response = post(web, "/ws/v1/cluster/apps", &body);
    assert!(response.contains(" 202 "), "{response}");
    wait_for("the container", TIMEOUT, || sleeps(seconds).then_some(())).unwrap();
}

fn sleeps(seconds: u32) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut commands = all.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let expected = format!("sleep\0{seconds}\0");
    commands.any(|command| command == expected.as_bytes())
}

/// Returns a sleep time that is unique to this run and this test.
fn unique_seconds(test: u32) -> u32 {
    100_000 + std::process::id() % 1_000_000 * 10 + test
}

fn assert_cleaned_up(directory: &Path) {
    wait_for("all processes to exit", TIMEOUT, || processes(directory).is_empty().then_some(()))
        .unwrap();
    wait_for("the directory to be removed", TIMEOUT, || (!directory.exists()).then_some(()))
        .unwrap();
}

#[test]
fn drop_cleans_up_containers_of_a_killed_node_manager() {
    let cluster = Cluster::start(options()).unwrap_or_else(|error| panic!("{error}"));
    let directory = cluster.directory().to_path_buf();
    let seconds = unique_seconds(1);
    run_container(cluster.resource_managers()[0].web, seconds);
    assert!(processes(&directory).len() > 3, "two daemons and a container's processes");
    cluster.kill("nm1").unwrap();
    assert!(sleeps(seconds), "a container outlives its NodeManager");
    cluster.pause("rm").unwrap();
    drop(cluster);
    // No wait: the drop is synchronous.
    assert_eq!(processes(&directory), []);
    assert!(!sleeps(seconds));
    assert!(!directory.exists());
}

#[test]
fn a_panic_cleans_up() {
    let directory = std::thread::spawn(|| {
        let cluster = Cluster::start(Options { nodes: 0, ..options() }).unwrap();
        std::panic::panic_any(cluster.directory().to_path_buf());
    });
    let directory = *directory.join().unwrap_err().downcast::<PathBuf>().unwrap();
    assert_eq!(processes(&directory), []);
    assert!(!directory.exists());
}

/// Starts `testbed up` in a process group and waits until it is up; returns the process, its directory and web address.
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
        found.unwrap_or_else(|| panic!("`testbed up` did not print `{name}`"))
    };
    let configuration = PathBuf::from(value("export HADOOP_CONF_DIR="));
    let web = value("rm").replace("http://", "").replace("/cluster", "");
    value("Press Ctrl-C to stop");
    let directory = configuration.parent().unwrap().to_path_buf();
    (child, directory, web.parse().unwrap())
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_killed_process_cleans_up() {
    let (mut child, directory, web) = up();
    let seconds = unique_seconds(2);
    run_container(web, seconds);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    assert_cleaned_up(&directory);
    assert!(!sleeps(seconds));
}

#[test]
fn an_interrupted_process_cleans_up() {
    let (mut child, directory, _) = up();
    assert!(!processes(&directory).is_empty());
    signal(&child, Signal::INT);
    assert!(child.wait().unwrap().success());
    // The process has waited for the cleanup.
    assert_eq!(processes(&directory), []);
    assert!(!directory.exists());
}
