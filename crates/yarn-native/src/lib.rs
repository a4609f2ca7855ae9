//! A client of Hadoop YARN that needs no JVM.
//!
//! It speaks Hadoop's own RPC, with its security: plain user names on clusters that ask for no more,
//! tokens, and Kerberos with any quality of protection. What it connects to are real daemons of
//! Hadoop 2.10 to 3.5, one or several of which one is active.
//!
//! ```no_run
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use yarn_native::client::{ApplicationFilter, Client};
//! use yarn_native::config::{Config, Environment};
//! use yarn_native::security::Identity;
//!
//! # async fn list() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load(Environment::of_process())?; // what HADOOP_CONF_DIR says
//! let client = Client::from_config(&config, Identity::from_config(&config)?)?;
//! let deadline = Instant::now() + Duration::from_secs(20);
//! for application in client.applications(&ApplicationFilter::default(), deadline).await? {
//!     println!("{} {} {}", application.id, application.state, application.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`config`] reads Hadoop's files: where servers are, whom to trust, how patient to be.
//! * [`client`] submits, lists, watches, changes and ends applications, and asks about nodes, queues
//!   and labels, in the words of [`types`].
//! * [`scheduler`] is a master's line to the ResourceManager, [`node`] to the NodeManagers; [`ledger`]
//!   turns what a master wants into what it has to say.
//! * [`namenode`] gets the tokens with which containers use HDFS; [`credentials`] are files of tokens.
//! * [`logs`] reads what containers wrote, once it has been collected.
//! * [`security`] says who calls and what a server must prove; [`token`] is one of the proofs.
//! * [`rpc`] carries the calls: many at once over one connection, each with its deadline, moved to
//!   the server that is active, repeated only where that is safe.
//!
//! # From a submission to a running container
//!
//! A master need not run on the cluster: an unmanaged one is any process, this one too. It registers with the
//! token that the ResourceManager has for it, asks, and starts what it is granted:
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
//! let deadline = soon(); // with Kerberos, see `master_token`: not everybody gets one
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
//!     let asks = std::mem::take(&mut asks); // said once; the ledger does it for masters that want more
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
//! # What to do about an error
//!
//! Each part has an error of its own, cut by what a caller can do: [`RpcError`](rpc::RpcError) says whether a call may
//! have been carried out, [`SchedulerError`](scheduler::SchedulerError) whether to register again, to ask for something
//! else or to end, [`NodeError`](node::NodeError) and [`ContainerError`](node::ContainerError) whether a container can still be
//! started, [`ConfigError`](config::ConfigError) which line of which file to mend.
//!
//! The examples are whole programs: `applications` lists, `run` starts a command in containers, `token`
//! fetches delegation tokens into a file.
//!
//! Nothing here panics on what a server, a file or a user says, nothing waits without a deadline,
//! and no secret is shown by `Debug`.
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
