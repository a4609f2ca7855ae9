//! A minimal master as the baseline: it localises nothing, asks for containers on any node, sends a heartbeat every
//! 100 ms and starts the script directly. It is this program in another role; all nodes are on this machine.

use crate::bench_cluster::BenchCluster;
use std::{fs, path::Path, time::Duration};
use tokio::time::{Instant, sleep};
use yarn_native::{
    client::Submission,
    config::{Config, Environment},
    credentials::Credentials,
    ledger::{Key, Ledger, Want},
    node::{NmClient, NmClientOptions, Start},
    scheduler::{AllocateRequest, AmRmClient, Registration},
    types::{Container, LaunchContext, NodeId, Resource},
};

const HEARTBEAT: Duration = Duration::from_millis(100);
const KEY: Key = Key { priority: 0, allocation: 1 };
/// First argument of this program as master.
pub const SUBCOMMAND: &str = "baseline-master";

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

/// Submits an application with `tasks` tasks; returns its id.
pub fn submit(bench: &BenchCluster, tasks: usize, script: &str) -> String {
    let own = std::env::current_exe().expect("a program has a path");
    // In a file, because the shell of the NodeManager would expand the date and the process id.
    let file = bench.path("script");
    fs::write(&file, script).expect("a file");
    let command = format!(
        "exec {} {SUBCOMMAND} {tasks} {} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr",
        own.display(),
        file.display()
    );
    let mut launch = LaunchContext::command(command);
    let variables = [
        ("HADOOP_CONF_DIR", bench.cluster.configuration().display().to_string()),
        ("HADOOP_USER_NAME", bench.cluster.own_user()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    launch.environment.extend(variables);
    bench.block_on(async {
        let id = bench.client.new_application(deadline()).await.expect("an id").id;
        let submission = Submission {
            launch,
            resource: Resource::new(256, 1),
            attempts_max: Some(1),
            ..Submission::new(id, "baseline")
        };
        bench.client.submit(&submission, deadline()).await.expect("submitted");
        id.to_string()
    })
}

/// Runs the master: starts the tasks and replaces each that ends, until it is killed.
pub fn run_master(arguments: &[String]) {
    let [tasks, file] = arguments else {
        panic!("`{SUBCOMMAND}` needs two arguments");
    };
    let script = &fs::read_to_string(file).expect("a script");
    let tasks = tasks.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(run_loop(tasks, script));
}

async fn run_loop(tasks: u32, script: &str) {
    let config = Config::load(Environment::of_process()).expect("a configuration");
    let file = std::env::var("HADOOP_TOKEN_FILE_LOCATION").expect("credentials");
    let credentials = Credentials::read(Path::new(&file)).expect("credentials");
    let token = credentials.of_kind("YARN_AM_RM_TOKEN").expect("a token");
    let mut scheduler = AmRmClient::from_config(&config, token.clone()).expect("a scheduler");
    let registration = Registration::new("localhost");
    scheduler.register(&registration, deadline()).await.expect("registered");
    let nodes = NmClient::new(NmClientOptions::from_config(&config).expect("options"));
    let launch = LaunchContext::command(format!("{script} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"));
    let mut ledger = Ledger::new();
    let mut wanted = tasks;
    loop {
        let size = Resource::new(128, 1);
        let wants = [(KEY, Want::anywhere(wanted, size))];
        ledger.set_wants(wants.into(), ledger.reply_count());
        let began = Instant::now();
        let response = scheduler.exchange(&mut ledger, AllocateRequest::default, deadline());
        let (response, _) = response.await.expect("a response");
        nodes.add_tokens(response.node_tokens);
        let granted = u32::try_from(response.granted.len()).unwrap_or(u32::MAX);
        wanted = wanted.saturating_sub(granted);
        start(&nodes, &response.granted, &launch);
        let ended = u32::try_from(response.completed.len()).unwrap_or(u32::MAX);
        wanted += ended;
        if ended == 0 {
            sleep(HEARTBEAT.saturating_sub(began.elapsed())).await;
        }
    }
}

/// Starts containers with one call per node, in parallel.
fn start(nodes: &NmClient, granted: &[Container], launch: &LaunchContext) {
    let mut on: Vec<&NodeId> = granted.iter().map(|container| &container.node).collect();
    on.sort();
    on.dedup();
    for node in on {
        let here = granted.iter().filter(|container| container.node == *node);
        let here: Vec<Container> = here.cloned().collect();
        let (nodes, node, launch) = (nodes.clone(), node.clone(), launch.clone());
        tokio::spawn(async move {
            let starts: Vec<_> =
                here.iter().map(|container| Start { container, launch: &launch }).collect();
            nodes.start(&node, &starts, deadline()).await.expect("started");
        });
    }
}
