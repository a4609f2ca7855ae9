//! Copies a program's outputs to their destinations.
//!
//! A file appears at its destination complete or not at all: it is written to a temporary name, synced and renamed. An
//! error does not stop the other copies, so that one bad link does not cost the model. Destinations are on a local disk or
//! in HDFS, behind the same trait (`FileStore`).
//!
//! * `collect`: the files of an output. `paths`: their links.
//! * `reservations`: destinations and names that belong to this job and task.
//! * `target`: one file to its destination. `batch`: several. `upload`: all outputs of an ended program.
//! * `continuous`: outputs and checkpoints of a running program. `restore`: checkpoints of an earlier one.
//! * `upload_log`: files that are known at the destination, or may be half-written.

mod batch;
mod collect;
mod continuous;
mod paths;
mod reservations;
mod restore;
mod target;
mod upload;
mod upload_log;

pub(super) use continuous::{ContinuousUpload, ProgramPhase};
pub(super) use reservations::Reservations;
pub(super) use restore::Restore;
pub(super) use upload::upload_outputs;
pub(super) use upload_log::{UploadLog, is_clean_exit};

use super::{
    shipping::{HdfsClients, UploadRequest},
    task_env::TaskOutput,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_proto::files::JobDir;

/// Timeout of [`copy`].
const COPY_MAX: Duration = Duration::from_secs(3600);
/// Maximum number of errors listed; further ones are counted.
const FAILURES_MAX: usize = 16;

/// Result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    pub bytes: u64,
    /// Sources that do not exist.
    pub absent: Vec<String>,
}

/// Error of a copy that was not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputError {
    /// One sentence each, never empty.
    pub failures: Vec<String>,
    /// Number of errors not listed.
    pub more: u64,
    /// Files copied nevertheless.
    pub copied: Copied,
}

impl fmt::Display for OutputError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.failures.first().map_or("", String::as_str))?;
        match self.failures.len() as u64 + self.more {
            0 | 1 => Ok(()),
            all => write!(out, " (and {} more)", all - 1),
        }
    }
}

impl std::error::Error for OutputError {}

impl OutputError {
    fn new(mut failures: Vec<String>, copied: Copied) -> OutputError {
        let more = failures.len().saturating_sub(FAILURES_MAX) as u64;
        failures.truncate(FAILURES_MAX);
        OutputError { failures, more, copied }
    }
}

/// Copies each `from`, relative to `work_dir`, to its local `to`.
///
/// `from` is a file, a directory, whose content is merged into `to`, or a pattern with `*` in its last
/// part, whose matches go into the directory `to`. A file becomes `to` itself, unless `to` is a
/// directory or ends with a slash.
pub async fn copy(work_dir: &Path, outputs: &[(String, PathBuf)]) -> Result<Copied, OutputError> {
    let output = |(from, to): &(String, PathBuf)| TaskOutput {
        from: from.clone(),
        to: to.to_string_lossy().into_owned(),
        existing: ExistingPolicy::Overwrite,
        every: None,
        shared: false,
    };
    let request = UploadRequest {
        owner: String::new(),
        outputs: outputs.iter().map(output).collect(),
        reservations: Reservations { dir: String::new(), job: String::new(), task: String::new() },
        work: work_dir.to_owned(),
        upload_log: UploadLog::default(),
        deadline: Instant::now() + COPY_MAX,
    };
    upload::upload(&HdfsClients::new(JobDir::at(work_dir)), &request).await
}

#[cfg(test)]
mod tests;
