//! Client of Hadoop YARN without a JVM.
//!
//! It implements Hadoop RPC with its security: SIMPLE authentication, tokens, and Kerberos with any
//! quality of protection. It connects to Hadoop 2.10 to 3.5, with a single ResourceManager or with
//! high availability.
//!
//! ```no_run
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use yarn_native::client::{ApplicationFilter, Client};
//! use yarn_native::config::{Config, Environment};
//! use yarn_native::security::Identity;
//!
//! # async fn list() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load(Environment::of_process())?; // from HADOOP_CONF_DIR
//! let client = Client::from_config(&config, Identity::from_config(&config)?)?;
//! let deadline = Instant::now() + Duration::from_secs(20);
//! for application in client.applications(&ApplicationFilter::default(), deadline).await? {
//!     println!("{} {} {}", application.id, application.state, application.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`config`] reads Hadoop's configuration: addresses, security settings, timeouts.
//! * [`client`] submits, lists, watches, changes and kills applications, and queries nodes, queues
//!   and labels; its data types are in [`types`].
//! * [`scheduler`] is an ApplicationMaster's client of the ResourceManager, [`node`] of the
//!   NodeManagers; [`ledger`] turns an ApplicationMaster's desired containers into resource
//!   requests.
//! * [`namenode`] fetches HDFS delegation tokens for containers; [`credentials`] reads and writes
//!   token files.
//! * [`logs`] reads aggregated container logs.
//! * [`security`] defines identities and the authentication of servers; [`token`] is one kind of
//!   credential.
//! * [`rpc`] sends calls: concurrent calls over one connection, each with a deadline, with failover
//!   to the active server, retried only where that is safe.
//!
//! # From a submission to a running container
//!
//! An unmanaged ApplicationMaster can be any process, including this one. It registers with the
//! token that the ResourceManager issues for it, requests containers and starts those allocated:
//!
//! ```no_run
//! # use tokio::time::{Duration, Instant, sleep};
//! # use yarn_native::client::{Client, Submission};
//! # use yarn_native::config::Config;
//! # use yarn_native::node::{NmClientOptions, NmClient, Start};
//! # use yarn_native::scheduler::{Ask, Finish, Registration, AllocateRequest, AmRmClient};
//! # use yarn_native::types::{FinalStatus, LaunchContext, Resource};
//! # async fn run(config: Config, client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! # let soon = || Instant::now() + Duration::from_secs(30);
//! let mut submission = Submission::new(client.new_application(soon()).await?.id, "hello");
//! submission.unmanaged = true;
//! client.submit(&submission, soon()).await?;
//! let deadline = soon(); // with Kerberos, see `master_token`
//! let token = loop {
//!     match client.master_token(submission.id, deadline).await? {
//!         Some(token) => break token,
//!         None if Instant::now() > deadline => return Err("no token for the master".into()),
//!         None => sleep(Duration::from_millis(50)).await,
//!     }
//! };
//! let mut scheduler = AmRmClient::from_config(&config, token)?;
//! let nodes = NmClient::new(NmClientOptions::from_config(&config)?);
//! scheduler.register(&Registration::new("localhost"), soon()).await?;
//!
//! let launch = LaunchContext::command("echo hello 1><LOG_DIR>/stdout");
//! let mut asks = vec![Ask::anywhere(1, Resource::new(128, 1), 1)];
//! let exit = loop {
//!     let asks = std::mem::take(&mut asks); // sent once; the ledger tracks more complex requests
//!     let answer = scheduler.allocate(|| AllocateRequest { asks, ..AllocateRequest::default() }, soon()).await?;
//!     nodes.add_tokens(answer.node_tokens);
//!     for container in answer.granted {
//!         let node = container.node.clone();
//!         nodes.start(&node, &[Start { container: &container, launch: &launch }], soon()).await?;
//!     }
//!     if let Some(ended) = answer.completed.first() {
//!         break ended.exit;
//!     }
//!     sleep(Duration::from_millis(100)).await;
//! };
//! println!("{exit}");
//! scheduler.finish(&Finish::new(FinalStatus::Succeeded), soon()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Error handling
//!
//! Each module has an error type with variants for the possible reactions:
//! [`RpcError`](rpc::RpcError) tells whether a call may have been executed,
//! [`SchedulerError`](scheduler::SchedulerError) whether to register again, to change the request
//! or to stop, [`NodeError`](node::NodeError) and [`ContainerError`](node::ContainerError) whether
//! a container can still be started, [`ConfigError`](config::ConfigError) which line of which file
//! to correct.
//!
//! The examples are complete programs: `applications` lists applications, `run` starts a command in
//! containers, `token` fetches delegation tokens into a file.
//!
//! Input from servers, files and users never causes a panic, every wait has a deadline, and `Debug`
//! output shows no secrets.
#![warn(missing_docs)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod fuzzing;
#[cfg(test)]
mod noise;

mod address;
mod proto;

pub mod client;
pub mod config;
pub mod credentials;
pub mod ledger;
pub mod logs;
pub mod namenode;
pub mod node;
pub mod rpc;
pub mod scheduler;
pub mod security;
pub mod token;
pub mod types;

pub use token::{Secret, Token};
