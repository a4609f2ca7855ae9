//! Jobs of this machine, and the last known state of a job on a cluster.

mod local;
mod remote;

pub(crate) use local::{JobHandle, JobStatus, LocalJobs, ambiguous, find, list, newest, root};
pub(crate) use remote::{RemoteEnd, RemoteJob, RemoteState};
