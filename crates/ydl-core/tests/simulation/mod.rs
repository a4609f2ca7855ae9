//! A job in a world of faults, which the tests live thousands of times and the bench measures.

mod agent;
mod chaos;
mod checks;
mod cluster;
mod count;
mod elastic;
mod faults;
mod jobs;
mod late;
mod random;
mod report;
mod serving;
mod shell;
mod speak;
mod success;
pub mod world;

#[path = "../builder/mod.rs"]
pub mod builder;
