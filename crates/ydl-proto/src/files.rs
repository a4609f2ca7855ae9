//! Directory of a job.
//!
//! ```text
//! $XDG_STATE_HOME/ydl/jobs/<id>/        0700
//!   job.json          submitted job: specification, time, directory
//!   inputs.json       files of its inputs, as listed at submit
//!   hadoop.json       Hadoop configuration, if the job reads or writes HDFS
//!   master.json       address and process of the master
//!   certificate.pem   certificate of the master, the only one that clients trust
//!   client.token      0600: the owner's token
//!   journal           journal of the core's inputs
//!   history.jsonl     events of the job, one per line
//!   result.json       final snapshot, after the end
//!   master.log        messages of the master
//!   files/            the job's files, as they were at submit
//!   checkpoint/       what survives rounds and attempts
//!   containers/<id>/  a task's working directory
//!   reservations/     destinations that the job has taken for its outputs
//!   logs/<role>/<index>/<attempt>/   stdout.0, stderr.0, …
//! ```
//!
//! Each JSON file, and each line of the history, has a version: see [`crate::version`].

use crate::version::{self, FileError};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};
use ydl_core::{ContainerId, JobSpec, TaskId, Time};

/// Maximum size of `history.jsonl`, far above that of usual jobs.
pub const HISTORY_BYTES_MAX: u64 = 256 << 20;

/// Directory of one job.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
}

/// A submitted job. Written once, before the master starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubmittedJob {
    /// The job's id, which is also the name of its directory.
    pub id: String,
    /// Time of the submission.
    pub at: Time,
    /// Directory that relative destinations of outputs are resolved against.
    pub from: PathBuf,
    /// Specification of the job.
    pub spec: JobSpec,
    /// Target of the job.
    pub target: JobTarget,
}

/// Target of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobTarget {
    /// This machine, with these resources.
    Local(LocalResources),
    /// A cluster, with these files.
    Yarn(StagedFiles),
}

/// Files of a job in HDFS, which YARN localizes into every container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFiles {
    /// The job's own directory, as `hdfs://namenode:8020/user/alice/.ydl/jobs/<id>`: see `hdfs::layout`.
    pub dir: String,
    /// Directory that relative destinations of outputs are resolved against: the user's home directory.
    pub home: String,
    /// The binary that submitted the job.
    pub binary: StagedFile,
    /// The job's files, by the name they have in a task's directory.
    pub files: BTreeMap<String, StagedFile>,
    /// Parts of the Python environment, by their unpacked names in a task's directory.
    pub environment: BTreeMap<String, StagedFile>,
}

/// File in HDFS, with what a NodeManager needs to localize it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// URL, as `hdfs://…`.
    pub url: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Modification time in ms since 1970. A NodeManager rejects a file that was changed since.
    pub modified_ms: u64,
    /// True if it is unpacked into a directory.
    pub unpack: bool,
    /// True if it belongs to this job alone: nodes do not cache it for other jobs.
    pub own: bool,
}

/// Resources of this machine that a job may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalResources {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores.
    pub vcores: u32,
    /// GPUs, as `CUDA_VISIBLE_DEVICES` names them.
    pub gpus: Vec<String>,
}

/// Address of a master. A master writes it when it listens; on a cluster to the job's directory in HDFS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterAddress {
    /// `host:port`.
    pub address: String,
    /// Attempt of the master, from 1.
    pub attempt: u32,
    /// Process id, on the master's node.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot, to detect a reused pid.
    pub pid_started: u64,
}

/// A file of a job that cannot be used.
#[derive(Debug)]
pub struct UnsupportedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason.
    pub error: FileError,
}

/// Hadoop configuration of the submitter, with which a job's processes find HDFS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HadoopConfig {
    /// Values by property name.
    pub properties: BTreeMap<String, String>,
}

impl JobDir {
    /// Returns the job directory at a path, without creating it.
    pub fn at(path: impl Into<PathBuf>) -> JobDir {
        JobDir { path: path.into() }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the list of input files.
    pub fn inputs_file(&self) -> PathBuf {
        self.path.join("inputs.json")
    }

    /// Returns the directory of reserved output destinations.
    pub fn reservations(&self) -> PathBuf {
        self.path.join("reservations")
    }

    /// Returns the path of the Hadoop configuration, which not every job has.
    pub fn hadoop_file(&self) -> PathBuf {
        self.path.join("hadoop.json")
    }

    /// Returns the job's id.
    pub fn id(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns the path of the submitted job.
    pub fn submitted_file(&self) -> PathBuf {
        self.path.join("job.json")
    }

    /// Returns the path of the master's address.
    pub fn master_file(&self) -> PathBuf {
        self.path.join("master.json")
    }

    /// Returns the path of the master's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.path.join("certificate.pem")
    }

    /// Returns the path of the owner's token.
    pub fn token_file(&self) -> PathBuf {
        self.path.join("client.token")
    }

    /// Returns the path of the journal.
    pub fn journal_file(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Returns the path of the job's history.
    pub fn history_file(&self) -> PathBuf {
        self.path.join("history.jsonl")
    }

    /// Returns the path of the final snapshot.
    pub fn result_file(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// Returns the path of the master's log.
    pub fn master_log(&self) -> PathBuf {
        self.path.join("master.log")
    }

    /// Checks the versions of the files that commands read. Absent and malformed files are handled by their readers.
    pub fn check_versions(&self) -> Result<(), UnsupportedFile> {
        let files =
            [self.submitted_file(), self.master_file(), self.result_file(), self.history_file()];
        for path in files {
            let Ok(file) = File::open(&path) else {
                continue;
            };
            version::check_first(BufReader::new(file))
                .map_err(|error| UnsupportedFile { path, error })?;
        }
        Ok(())
    }

    /// Returns the directory of the job's files.
    pub fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// Returns the checkpoint directory, which survives rounds and attempts.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Returns the directory of a container.
    pub fn container(&self, container: &ContainerId) -> PathBuf {
        self.path.join("containers").join(container.as_str())
    }

    /// Returns the directory of all logs.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Returns the directory of an attempt's logs.
    pub fn attempt_logs(&self, task: &TaskId, attempt: u32) -> PathBuf {
        self.logs().join(task.role.as_str()).join(task.index.to_string()).join(attempt.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_file_that_commands_read_is_checked_for_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let dir = JobDir::at(folder.path());
        assert!(dir.check_versions().is_ok(), "absent files are accepted");
        let files =
            [dir.submitted_file(), dir.master_file(), dir.result_file(), dir.history_file()];
        for path in &files {
            fs::write(path, "{\"version\":1,\"at\":7}\n").unwrap();
        }
        dir.check_versions().unwrap();
        for path in files {
            for (text, found) in [("{\"version\":2}\n", Some(2)), ("{\"at\":7}\n", None)] {
                let good = fs::read(&path).unwrap();
                fs::write(&path, text).unwrap();
                let bad = dir.check_versions().unwrap_err();
                assert_eq!(bad.path, path);
                assert!(matches!(bad.error, FileError::Unsupported(it) if it == found));
                fs::write(&path, good).unwrap();
            }
        }
    }
}
