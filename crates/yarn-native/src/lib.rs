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
