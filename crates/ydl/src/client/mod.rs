//! Client side of jobs, on this machine and on a cluster.
//!
//! * `cluster`: connection to a cluster's ResourceManager, and its error reports.
//! * `applications`: lists and finds a cluster's applications.
//! * `jobs`: jobs of this machine, and the last known state of a job on a cluster.
//! * `mirror`: copies of the files of a job on a cluster.
//! * `resolve`: finds the job that a command names.
//! * `wait`: waits for the end of a job.
//! * `output_locations`, `diagnose_failure`: where outputs were written, and why a job failed.
//! * `master_client`: calls a job's master.
//! * `live_logs`: reads logs of running tasks through the master.
//! * `preflight`: checks whether a cluster can run a job.
//! * `stage`: uploads a job's files.
//! * `submit`: the other steps from a job's spec to a running master. `submitter`: name of the user who submits.

pub mod applications;
pub mod cluster;
pub(crate) mod diagnose_failure;
pub(crate) mod jobs;
pub mod live_logs;
pub(crate) mod master_client;
pub mod mirror;
pub(crate) mod output_locations;
pub mod preflight;
pub(crate) mod resolve;
pub mod stage;
pub(crate) mod submit;
pub(crate) mod submitter;
pub(crate) mod wait;
