//! Layout of the staging directory. All names are URLs.
//!
//! ```text
//! <home>/.ydl/                  0700, or what `staging:` names
//!   content/<sha256>.<ending>   files that jobs share, by what is in them
//!   content/.aside-…            such files while they are written
//!   probe-…                     there during a write test
//!   cleaning                    lock of a cleanup
//!   cleaned                     when that was last done
//!   jobs/<application>/         0700
//!     uses/<hash>-<hash>…       which shared files it uses
//!     job.json certificate.pem client.token hadoop.json inputs.json
//!     master.json journal.<attempt> history.jsonl result.json
//!     logs/<role>/<index>/<attempt>/stdout.0 …
//!     reservations/<hash>       destinations that the job has taken for its outputs
//! ```

use super::{error::HdfsError, small_files::random};
use ydl_core::TaskId;

/// The permission of directories below a job's own. Only users admitted by the job's owner can reach them, which may
/// be all users: access is controlled by the job's own directory.
pub const DIRECTORY: u32 = 0o755;
/// The permission of files that those who may look at a job may read.
pub const FILE: u32 = 0o644;
/// The permission of what is the owner's alone.
pub const PRIVATE: u32 = 0o600;

/// Prefix of temporary files.
pub(crate) const TEMPORARY_PREFIX: &str = ".aside-";

/// Staging directory of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagingLayout {
    root: String,
}

/// Staging directory of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLayout {
    dir: String,
}

impl StagingLayout {
    /// Everything below that directory.
    pub fn at(root: impl Into<String>) -> StagingLayout {
        let root: String = root.into();
        StagingLayout { root: root.trim_end_matches('/').to_owned() }
    }

    /// Returns the default location in a user's home directory.
    pub fn in_home(home: &str) -> StagingLayout {
        StagingLayout::at(format!("{}/.ydl", home.trim_end_matches('/')))
    }

    /// The directory itself.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns the directory of shared files.
    pub fn contents(&self) -> String {
        format!("{}/content", self.root)
    }

    /// A shared file by the name it has among them.
    pub fn content(&self, name: &str) -> String {
        format!("{}/content/{name}", self.root)
    }

    /// A shared file while that job writes it and its name is not known.
    pub fn temporary(&self, id: &str) -> Result<String, HdfsError> {
        Ok(format!("{}/content/{TEMPORARY_PREFIX}{id}-{}", self.root, random()?))
    }

    /// Returns the path to which a stale cleanup lock is moved, by its creation time.
    pub fn stale(&self, made_ms: u64) -> String {
        format!("{}/content/{TEMPORARY_PREFIX}cleaning-{made_ms}", self.root)
    }

    /// Returns true for the name of a partial shared file.
    pub fn is_temporary(&self, name: &str) -> bool {
        name.starts_with(TEMPORARY_PREFIX)
    }

    /// Returns true if that job wrote the partial file.
    pub fn is_temporary_of(&self, name: &str, id: &str) -> bool {
        let rest = name.strip_prefix(TEMPORARY_PREFIX).and_then(|it| it.strip_prefix(id));
        rest.is_some_and(|rest| rest.starts_with('-'))
    }

    /// A file of no use, to see whether one can be written.
    pub fn probe(&self) -> Result<String, HdfsError> {
        Ok(format!("{}/probe-{}", self.root, random()?))
    }

    /// Lock file of a cleanup.
    pub fn cleaning(&self) -> String {
        format!("{}/cleaning", self.root)
    }

    /// Time of the last cleanup.
    pub fn cleaned(&self) -> String {
        format!("{}/cleaned", self.root)
    }

    /// All jobs.
    pub fn jobs(&self) -> String {
        format!("{}/jobs", self.root)
    }

    /// A job's own directory.
    pub fn job(&self, id: &str) -> JobLayout {
        JobLayout::at(format!("{}/jobs/{id}", self.root))
    }
}

impl JobLayout {
    /// The job in that directory.
    pub fn at(dir: impl Into<String>) -> JobLayout {
        let dir: String = dir.into();
        JobLayout { dir: dir.trim_end_matches('/').to_owned() }
    }

    /// The directory itself.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// Returns the path of the submission.
    pub fn submitted(&self) -> String {
        self.file("job.json")
    }

    /// Returns the directory that records the shared files in use.
    pub fn uses(&self) -> String {
        self.file("uses")
    }

    /// The certificate of its masters.
    pub fn certificate(&self) -> String {
        self.file("certificate.pem")
    }

    /// The owner's token.
    pub fn token(&self) -> String {
        self.file("client.token")
    }

    /// The token of those who may look.
    pub fn viewer_token(&self) -> String {
        self.file("viewer.token")
    }

    /// The cluster's configuration as the submitter knew it.
    pub fn hadoop(&self) -> String {
        self.file("hadoop.json")
    }

    /// The files its inputs consist of.
    pub fn inputs(&self) -> String {
        self.file("inputs.json")
    }

    /// The directory of what its outputs have taken.
    pub fn reservations(&self) -> String {
        self.file("reservations")
    }

    /// Returns the checkpoint directory.
    pub fn checkpoint(&self) -> String {
        self.file("checkpoint")
    }

    /// Returns the path of the master's address.
    pub fn master(&self) -> String {
        self.file("master.json")
    }

    /// The inputs of the core while that master lived; a broken file is followed by part 1, 2, …
    pub fn journal(&self, attempt: u32, part: u32) -> String {
        match part {
            0 => self.file(&format!("journal.{attempt}")),
            _ => self.file(&format!("journal.{attempt}.{part}")),
        }
    }

    /// Returns the path of the job's history.
    pub fn events(&self) -> String {
        self.file("history.jsonl")
    }

    /// The last view.
    pub fn result(&self) -> String {
        self.file("result.json")
    }

    /// All logs.
    pub fn logs(&self) -> String {
        self.file("logs")
    }

    /// The logs of one attempt.
    pub fn attempt_logs(&self, task: &TaskId, attempt: u32) -> String {
        format!("{}/logs/{}/{}/{attempt}", self.dir, task.role.as_str(), task.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_there_says_whose_it_is() {
        let layout = StagingLayout::at("hdfs://nn:1/user/a/.ydl/");
        let aside = layout.temporary("application_1_0001").unwrap();
        let name = aside.strip_prefix("hdfs://nn:1/user/a/.ydl/content/").unwrap();
        assert!(layout.is_temporary(name));
        assert!(layout.is_temporary_of(name, "application_1_0001"));
        assert!(!layout.is_temporary_of(name, "application_1_000"));
        assert!(!layout.is_temporary_of("application_1_0001-file", "application_1_0001"));
        assert_ne!(layout.stale(1), layout.stale(2));
    }
}
