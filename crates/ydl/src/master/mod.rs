//! The master: the shell around the core.

pub mod journal;

pub mod kv;
