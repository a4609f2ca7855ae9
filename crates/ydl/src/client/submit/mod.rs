//! Submission: the steps between a job file and a running master.
//!
//! * `inputs`: lists inputs and settles destinations of outputs.
//! * On this machine: `job_dir` creates the job's directory, `start_master` starts its master.
//! * On a cluster: `credentials` for the master's container; `submission`, the submission context; `yarn`, the steps in
//!   order.

mod credentials;
pub mod inputs;
mod job_dir;
mod start_master;
mod submission;
pub mod yarn;

pub use credentials::{TRACKING_SECRET, tracking_secret};
pub use job_dir::create_job_dir;
pub use start_master::start_master;
pub use submission::APPLICATION_TYPE;
pub(super) use submission::{staged_at, tasks_in};
