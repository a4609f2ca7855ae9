//! What any launcher on YARN can reach: a master that localises nothing, asks for just anywhere, beats every 100 ms
//! and starts the script itself. It is this very program in another role, found at its own path: all nodes are here.

use crate::scene::Scene;
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

const BEAT: Duration = Duration::from_millis(100);
const KEY: Key = Key { priority: 0, allocation: 1 };
/// The word by which this program knows that it is the master.
pub const VERB: &str = "floor-master";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

/// Submits an application with so many tasks; its id.
pub fn submit(scene: &Scene, tasks: usize, script: &str) -> String {
    let own = std::env::current_exe().expect("a program has a path");
    // In a file, because a node's shell would fill in its own time and process.
    let file = scene.path("script");
    fs::write(&file, script).expect("a file");
    let command = format!(
        "exec {} {VERB} {tasks} {} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr",
        own.display(),
        file.display()
    );
    let mut launch = LaunchContext::command(command);
    let variables = [
        ("HADOOP_CONF_DIR", scene.cluster.configuration().display().to_string()),
        ("HADOOP_USER_NAME", scene.cluster.own_user()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    launch.environment.extend(variables);
    scene.block_on(async {
        let id = scene.client.new_application(soon()).await.expect("an id").id;
        let submission = Submission {
            launch,
            resource: Resource::new(256, 1),
            attempts_max: Some(1),
            ..Submission::new(id, "floor")
        };
        scene.client.submit(&submission, soon()).await.expect("submitted");
        id.to_string()
    })
}

/// The master: starts so many, and another one whenever one ends, until it is ended.
pub fn lead(words: &[String]) {
    let [tasks, file] = words else {
        panic!("`{VERB}` needs two words");
    };
    let script = &fs::read_to_string(file).expect("a script");
    let tasks = tasks.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(beat(tasks, script));
}

async fn beat(tasks: u32, script: &str) {
    let config = Config::load(Environment::of_process()).expect("a configuration");
    let file = std::env::var("HADOOP_TOKEN_FILE_LOCATION").expect("credentials");
    let credentials = Credentials::read(Path::new(&file)).expect("credentials");
    let token = credentials.of_kind("YARN_AM_RM_TOKEN").expect("a token");
    let mut scheduler = AmRmClient::from_config(&config, token.clone()).expect("a scheduler");
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await.expect("registered");
    let nodes = NmClient::new(NmClientOptions::from_config(&config).expect("options"));
    let launch = LaunchContext::command(format!("{script} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"));
    let mut ledger = Ledger::new();
    let mut wanted = tasks;
    loop {
        let size = Resource::new(128, 1);
        let wants = [(KEY, Want::anywhere(wanted, size))];
        ledger.set_wants(wants.into(), ledger.reply_count());
        let began = Instant::now();
        let answer = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        let (answer, _) = answer.await.expect("an answer");
        nodes.add_tokens(answer.node_tokens);
        let granted = u32::try_from(answer.granted.len()).unwrap_or(u32::MAX);
        wanted = wanted.saturating_sub(granted);
        start(&nodes, &answer.granted, &launch);
        let ended = u32::try_from(answer.completed.len()).unwrap_or(u32::MAX);
        wanted += ended;
        if ended == 0 {
            sleep(BEAT.saturating_sub(began.elapsed())).await;
        }
    }
}

/// One call per node, side by side.
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
            nodes.start(&node, &starts, soon()).await.expect("started");
        });
    }
}
