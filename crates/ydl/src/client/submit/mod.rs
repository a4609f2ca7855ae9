//! Submission: the steps from a job's spec to a running master.
//!
//! * `inputs`: lists inputs and resolves the destinations of outputs.
//! * On this machine: `job_dir` creates the job's directory, `start_master` starts its master.
//! * On a cluster: `credentials` creates the credentials of the master's container, `submission` builds the submission
//!   context, `yarn` runs the steps in order.

mod credentials;
pub(crate) mod inputs;
mod job_dir;
mod start_master;
mod submission;
pub(crate) mod yarn;

pub(crate) use credentials::{TRACKING_SECRET, tracking_secret};
pub(crate) use job_dir::create_job_dir;
pub(crate) use start_master::start_master;
pub(crate) use submission::APPLICATION_TYPE;
pub(super) use submission::{staging_in, tasks_in};
