//! A client of Hadoop YARN that needs no JVM.
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
