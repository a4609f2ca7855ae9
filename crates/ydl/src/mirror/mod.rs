//! Jobs on a cluster, seen from a machine with its configuration.
//!
//! * `gateway`: the way to a ResourceManager, and what a person is told where there is none.
//! * `submission`, `tokens`: what a ResourceManager is given to start a master.
//! * `find`: which jobs there are. * `job`: one of them, with copies of its files in a directory of ours.
//! * `logs`, `tail`, `live`: what its tasks print. * `scratch`: that directory.

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
