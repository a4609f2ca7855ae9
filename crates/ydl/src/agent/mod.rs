//! The agent: what runs in every container, and the hands that run a program there.

pub mod exec;
pub mod keeper;
pub mod keeping;
pub mod measure;
pub mod output;
pub mod outputs;
pub mod ports;
pub mod program;
mod segments;
mod tail;
