//! From a submitter's disk into HDFS: what a job's containers need, sent once.
//!
//! Files that jobs share lie under the hash of what is in them, so that a second job with the same binary, files and
//! environment sends nothing. They are written aside and renamed: what has its name is whole.
//!
//! * `place`: where a user's jobs are kept.
//! * `remembered`: what is in large files that were read before.
//! * `source`: what is sent; directories travel as archives that are always the same for the same content.
//! * `need`: what a job needs, here and in HDFS.
//! * `look`: what is there already; nothing is written yet.
//! * `send`: what is missing goes there, several at a time.
//! * `job`: the files of one job alone.
//! * `clean`: what no job uses any more goes, and submitting never races with it.

mod clean;
mod hash_cache;
mod job;
mod need;
mod plan;
mod source;
mod staging_dir;
mod upload;

pub use clean::{AGE, CleanupStats, clean, give_up, is_due};
pub use job::{JobFiles, carried, write_job};
pub use plan::{StageRequest, StagingPlan, look};
pub use staging_dir::Place;
pub use upload::{Progress, Upload, stage};
