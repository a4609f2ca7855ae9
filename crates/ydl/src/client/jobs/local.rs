//! Lists jobs and determines their status.

use super::remote::{RemoteEnd, RemoteJob};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use ydl_os::{env, process::Identity, reason, report::Report};
use ydl_proto::{
    files::{JobDir, JobTarget, MasterAddress, SubmittedJob},
    messages::JobSnapshot,
    version::{FileError, from_json},
};

/// Maximum size of a job's file; the view of the largest job is far smaller.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum time for a master to publish its address.
const STARTING_MAX: Duration = Duration::from_secs(15);
/// Number of jobs listed for an ambiguous name.
const NAMED_MAX: usize = 8;

/// A job.
#[derive(Debug)]
pub struct JobHandle {
    /// Directory of the job; for a job on a cluster, the local copy.
    pub dir: JobDir,
    /// The submission.
    pub submitted: SubmittedJob,
    /// Last known state of a job on a cluster; `None` for a local job.
    pub remote: Option<RemoteJob>,
}

/// Status of a job, from its files and the process table.
#[derive(Debug)]
pub enum JobStatus {
    /// The master has not published its address yet.
    Starting,
    /// The master is running at this address.
    Running(MasterAddress),
    /// The job has ended with this snapshot.
    Finished(Box<JobSnapshot>),
    /// The master of a local job died without a result.
    Lost,
    /// The cluster reports that the job has ended, and there is no result.
    NoResult(RemoteEnd),
}

impl JobHandle {
    /// Reads the job in a directory. Returns `None` if the directory has no complete job.
    fn at(dir: JobDir) -> Result<Option<JobHandle>, FileError> {
        let submitted = match read_file(&dir.submitted_file()) {
            Ok(submitted) => submitted,
            Err(error) if error.is_version() => return Err(error),
            Err(_) => return Ok(None),
        };
        Ok(Some(JobHandle { dir, submitted, remote: None }))
    }

    /// Checks that this version of ydl can read the files of the job.
    pub fn check_versions(&self) -> Result<(), Report> {
        self.dir.check_versions().map_err(|file| unsupported(&file.path, &file.error))
    }

    /// Returns the job's id.
    pub fn id(&self) -> &str {
        &self.submitted.id
    }

    /// Returns the current status.
    pub fn status(&self) -> JobStatus {
        if let Some(remote) = &self.remote {
            return match read_json(&self.dir.result_file()) {
                Some(last) => JobStatus::Finished(last),
                None => remote.status(),
            };
        }
        // The master writes its result before it exits, so a second look after its exit finds the result.
        for _ in 0..2 {
            if let Some(last) = read_json(&self.dir.result_file()) {
                return JobStatus::Finished(last);
            }
            match read_json::<MasterAddress>(&self.dir.master_file()) {
                Some(address) if is_alive(&address) => return JobStatus::Running(address),
                Some(_) => {}
                None if self.is_young() => return JobStatus::Starting,
                None => {}
            }
        }
        JobStatus::Lost
    }

    /// Returns the location of its logs, as shown to users.
    pub fn logs(&self) -> String {
        match &self.submitted.target {
            JobTarget::Local(_) => self.dir.logs().display().to_string(),
            JobTarget::Yarn(staged) => format!("{}/logs", staged.dir),
        }
    }

    /// Returns the location of an output, as shown to users.
    pub fn destination(&self, to: &str) -> String {
        let to = to.replace("{job}", self.id());
        match &self.submitted.target {
            JobTarget::Yarn(staged) if !to.contains("://") && !to.starts_with('/') => {
                format!("{}/{to}", staged.home)
            }
            JobTarget::Yarn(_) | JobTarget::Local(_) => to,
        }
    }

    /// Returns whether the process of a local job's master still exists.
    pub(crate) fn has_master(&self) -> bool {
        self.remote.is_none()
            && read_json(&self.dir.master_file()).is_some_and(|address| is_alive(&address))
    }

    fn is_young(&self) -> bool {
        let modified = fs::metadata(self.dir.submitted_file()).and_then(|file| file.modified());
        // After the clock was set back, files have times in the future.
        modified.is_ok_and(|at| match SystemTime::now().duration_since(at) {
            Ok(age) => age < STARTING_MAX,
            Err(ahead) => ahead.duration() < STARTING_MAX,
        })
    }
}

