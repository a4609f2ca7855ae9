//! Lists the applications, nodes and metrics of a cluster.
//!
//!     cargo run --example applications -- rm1:8032,rm2:8032
//!     cargo run --example applications -- rm1:8032 --principal yarn/_HOST@EXAMPLE.COM
//!     … --keytab alice.keytab --as alice@EXAMPLE.COM

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;
use yarn_native::client::{ApplicationFilter, Client};
use yarn_native::rpc::{Address, Options};
use yarn_native::security::{Identity, ServerPrincipal, Tickets};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let list = words
        .first()
        .ok_or("usage: applications HOST:PORT[,HOST:PORT] [--principal P]")?;
    let addresses = list
        .split(',')
        .map(str::parse)
        .collect::<Result<Vec<Address>, _>>()?;

    let mut options = Options {
        patience: Duration::from_secs(10),
        ..Options::default()
    };
    let identity = match flag("--principal") {
        Some(principal) => {
            options.security.server = Some(ServerPrincipal::Named(principal));
            Identity::kerberos(match (flag("--keytab"), flag("--as")) {
                (Some(keytab), Some(principal)) => Tickets::Keytab {
                    path: PathBuf::from(keytab),
                    principal,
                },
                _ => Tickets::Default,
            })
        }
        None => Identity::simple(std::env::var("USER").unwrap_or_else(|_| "nobody".into())),
    };
    if let Some(words) = flag("--protection") {
        options.security.protection = words.split(',').map(str::parse).collect::<Result<_, _>>()?;
    }

    let client = Client::new(addresses, identity, options)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    let everything = ApplicationFilter::default();
    let (applications, nodes, metrics) = tokio::try_join!(
        client.applications(&everything, deadline),
        client.nodes(&[], deadline),
        client.cluster_metrics(deadline),
    )?;
    println!("{} of {} nodes are active", metrics.active, metrics.nodes);
    for node in nodes {
        println!(
            "{:40} {:10} {}",
            node.id.to_string(),
            node.state,
            node.capability
        );
    }
    for application in applications {
        let (id, user, queue) = (application.id, application.user, application.queue);
        println!(
            "{id} {:9} {user:10} {queue:10} {}",
            application.state, application.name
        );
    }
    Ok(())
}
