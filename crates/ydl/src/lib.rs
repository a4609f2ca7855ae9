//! The hands of ydl: one binary that is client, master and agent.
//!
//! Each folder is a room; its `mod.rs` says what the room is for.

pub mod agent;
pub mod backend;
pub mod cli;
pub mod commands;
pub mod data;
pub mod docker;
pub mod doors;
pub mod env;
pub mod gpus;
pub mod hdfs;
pub mod jobfile;
pub mod jobs;
pub mod logs;
pub mod master;
pub mod mirror;
pub mod os;
pub mod pack;
pub mod preflight;
pub mod report;
pub mod show;
pub mod stage;
pub mod talk;
pub mod wire;
