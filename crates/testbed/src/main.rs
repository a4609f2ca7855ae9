//! `testbed`: a real Hadoop in the foreground.

mod words;

use std::{process::ExitCode, time::Instant};
use testbed::{Cluster, Failure, Options, Version};
use words::Verb;

fn main() -> ExitCode {
    let words = std::env::args().skip(1).collect();
    let done = words::read(words).and_then(|verb| match verb {
        Verb::Up(options) => up(*options),
        Verb::Fetch(versions) => fetch(&versions),
        Verb::Help => {
            print!("{}", words::HELP);
            Ok(())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    eprintln!("testbed: {line}");
}

fn fetch(versions: &[Version]) -> Result<(), Failure> {
    for version in versions {
        let began = Instant::now();
        testbed::fetch(*version, &mut |line| say(&format!("{version}: {line}")))?;
        say(&format!("{version}: ready, {:.1} s", began.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Until Ctrl-C, a request to end, or the end of the terminal. Before the cluster is up these end the
/// process as usual, and the watcher does the rest.
fn up(options: Options) -> Result<(), Failure> {
    let began = Instant::now();
    let version = options.version;
    say(&format!("starting Hadoop {version}"));
    let cluster = Cluster::start_telling(options, &mut say)?;
    say(&format!("up after {:.1} s", began.elapsed().as_secs_f64()));
    wait_for_the_end(|| describe(&cluster));
    say("stopping");
    Ok(())
}

fn describe(cluster: &Cluster) {
    println!("export HADOOP_CONF_DIR={}", cluster.configuration().display());
    if let Some(kerberos) = cluster.kerberos() {
        println!("export KRB5_CONFIG={}", kerberos.configuration().display());
        let kinit = kerberos.client("kinit");
        for (name, value) in kinit.get_envs().filter(|(name, _)| *name != "KRB5_CONFIG") {
            print!("{}={} ", name.display(), value.unwrap_or_default().display());
        }
        let user = &cluster.options().users[0];
        let (program, keytab) = (kinit.get_program().display(), kerberos.keytab(user));
        println!("{program} -k -t {} {user}@{}", keytab.display(), kerberos.realm());
    }
    println!();
    for rm in cluster.resource_managers() {
        println!("{:<5} http://{}/cluster", rm.daemon, rm.web);
    }
    for namenode in cluster.namenodes() {
        println!("{:<5} http://{}/", namenode.daemon, namenode.web);
    }
    for node in cluster.nodes() {
        println!("{:<5} http://{}/node", node.daemon, node.web);
    }
    let daemons: Vec<_> = cluster.daemons().collect();
    println!("\ndaemons {}", daemons.join(" "));
    println!("logs {}", cluster.directory().join("logs").display());
    println!("\nCtrl-C ends it");
}

/// `listening` is called once a signal is heard: whoever reads that Ctrl-C ends it may press it at once.
fn wait_for_the_end(listening: impl FnOnce()) {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return;
    };
    runtime.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut first), Ok(mut second), Ok(mut third)] = kinds.map(signal) else {
            return;
        };
        listening();
        tokio::select! {
            _ = first.recv() => {}
            _ = second.recv() => {}
            _ = third.recv() => {}
        }
    });
}
