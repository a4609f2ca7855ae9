//! Jobs on this machine: where each keeps its files, which there are, and how a new one begins.

mod create;
mod dir;
mod find;

pub use create::create;
pub use dir::{
    Content, EVENTS_BYTES_MAX, JobDir, MasterPlace, Offer, Place, Staged, Submitted, write_json,
};
pub use find::{Known, Standing, find, list, newest, root};
