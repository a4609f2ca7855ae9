//! Data of jobs: the files of inputs, downloads to the local disk, and destinations of outputs.
//!
//! Inputs are listed once, at submit, with lengths and modification times: every attempt of a task gets the same files,
//! and a file that was changed since is noticed.
//!
//! * `pattern`: names with `*`.
//! * `listing`: the files of every input, and those of one task.
//! * `inputs`: lists and validates the sources. `walk`: lists one source.
//! * `destinations`: existing destinations of outputs at submit. `reservation`: those that appeared later.
//! * `announcements`: names that tasks write to a shared destination.
//! * `download`: concurrent, resumable downloads.
//! * `error`: errors of transfers. `cleanup`: partial uploads of a failed job.

mod announcements;
mod cleanup;
mod destinations;
mod download;
mod error;
mod inputs;
mod listing;
pub mod pattern;
mod reservation;
mod walk;

pub use announcements::AnnouncedNames;
pub use cleanup::remove_partial_uploads;
pub use destinations::{Destinations, numbered, resolve_existing};
pub use download::{DownloadItem, Downloader, LocalMode, Progress, below};
pub use error::DataError;
pub use inputs::list_inputs;
pub use listing::{ListedFile, ListedInput, Listing};
pub use pattern::is_temporary;
pub use reservation::{ReservationLog, release, reserve};
pub use walk::{SourceFiles, list_source};
