//! Runs a command in N containers with this process as the ApplicationMaster. The output is in the
//! container logs.
//!
//!     HADOOP_CONF_DIR=/etc/hadoop cargo run --example run -- 3 'hostname; exit 3'

use std::{collections::BTreeSet, error::Error, time::Duration};

use tokio::time::{Instant, sleep};
use yarn_native::client::{Client, Submission};
use yarn_native::config::{Config, Environment};
use yarn_native::ledger::{Key, Ledger, Want};
use yarn_native::node::{NmClient, NmClientOptions, Start};
use yarn_native::scheduler::{AllocateRequest, AmRmClient, Finish, Registration, SchedulerError};
use yarn_native::types::{ApplicationId, FinalStatus, LaunchContext, Resource};
use yarn_native::{security::Identity, token::Token};

type Outcome<T> = Result<T, Box<dyn Error>>;
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments = std::env::args().skip(1).collect();
    if let Err(error) = submit(arguments).await {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

async fn submit(arguments: Vec<String>) -> Outcome<()> {
    let usage = |_| "usage: run COUNT COMMAND";
    let [count, command]: [String; 2] = arguments.try_into().map_err(usage)?;
    let count = count.parse().map_err(|_| format!("`{count}` is not a valid COUNT"))?;
    let config = Config::load(Environment::of_process())?;
    let client = Client::from_config(&config, Identity::from_config(&config)?)?;
    let id = client.new_application(soon()).await?.id;
    let mut submission = Submission::new(id, "run");
    submission.unmanaged = true;
    client.submit(&submission, soon()).await?;
    println!("{id}");
    let failed = tokio::select! {
        failed = async { run(&config, token(&client, id).await?, count, &command).await } => failed,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    if let Err(error) = &failed {
        // Without this, the application would remain until the ResourceManager misses heartbeats.
        client.kill_and_wait(id, &error.to_string(), soon()).await?;
    }
    match failed? {
        0 => Ok(()),
        failed => Err(format!("{failed} of {count} containers failed").into()),
    }
}

/// Runs as the ApplicationMaster: requests containers, starts those allocated and waits for their
/// exit. Returns the number of failed containers.
async fn run(config: &Config, token: Token, count: u32, command: &str) -> Outcome<u32> {
    let mut scheduler = AmRmClient::from_config(config, token)?;
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await?;
    let nodes = NmClient::new(NmClientOptions::from_config(config)?);
    let script = format!("{{ {command}; }} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr");
    let launch = &LaunchContext::command(script);
    #[rustfmt::skip]
    let key = Key { priority: 0, allocation: 1 };
    let wants = [(key, Want::anywhere(count, Resource::new(128, 1)))];
    let mut ledger = Ledger::new();
    ledger.set_wants(wants.into(), ledger.reply_count());
    let (mut running, mut failed) = (BTreeSet::new(), 0);
    while ledger.outstanding() > 0 || !running.is_empty() {
        let request = AllocateRequest::default;
        let exchange = scheduler.exchange(&mut ledger, request, soon()).await;
        if let Err(SchedulerError::NotRegistered) = exchange {
            // The ResourceManager was restarted; the containers keep running.
            scheduler.register(&registration, soon()).await?;
            continue;
        }
        let (answer, _) = exchange?;
        nodes.add_tokens(answer.node_tokens);
        for container in &answer.granted {
            let starts = [Start { container, launch }];
            let outcome = nodes.start(&container.node, &starts, soon()).await?;
            if let Some((id, error)) = outcome.failed.first() {
                return Err(format!("{id} is not started: {error}").into());
            }
            running.extend(outcome.started);
        }
        // Surplus containers that were released are reported, too.
        let ended = answer.completed.into_iter();
        for status in ended.filter(|status| running.remove(&status.id)) {
            println!("{} {}", status.id, status.exit);
            failed += u32::from(!status.exit.is_success());
        }
        let interval = if ledger.outstanding() > 0 { 50 } else { 500 };
        sleep(Duration::from_millis(interval)).await;
    }
    let status = match failed {
        0 => FinalStatus::Succeeded,
        _ => FinalStatus::Failed,
    };
    scheduler.finish(&Finish::new(status), soon()).await?;
    Ok(failed)
}

async fn token(client: &Client, id: ApplicationId) -> Outcome<Token> {
    let deadline = soon();
    loop {
        if let Some(token) = client.master_token(id, deadline).await? {
            return Ok(token);
        }
        let report = client.application(id, deadline).await?;
        if report.state.is_over() || Instant::now() > deadline {
            let hint = "with Kerberos set HADOOP_PROXY_USER";
            return Err(format!("no token ({hint}): {}", report.diagnostics).into());
        }
        sleep(Duration::from_millis(50)).await;
    }
}
