//! Uploads the files that a job's containers need to HDFS, once.
//!
//! Shared files are stored under the hash of their content, so that a second job with the same binary, files and
//! environment uploads nothing. They are written to a temporary file and renamed: a file under its final name is complete.
//!
//! * `staging_dir`: a user's staging directory.
//! * `hash_cache`: cached hashes of large local files.
//! * `source`: a file or directory to upload; equal directories give equal archives.
//! * `item`: the files of a job, local and in HDFS.
//! * `plan`: lists a job's local files and the files in HDFS, without writing.
//! * `upload`: uploads missing files, several at a time.
//! * `job`: files that belong to one job.
//! * `clean`: removes unused files without a race against submissions.

mod clean;
mod hash_cache;
mod item;
mod job;
mod plan;
mod source;
mod staging_dir;
mod upload;

pub use clean::{AGE, CleanupStats, clean, is_due, remove_partial_uploads};
pub use job::{JobFiles, own_files, write_job};
pub use plan::{StageRequest, StagingPlan, plan};
pub use staging_dir::StagingDir;
pub use upload::{Progress, Upload, stage};