fn is_alive(address: &MasterAddress) -> bool {
    let master = Identity { pid: address.pid, started: address.pid_started };
    master.is_alive()
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    read_file(path).ok()
}

fn read_file<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| FileError::Malformed(serde_json::Error::io(error)))?;
    from_json(&bytes)
}

/// Reports a file of another version.
fn unsupported(path: &Path, error: &FileError) -> Report {
    let report = Report::bad_input(format!("cannot read `{}`: {error}", path.display()));
    Report { hint: error.hint().map(str::to_owned), ..report }
}

/// Returns the directory of all local jobs.
pub(crate) fn root() -> Result<PathBuf, Report> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    // The XDG specification requires relative paths to be ignored.
    let state = variable(env::XDG_STATE_HOME)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".local/state")));
    match state {
        Some(state) if state.is_absolute() => Ok(state.join("ydl/jobs")),
        _ => Err(Report::internal(
            "no directory for jobs: neither `XDG_STATE_HOME` nor `HOME` is set",
        )
        .hint("set `XDG_STATE_HOME` to a writable directory")),
    }
}

/// Jobs of this machine.
#[derive(Debug, Default)]
pub(crate) struct LocalJobs {
    /// Jobs that can be read, newest first.
    pub jobs: Vec<JobHandle>,
    /// Errors of jobs of another version, by id.
    pub unsupported: BTreeMap<String, Report>,
}

/// Lists all jobs.
pub(crate) fn list() -> Result<LocalJobs, Report> {
    let root = root()?;
    let mut list = LocalJobs::default();
    let entries = match fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(list),
        Err(error) => {
            let what = format!("cannot list `{}`: {}", root.display(), reason(&error));
            return Err(Report::internal(what));
        }
    };
    for entry in entries.flatten() {
        let dir = JobDir::at(entry.path());
        let (id, file) = (dir.id(), dir.submitted_file());
        match JobHandle::at(dir) {
            Ok(job) => list.jobs.extend(job),
            Err(error) => drop(list.unsupported.insert(id, unsupported(&file, &error))),
        }
    }
    list.jobs.sort_by(|a, b| (b.submitted.at, b.id()).cmp(&(a.submitted.at, a.id())));
    Ok(list)
}

/// Returns the newest job.
pub(crate) fn newest() -> Result<JobHandle, Report> {
    let LocalJobs { jobs, unsupported } = list()?;
    let job = jobs.into_iter().next().ok_or_else(|| {
        unsupported.into_values().next().unwrap_or_else(|| {
            Report::bad_input("no jobs on this machine").hint("start one with `ydl submit`")
        })
    })?;
    job.check_versions()?;
    Ok(job)
}

/// Finds a job by id, by name (the newest) or by unique id prefix.
pub(crate) fn find(name: &str) -> Result<JobHandle, Report> {
    let job = find_any(name)?;
    job.check_versions()?;
    Ok(job)
}

fn find_any(name: &str) -> Result<JobHandle, Report> {
    let LocalJobs { mut jobs, mut unsupported } = list()?;
    if let Some(report) = unsupported.remove(name) {
        return Err(report);
    }
    let exact = jobs.iter().position(|job| job.id() == name);
    let by_name = || jobs.iter().position(|job| job.submitted.spec.name == name);
    if let Some(at) = exact.or_else(by_name) {
        return Ok(jobs.swap_remove(at));
    }
    jobs.retain(|job| !name.is_empty() && job.id().starts_with(name));
    unsupported.retain(|id, _| !name.is_empty() && id.starts_with(name));
    match jobs.len() {
        0 => Err(unsupported.into_values().next().unwrap_or_else(|| {
            Report::bad_input(format!("there is no job `{name}` on this machine"))
                .hint("`ydl ls` lists the jobs")
        })),
        1 => Ok(jobs.swap_remove(0)),
        _ => Err(ambiguous(name, jobs.iter().map(|job| job.id().to_owned()))),
    }
}

/// Reports an id prefix that matches several jobs.
pub(crate) fn ambiguous(name: &str, ids: impl ExactSizeIterator<Item = String>) -> Report {
    let n = ids.len();
    let some: Vec<_> = ids.take(NAMED_MAX).map(|id| format!("`{id}`")).collect();
    let rest = if n > NAMED_MAX { ", …" } else { "" };
    Report::bad_input(format!("`{name}` matches {n} jobs"))
        .hint(format!("use one of {}{rest}", some.join(", ")))
}
