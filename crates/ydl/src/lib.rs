//! Runtime of ydl: one binary that is client, master and agent.
//!
//! Each folder is a module; its `mod.rs` describes it.

pub mod agent;
pub mod backend;
pub mod cli;
pub mod client;
pub mod commands;
pub mod compat;
mod docker;
mod gpus;
pub mod logs;
pub mod master;
pub mod terminal;
