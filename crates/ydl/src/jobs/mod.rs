//! Jobs: where each keeps its files, which there are on this machine, and how a new one begins there.

mod content;
mod create;
mod dir;
mod environment;
mod far;
mod find;
pub mod luggage;

pub use create::create;
pub use dir::{
    Content, EVENTS_BYTES_MAX, JobDir, MasterPlace, Offer, Place, Staged, Submitted, Whereabouts,
    write_json,
};
pub use environment::{
    ENVIRONMENT, INTERPRETER, LOCAL, MANIFEST, Manifest, PACKAGES, Python, renamed,
};
pub use far::{Ended, Far, Seen};
pub use find::{Known, Standing, ambiguous, find, list, newest, root};
