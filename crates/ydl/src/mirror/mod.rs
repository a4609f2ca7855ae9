//! Jobs on a cluster, mirrored to a machine with its configuration.
//!
//! * `gateway`: connection to a ResourceManager, and its error reports.
//! * `submission`, `tokens`: submission context and credentials of a master.
//! * `find`: lists jobs. * `job`: one job, with copies of its files in a private directory.
//! * `logs`, `tail`, `live`: output of its tasks. * `scratch`: the private directory.

mod gateway;

mod submission;
mod tokens;

mod find;
mod job;
mod live;
mod logs;
mod scratch;
mod tail;

pub use find::{find, list, newest, staging_of, tasks_of};
pub use gateway::{Gateway, configuration, missing, named_directory};
pub use job::{JobAccess, Mirror, state_of};
pub use logs::Wanted;
pub use submission::{KIND, submission};
pub use tokens::{SubmitCredentials, TRACKING_SECRET, submit_credentials, tracking_secret};
