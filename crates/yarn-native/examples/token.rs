//! Fetches delegation tokens of the ResourceManager and of HDFS into a credentials file.
//!
//!     HADOOP_CONF_DIR=/etc/hadoop cargo run --example token -- tokens
//!     … -- tokens hdfs://cluster hdfs://archive:8020
//!
//! Hadoop programs use them with `HADOOP_TOKEN_FILE_LOCATION=tokens`.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use yarn_native::client::Client;
use yarn_native::config::{Config, Environment};
use yarn_native::credentials::{Format, TokenIdentifier};
use yarn_native::namenode::fetch_tokens;
use yarn_native::security::Identity;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if let Err(error) = fetch().await {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

async fn fetch() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().filter(|argument| !argument.starts_with('-'));
    let path = path.ok_or("usage: token FILE [FILE_SYSTEM…]")?;
    let mut file_systems: Vec<String> = arguments.collect();

    let config = Config::load(Environment::of_process())?;
    if file_systems.is_empty() && !config.default_namenodes()?.is_empty() {
        file_systems.push(config.default_fs()?);
    }
    let identity = Identity::from_config(&config)?;
    let deadline = Instant::now() + Duration::from_secs(30);

    // The ResourceManager renews the tokens, so its principal is the renewer.
    let renewer = config.renewer()?.unwrap_or_default();
    let fetched = fetch_tokens(&config, &file_systems, &identity, &renewer, deadline);
    let mut credentials = fetched.await?;
    let client = Client::from_config(&config, identity)?;
    let token = client.delegation_token(&renewer, deadline).await?;
    credentials.add(token.service.clone(), token);

    credentials.write(Path::new(&path), Format::Writable)?;
    for (alias, token) in credentials.tokens() {
        println!("{} for {alias}: {}", token.kind, TokenIdentifier::decode(token)?);
    }
    Ok(())
}
