//! Whole programs: response time and memory.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testbed::Cluster;
use tokio::time::sleep;

use crate::figures::{line, status_mib};

const LISTINGS: usize = 10;
const CONTAINERS: &str = "8";

/// Returns the command of an example, built in the profile of this program.
fn example(cluster: &Cluster, name: &str) -> Command {
    let own = std::env::current_exe().expect("a program has a path");
    let path: PathBuf = own.with_file_name("..").join("examples").join(name);
    assert!(path.exists(), "{} is not built: bench/run does it", path.display());
    let mut command = Command::new(path);
    command
        .env_clear()
        .env("HADOOP_CONF_DIR", cluster.configuration())
        .env("HADOOP_USER_NAME", cluster.own_user());
    command
}

/// Measures a program from start to end in milliseconds; it must have listed the application.
fn listed(command: &mut Command) -> f64 {
    let began = Instant::now();
    let out = command.stderr(Stdio::null()).output().expect("a program");
    let took = began.elapsed().as_secs_f64() * 1e3;
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("application_"), "{text}");
    took
}

/// Measures listing applications from process start, the example and Hadoop's alternately.
pub fn listing(cluster: &Cluster) {
    let java = || {
        let class = "org.apache.hadoop.yarn.client.cli.ApplicationCLI";
        let mut command = cluster.hadoop(class).expect("a command");
        command.args(["application", "-list"]);
        command
    };
    // One run each to fill the disk cache.
    listed(&mut example(cluster, "applications"));
    listed(&mut java());
    let (mut example_ms, mut java_ms) = (Vec::new(), Vec::new());
    for _ in 0..LISTINGS {
        java_ms.push(listed(&mut java()));
        for _ in 0..3 {
            example_ms.push(listed(&mut example(cluster, "applications")));
        }
    }
    let java_ms = line("applications listed by Hadoop's ApplicationCLI", "ms", java_ms);
    let example_ms = line("applications listed by the example `applications`", "ms", example_ms);
    println!("{:<58} {:>9.0} times faster", "", java_ms / example_ms);
}

/// Measures the memory of the example `run` while its containers run.
pub async fn memory_of_run(cluster: &Cluster) {
    let mut run = example(cluster, "run")
        .args([CONTAINERS, "sleep 4"])
        .stdout(Stdio::null())
        .spawn()
        .expect("a program");
    let mut resident = Vec::new();
    let (mut peak, mut private) = (0.0, 0.0);
    let status = loop {
        if let Some(status) = run.try_wait().expect("a child process") {
            break status;
        }
        let now = status_mib(run.id(), "VmRSS");
        // It is zero before the program is loaded and after its end.
        if now > 1.0 {
            resident.push(now);
            peak = status_mib(run.id(), "VmHWM");
            private = status_mib(run.id(), "RssAnon");
        }
        sleep(Duration::from_millis(100)).await;
    };
    assert!(status.success(), "{status}");
    line("resident memory of the example `run`, 8 containers", "MiB", resident);
    println!("{:<58} {peak:>9.1} MiB peak, {private:.1} of it private", "");
}
