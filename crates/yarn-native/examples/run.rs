//! Runs a command in N containers, through a master that is this very process.
//!
//!     HADOOP_CONF_DIR=/etc/hadoop cargo run --example run -- 3 'hostname; exit 3'

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use yarn_native::client::{Client, Submission};
use yarn_native::config::{Config, Environment};
use yarn_native::ledger::{Key, Ledger, Want};
use yarn_native::node::{NodeOptions, Nodes, Start};
use yarn_native::scheduler::{Finish, Registration, Request, Scheduler};
use yarn_native::security::Identity;
use yarn_native::token::Token;
use yarn_native::types::{ApplicationId, Container, FinalStatus, LaunchContext, NodeId, Resource};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [count, command] = words.as_slice() else {
        return Err("usage: run COUNT COMMAND".into());
    };
    let config = Config::load(Environment::of_process())?;
    let client = Client::from_config(&config, Identity::from_config(&config)?)?;

    let mut submission = Submission::new(client.new_application(soon()).await?.id, "run");
    submission.unmanaged = true;
    client.submit(&submission, soon()).await?;
    let token = token(&client, submission.id).await?;
    println!("{}", submission.id);

    let mut scheduler = Scheduler::from_config(&config, token)?;
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await?;
    let script = format!("{{ {command}; }} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr");
    let launch = LaunchContext::command(script);
    let nodes = Nodes::new(NodeOptions::from_config(&config)?);
    let failed = run(&mut scheduler, &nodes, count.parse()?, &launch).await?;
    let finish = Finish::new(match failed {
        0 => FinalStatus::Succeeded,
        _ => FinalStatus::Failed,
    });
    scheduler.finish(&finish, soon()).await?;
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {count} containers failed").into()),
    }
}

/// Asks for containers, starts what is granted, and waits for their ends; how many failed.
async fn run(
    scheduler: &mut Scheduler,
    nodes: &Nodes,
    count: u32,
    launch: &LaunchContext,
) -> Result<u32, Box<dyn Error>> {
    let key = Key {
        priority: 0,
        allocation: 1,
    };
    let mut ledger = Ledger::new();
    let want = Want::anywhere(count, Resource::new(128, 1));
    ledger.set_wants(BTreeMap::from([(key, want)]), ledger.beat());
    let mut running = BTreeSet::new();
    let mut failed = 0;
    while ledger.outstanding() > 0 || !running.is_empty() {
        let beat = scheduler.exchange(&mut ledger, Request::default, soon());
        let (answer, _) = beat.await?;
        nodes.learn(answer.node_tokens);
        let mut by_node: BTreeMap<NodeId, Vec<Container>> = BTreeMap::new();
        for container in answer.granted {
            let on_node = by_node.entry(container.node.clone()).or_default();
            on_node.push(container);
        }
        for (node, containers) in by_node {
            let start = |container| Start { container, launch };
            let starts: Vec<Start> = containers.iter().map(start).collect();
            let outcome = nodes.start(&node, &starts, soon()).await?;
            if let Some((id, refusal)) = outcome.refused.first() {
                return Err(format!("{node} does not start {id}: {refusal}").into());
            }
            running.extend(outcome.started);
        }
        // What was granted beyond the want and given back ends, too.
        for status in answer.completed {
            if !running.remove(&status.id) {
                continue;
            }
            println!("{} {}", status.id, status.exit);
            failed += u32::from(!status.exit.is_success());
        }
        // Often while containers are awaited, less so when all run.
        let pause = if ledger.outstanding() > 0 { 50 } else { 500 };
        sleep(Duration::from_millis(pause)).await;
    }
    Ok(failed)
}

async fn token(client: &Client, id: ApplicationId) -> Result<Token, Box<dyn Error>> {
    let deadline = soon();
    loop {
        if let Some(token) = client.master_token(id, deadline).await? {
            return Ok(token);
        }
        let report = client.application(id, deadline).await?;
        if report.state.is_over() || Instant::now() > deadline {
            return Err(format!("{id} is {}: {}", report.state, report.diagnostics).into());
        }
        sleep(Duration::from_millis(50)).await;
    }
}
