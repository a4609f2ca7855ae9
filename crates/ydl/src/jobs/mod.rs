//! Jobs: which there are on this machine, how a new one begins here, and what is known of one on a cluster.

mod content;
mod create;
mod far;
mod find;

pub use content::local_resource;
pub use create::create;
pub use far::{Ended, Far, Seen};
pub use find::{Known, Standing, ambiguous, find, list, newest, root};
