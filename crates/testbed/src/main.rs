//! `testbed`: runs a real Hadoop cluster in the foreground.

mod cli;

use cli::Subcommand;
use std::{process::ExitCode, time::Instant};
use testbed::{Cluster, Error, Options, Version};

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect();
    let done = cli::parse(arguments).and_then(|subcommand| match subcommand {
        Subcommand::Up(options) => up(*options),
        Subcommand::Fetch(versions) => fetch(&versions),
        Subcommand::Help => {
            print!("{}", cli::HELP);
            Ok(())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn log(line: &str) {
    eprintln!("testbed: {line}");
}

fn fetch(versions: &[Version]) -> Result<(), Error> {
    for version in versions {
        let began = Instant::now();
        testbed::fetch(*version, &mut |line| log(&format!("{version}: {line}")))?;
        log(&format!("{version}: ready, {:.1} s", began.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Runs a cluster until SIGINT, SIGTERM or SIGHUP. Before the cluster is up, these signals terminate
/// the process by default, and the watcher cleans up.
fn up(options: Options) -> Result<(), Error> {
    let began = Instant::now();
    let version = options.version;
    log(&format!("starting Hadoop {version}"));
    let cluster = Cluster::start_with_progress(options, &mut log)?;
    log(&format!("up after {:.1} s", began.elapsed().as_secs_f64()));
    wait_for_signal(|| describe(&cluster));
    log("stopping");
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
    println!("\nPress Ctrl-C to stop");
}

/// Waits for a signal. Calls `ready` once the handlers are installed: the caller announces Ctrl-C then.
fn wait_for_signal(ready: impl FnOnce()) {
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
        ready();
        tokio::select! {
            _ = first.recv() => {}
            _ = second.recv() => {}
            _ = third.recv() => {}
        }
    });
}
