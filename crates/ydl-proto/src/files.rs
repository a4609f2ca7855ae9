//! Directory of a job.
//!
//! ```text
//! $XDG_STATE_HOME/ydl/jobs/<id>/        0700
//!   job.json          what was submitted: spec, when, from where
//!   inputs.json       the files its inputs consist of, as they were at submit
//!   hadoop.json       how HDFS is found, where the job reads or writes it
//!   master.json       where the master is, and which process it is
//!   certificate.pem   the master's certificate; the only one clients trust
//!   client.token      0600: opens the master to the job's owner
//!   journal           the inputs of the core
//!   history.jsonl      the facts, a line each
//!   result.json       the last view, once the job is over
//!   master.log        what the master itself has to say
//!   files/            the job's files, as they were at submit
//!   checkpoint/       what survives rounds and attempts
//!   containers/<id>/  a task's working directory
//!   reservations/     destinations that the job has taken for its outputs
//!   logs/<role>/<index>/<attempt>/   stdout.0, stderr.0, …
//! ```

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};
use ydl_core::{ContainerId, JobSpec, TaskId, Time};

/// The most that is written to `history.jsonl`, and read of it: far more than the facts of any sensible job.
pub const EVENTS_BYTES_MAX: u64 = 256 << 20;

/// The directory of one job.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
}

/// Submission of a job. Written once, before the master starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submitted {
    /// The job's id, which is also the name of its directory.
    pub id: String,
    /// Time of the submission.
    pub at: Time,
    /// The directory from which relative destinations of outputs count.
    pub from: PathBuf,
    /// Specification of the job.
    pub spec: JobSpec,
    /// Target of the job.
    pub place: Place,
}

/// Target of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On this machine, on so much of it.
    Local(Offer),
    /// On a cluster.
    Yarn(Staged),
}

/// Files of a job in HDFS, which YARN localizes into every container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// The job's own directory, as `hdfs://namenode:8020/user/alice/.ydl/jobs/<id>`: see `hdfs::layout`.
    pub dir: String,
    /// From where relative destinations of outputs count: the user's home directory.
    pub home: String,
    /// This very binary.
    pub binary: Content,
    /// The job's files, by the name they have in a task's directory.
    pub files: BTreeMap<String, Content>,
    /// Parts of the Python environment, by their unpacked names in a task's directory.
    pub environment: BTreeMap<String, Content>,
}

/// A file in HDFS, as a NodeManager wants it described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// URL, as `hdfs://…`.
    pub url: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Modification time in ms since 1970. A NodeManager rejects a file that was changed since.
    pub modified_ms: u64,
    /// True if it is unpacked into a directory.
    pub unpack: bool,
    /// True if it belongs to this job alone: nodes do not keep it for the next job.
    pub own: bool,
}

/// Resources of this machine that a job may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores.
    pub vcores: u32,
    /// GPUs, as `CUDA_VISIBLE_DEVICES` names them.
    pub gpus: Vec<String>,
}

/// Address of a local master, which it writes when it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterPlace {
    /// `host:port`.
    pub address: String,
    /// Its process.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot, to detect a reused pid.
    pub pid_started: u64,
}

/// Address of a master on a cluster, which it writes to the job's directory in HDFS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// `host:port`.
    pub address: String,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Its process, on its node.
    pub pid: u32,
    /// Start time of the process.
    pub pid_started: u64,
}

impl JobDir {
    /// The directory at that path; nothing is created.
    pub fn at(path: impl Into<PathBuf>) -> JobDir {
        JobDir { path: path.into() }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that the job's inputs consist of.
    pub fn inputs_file(&self) -> PathBuf {
        self.path.join("inputs.json")
    }

    /// The directory of what its outputs have taken.
    pub fn reservations(&self) -> PathBuf {
        self.path.join("reservations")
    }

    /// The configuration by which HDFS is found, where the job needs it.
    pub fn hadoop_file(&self) -> PathBuf {
        self.path.join("hadoop.json")
    }

    /// The job's id.
    pub fn id(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns the path of the submission.
    pub fn submitted_file(&self) -> PathBuf {
        self.path.join("job.json")
    }

    /// Returns the path of the master's address.
    pub fn master_file(&self) -> PathBuf {
        self.path.join("master.json")
    }

    /// The master's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.path.join("certificate.pem")
    }

    /// The owner's token.
    pub fn token_file(&self) -> PathBuf {
        self.path.join("client.token")
    }

    /// The inputs of the core.
    pub fn journal_file(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Returns the path of the job's history.
    pub fn events_file(&self) -> PathBuf {
        self.path.join("history.jsonl")
    }

    /// The last view.
    pub fn result_file(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// The master's own log.
    pub fn master_log(&self) -> PathBuf {
        self.path.join("master.log")
    }

    /// The job's files.
    pub fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// Returns the checkpoint directory, which survives rounds and attempts.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// A container's own directory.
    pub fn container(&self, container: &ContainerId) -> PathBuf {
        self.path.join("containers").join(container.as_str())
    }

    /// All logs.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The logs of one attempt.
    pub fn attempt_logs(&self, task: &TaskId, attempt: u32) -> PathBuf {
        self.logs().join(task.role.as_str()).join(task.index.to_string()).join(attempt.to_string())
    }
}

/// Writes a file that others read while we may die: it is there whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let aside = path.with_extension("aside");
    fs::write(&aside, serde_json::to_vec_pretty(value)?)?;
    fs::rename(&aside, path)
}
