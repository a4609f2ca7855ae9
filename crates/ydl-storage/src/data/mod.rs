//! A job's data: what its inputs consist of, and how files come from where they are.
//!
//! What an input means is looked up once, at submit, and written down with lengths and times of change: every attempt of
//! a task gets the very same files, and a file that was changed since is noticed.
//!
//! * `pattern`: names with `*`.
//! * `listing`: the files of every input, and which of them are a task's.
//! * `look`: what is there, here or in HDFS. `walk`: one source of it.
//! * `existing`: destinations of outputs that are there already. `claim`: those that came since.
//! * `names`: what tasks that share a destination put there.
//! * `bring`: files come to this disk, several at a time, checked and continued where they were interrupted.
//! * `abandoned`: files that a killed process left incomplete.
//! * `trouble`: why they did not. * `tidy`: what a job that failed has left half-sent.

mod abandoned;
mod bring;
mod claim;
mod existing;
mod listing;
mod look;
mod names;
pub mod pattern;
mod tidy;
mod trouble;
mod walk;

pub use abandoned::{ABANDONED, named, sweep};
pub use bring::{Bring, Item, Near, Progress, below};
pub use claim::{Book, claim, release};
pub use existing::{Aim, numbered, settle};
pub use listing::{Listed, ListedFile, Listing};
pub use look::look;
pub use names::Names;
pub use pattern::is_aside;
pub use tidy::tidy;
pub use trouble::Trouble;
pub use walk::{Walked, walk};
