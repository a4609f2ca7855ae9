//! A client of Hadoop YARN that needs no JVM.
#![warn(missing_docs)]

pub mod config;
pub mod credentials;
pub mod ledger;
pub mod logs;
pub mod token;

pub use token::{Secret, Token};
