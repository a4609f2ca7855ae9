//! Uploads the files that a job's containers need to HDFS, once.
//!
//! Shared files are stored under the hash of their content, so that a second job with the same binary, files and
//! environment uploads nothing. They are written aside and renamed: a file under its final name is complete.
//!
//! * `staging_dir`: a user's staging directory.
//! * `hash_cache`: hashes of large files that were read before.
//! * `source`: a file or directory to upload; equal directories give equal archives.
//! * `need`: files that a job needs, here and in HDFS.
//! * `plan`: lists the files already in HDFS; nothing is written yet.
//! * `upload`: uploads missing files, several at a time.
//! * `job`: the files of one job alone.
//! * `clean`: removes unused files without a race against submissions.

mod clean;
mod hash_cache;
mod job;
mod need;
mod plan;
mod source;
mod staging_dir;
mod upload;

pub use clean::{AGE, CleanupStats, clean, is_due, remove_partial_uploads};
pub use job::{JobFiles, own_files, write_job};
pub use plan::{StageRequest, StagingPlan, plan};
pub use staging_dir::StagingDir;
pub use upload::{Progress, Upload, stage};
