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
//! use yarn_native::rpc::{Address, Options};
//! use yarn_native::security::Identity;
//!
//! # async fn list() -> Result<(), Box<dyn std::error::Error>> {
//! let rm: Address = "rm.example.com:8032".parse()?;
//! let client = Client::new(vec![rm], Identity::simple("alice"), Options::default())?;
//! let deadline = Instant::now() + Duration::from_secs(20);
//! for application in client.applications(&ApplicationFilter::default(), deadline).await? {
//!     println!("{} {} {}", application.id, application.state, application.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`client`] lists applications and nodes, in the words of [`types`].
//! * [`scheduler`] is for masters: it registers them, asks for containers and hears what became of
//!   them; [`node`] starts what runs in containers, and stops it.
//! * [`security`] says who calls and what a server must prove; [`token`] is one of the proofs.
//! * [`rpc`] carries the calls: many at once over one connection, each with its deadline, moved to
//!   the server that is active, repeated only where that is safe.
//!
//! Nothing here panics on what a server, a file or a user says, nothing waits without a deadline,
//! and no secret is shown by `Debug`.
#![warn(missing_docs)]

#[cfg(test)]
mod noise;
mod proto;

pub mod client;
pub mod node;
pub mod rpc;
pub mod scheduler;
pub mod security;
pub mod token;
pub mod types;

pub use token::{Secret, Token};
