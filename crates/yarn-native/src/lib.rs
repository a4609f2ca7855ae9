//! A client of Hadoop YARN that needs no JVM.
#![warn(missing_docs)]

mod proto;

pub mod client;
pub mod rpc;
pub mod security;
pub mod token;
pub mod types;

pub use token::{Secret, Token};
