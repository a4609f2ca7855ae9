//! Lists the applications and nodes of the cluster configured by `HADOOP_CONF_DIR`.
//!
//!     HADOOP_CONF_DIR=/etc/hadoop cargo run --example applications -- RUNNING ACCEPTED
//!
//! With Kerberos it uses the ticket from `kinit`; otherwise `HADOOP_USER_NAME` or the current user.

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;
use yarn_native::client::{ApplicationFilter, Client};
use yarn_native::config::{Config, Environment};
use yarn_native::security::Identity;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if let Err(error) = list().await {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

async fn list() -> Result<(), Box<dyn Error>> {
    let states = std::env::args().skip(1).map(|state| state.parse());
    let filter = ApplicationFilter {
        states: states.collect::<Result<_, _>>()?,
        ..ApplicationFilter::default()
    };
    let config = Config::load(Environment::of_process())?;
    let client = Client::from_config(&config, Identity::from_config(&config)?)?;

    let deadline = Instant::now() + Duration::from_secs(20);
    let (applications, nodes, metrics) = tokio::try_join!(
        client.applications(&filter, deadline),
        client.nodes(&[], deadline),
        client.cluster_metrics(deadline),
    )?;
    println!("{} of {} nodes are active", metrics.active, metrics.nodes);
    for node in nodes {
        let id = node.id.to_string();
        println!("{id:40} {:10} {}", node.state, node.capability);
    }
    for application in applications {
        let (id, user, queue) = (application.id, application.user, application.queue);
        let (state, name) = (application.state, application.name);
        println!("{id} {state:9} {user:10} {queue:10} {name}");
    }
    Ok(())
}
