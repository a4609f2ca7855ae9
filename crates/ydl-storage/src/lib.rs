//! Files of jobs, on this machine and in HDFS.

pub mod data;
pub mod hdfs;
pub mod store;
