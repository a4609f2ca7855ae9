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

/// A view of the largest job is far below this.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum time for a master to publish its address.
const STARTING_MAX: Duration = Duration::from_secs(15);
/// Jobs named when a word fits several.
const NAMED_MAX: usize = 8;

/// A job.
#[derive(Debug)]
pub struct JobHandle {
    /// The job's directory; of a job on a cluster, the local copy.
    pub dir: JobDir,
    /// The submission.
    pub submitted: SubmittedJob,
    /// Last known state, of a job on a cluster.
    pub remote: Option<RemoteJob>,
}

/// Status of a job, from its files and the process table.
#[derive(Debug)]
pub enum JobStatus {
    /// It was submitted a moment ago; its master has not said where it is.
    Starting,
    /// Its master runs there.
    Running(MasterAddress),
    /// It is over, and this is the last that was seen of it.
    Finished(Box<JobSnapshot>),
    /// Its master is gone and has left no result.
    Lost,
    /// Its cluster says that it is over, and it has left no result.
    NoResult(RemoteEnd),
}

impl JobHandle {
    /// Reads the job in a directory. Returns `None` if there is none, or not yet.
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
        self.dir.check_versions().map_err(|it| unsupported(&it.path, &it.error))
    }

    /// The job's id.
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
        // A result comes before the master goes, so looking again after it has gone misses nothing.
        for _ in 0..2 {
            if let Some(last) = read_json(&self.dir.result_file()) {
                return JobStatus::Finished(last);
            }
            match read_json::<MasterAddress>(&self.dir.master_file()) {
                Some(place) if is_alive(&place) => return JobStatus::Running(place),
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

    /// Returns whether its master still runs, be it only to leave.
    pub fn has_master(&self) -> bool {
        self.remote.is_none()
            && read_json(&self.dir.master_file()).is_some_and(|place| is_alive(&place))
    }

    fn is_young(&self) -> bool {
        let written = fs::metadata(self.dir.submitted_file()).and_then(|about| about.modified());
        // A clock that jumped back makes every file come from the future.
        written.is_ok_and(|at| match SystemTime::now().duration_since(at) {
            Ok(age) => age < STARTING_MAX,
            Err(ahead) => ahead.duration() < STARTING_MAX,
        })
    }
}

fn is_alive(place: &MasterAddress) -> bool {
    let master = Identity { pid: place.pid, started: place.pid_started };
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

/// The directory of all jobs.
pub fn root() -> Result<PathBuf, Report> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    // The standard wants relative ones to be ignored.
    let state = variable(env::XDG_STATE_HOME)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".local/state")));
    match state {
        Some(state) if state.is_absolute() => Ok(state.join("ydl/jobs")),
        _ => Err(Report::internal(
            "no directory for jobs: neither `XDG_STATE_HOME` nor `HOME` is set",
        )
        .hint("set `XDG_STATE_HOME` to a directory that you can write to")),
    }
}

/// Jobs of this machine.
#[derive(Debug, Default)]
pub struct LocalJobs {
    /// Jobs that can be read, newest first.
    pub jobs: Vec<JobHandle>,
    /// Errors of jobs of another version, by id.
    pub unsupported: BTreeMap<String, Report>,
}

/// Lists all jobs.
pub fn list() -> Result<LocalJobs, Report> {
    let root = root()?;
    let mut list = LocalJobs::default();
    let entries = match fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(list),
        Err(error) => {
            let what = format!("cannot look for jobs in `{}`: {}", root.display(), reason(&error));
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
pub fn newest() -> Result<JobHandle, Report> {
    let LocalJobs { jobs, unsupported } = list()?;
    let job = jobs.into_iter().next().ok_or_else(|| {
        unsupported.into_values().next().unwrap_or_else(|| {
            Report::bad_input("there is no job on this machine").hint("start one with `ydl submit`")
        })
    })?;
    job.check_versions()?;
    Ok(job)
}

/// The job that a person means: by its id, by its name (the newest of that name), or by how its id begins.
pub fn find(word: &str) -> Result<JobHandle, Report> {
    let job = find_any(word)?;
    job.check_versions()?;
    Ok(job)
}

fn find_any(word: &str) -> Result<JobHandle, Report> {
    let LocalJobs { mut jobs, mut unsupported } = list()?;
    if let Some(report) = unsupported.remove(word) {
        return Err(report);
    }
    let exact = jobs.iter().position(|job| job.id() == word);
    let named = || jobs.iter().position(|job| job.submitted.spec.name == word);
    if let Some(at) = exact.or_else(named) {
        return Ok(jobs.swap_remove(at));
    }
    jobs.retain(|job| !word.is_empty() && job.id().starts_with(word));
    unsupported.retain(|id, _| !word.is_empty() && id.starts_with(word));
    match jobs.len() {
        0 => Err(unsupported.into_values().next().unwrap_or_else(|| {
            Report::bad_input(format!("there is no job `{word}` on this machine"))
                .hint("`ydl ls` lists the jobs")
        })),
        1 => Ok(jobs.swap_remove(0)),
        _ => Err(ambiguous(word, jobs.iter().map(|job| job.id().to_owned()))),
    }
}

/// Reports an id prefix that matches several jobs.
pub fn ambiguous(word: &str, ids: impl ExactSizeIterator<Item = String>) -> Report {
    let n = ids.len();
    let some: Vec<_> = ids.take(NAMED_MAX).map(|id| format!("`{id}`")).collect();
    let rest = if n > NAMED_MAX { ", …" } else { "" };
    Report::bad_input(format!("`{word}` matches {n} jobs"))
        .hint(format!("use one of {}{rest}", some.join(", ")))
}
