//! Jobs: which there are on this machine, how a new one begins here, and what is known of one on a cluster.

mod content;
mod create;
mod find;
mod remote;

pub use content::local_resource;
pub use create::create;
pub use find::{JobHandle, JobStatus, ambiguous, find, list, newest, root};
pub use remote::{RemoteEnd, RemoteJob, RemoteState};
