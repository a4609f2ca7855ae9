//! Job on a cluster, with copies of its files in a private directory that is laid out like the directory of a local job.

use super::{follow::FollowPermits, private_dir::PrivateDir};
use crate::client::{
    applications::{staging_of, state_of},
    cluster::ClusterClient,
    jobs::{JobHandle, RemoteEnd, RemoteJob, RemoteState},
};
use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use yarn_native::{
    rpc::RpcError,
    types::{ApplicationId, ApplicationReport, ApplicationState},
};
use ydl_net::secret::Token;
use ydl_os::{private, reason, report::Report};
use ydl_proto::{
    files::{HISTORY_BYTES_MAX, JobDir, SubmittedJob},
    version::{FileError, from_json},
};
use ydl_storage::hdfs::{Hdfs, JobLayout, StagingLayout};

/// Poll interval of the ResourceManager while idle.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum poll interval.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Maximum time for reading a file from HDFS.
const READ_MAX: Duration = Duration::from_secs(30);
/// Maximum size of a file; the view of the largest job is far smaller.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum time for the ResourceManager to end an application.
const KILL_MAX: Duration = Duration::from_secs(30);

/// A job on a cluster.
#[derive(Debug)]
pub struct Mirror {
    /// Connection to the cluster.
    pub cluster: ClusterClient,
    /// Application id of the job.
    pub id: ApplicationId,
    /// File system with the job's files.
    pub hdfs: Hdfs,
    /// Paths of the job's files.
    pub layout: JobLayout,
    /// Last known state.
    pub remote: RemoteJob,
    /// Directory with the copies.
    pub dir: JobDir,
    pub(super) permits: FollowPermits,
    last: Mutex<Option<ApplicationReport>>,
    _private: PrivateDir,
}

/// Accessible part of a job.
#[derive(Debug)]
pub enum JobAccess {
    /// The job with its files.
    Full(Box<JobHandle>, Arc<Mirror>),
    /// Only the application report, and the reason.
    ReportOnly(Box<ApplicationReport>, String),
}

impl JobAccess {
    /// Opens the job of an application.
    pub async fn open(
        cluster: &ClusterClient,
        report: ApplicationReport,
    ) -> Result<JobAccess, Report> {
        let (hdfs, layout) = match locate(cluster, &report).await {
            Ok(location) => location,
            Err(why) => return Ok(JobAccess::ReportOnly(Box::new(report), why)),
        };
        let deadline = Instant::now() + READ_MAX;
        let read = |file: String| {
            let hdfs = hdfs.clone();
            async move { hdfs.read_file(&file, FILE_BYTES_MAX, deadline).await }
        };
        let token = async {
            match read(layout.token()).await {
                Ok(token) => Ok(token),
                Err(_) => read(layout.viewer_token()).await,
            }
        };
        let (submitted, certificate, token) =
            tokio::join!(read(layout.submitted()), read(layout.certificate()), token);
        let submitted = match submitted {
            Ok(bytes) => from_json::<SubmittedJob>(&bytes)
                .map_err(|error| unreadable(&layout.submitted(), &error)),
            Err(error) => Err(error.to_string()),
        };
        let submitted = match submitted {
            Ok(submitted) => submitted,
            Err(why) => return Ok(JobAccess::ReportOnly(Box::new(report), why)),
        };
        let mirror = Mirror::new(cluster, report.id, hdfs, layout)?;
        if let Ok(certificate) = certificate {
            mirror.write_copy(mirror.dir.certificate_file(), &certificate)?;
        }
        // A viewer that only YARN admits has no token; commands that need one report that.
        if let Ok(token) = token {
            mirror.write_private_copy(mirror.dir.token_file(), &token)?;
        }
        mirror.record(report.clone()).await;
        if let Err(file) = mirror.dir.check_versions() {
            return Ok(JobAccess::ReportOnly(
                Box::new(report),
                unreadable(&file.path.display(), &file.error),
            ));
        }
        let handle = Box::new(mirror.handle(submitted));
        Ok(JobAccess::Full(handle, Arc::new(mirror)))
    }
}

/// Describes a file that cannot be read.
fn unreadable(path: &impl std::fmt::Display, error: &FileError) -> String {
    let hint = error.hint().map(|hint| format!(" ({hint})"));
    format!("cannot read `{path}`: {error}{}", hint.unwrap_or_default())
}

/// Returns the location of an application's files.
async fn locate(
    cluster: &ClusterClient,
    report: &ApplicationReport,
) -> Result<(Hdfs, JobLayout), String> {
    let deadline = Instant::now() + READ_MAX;
    let staging = staging_of(report);
    let url = staging.as_deref().filter(|path| path.contains("://"));
    let hdfs = Hdfs::connect(&cluster.config, url, &cluster.identity, deadline).await;
    let hdfs = hdfs.map_err(|error| error.to_string())?;
    let layout = match &staging {
        Some(path) => StagingLayout::at(hdfs.url(path)),
        None => {
            let home = cluster.config.home_directory(&report.user);
            let home = home.map_err(|error| error.to_string())?;
            StagingLayout::in_home(&hdfs.url(&home))
        }
    };
    Ok((hdfs, layout.job(&report.id.to_string())))
}

impl Mirror {
    fn new(
        cluster: &ClusterClient,
        id: ApplicationId,
        hdfs: Hdfs,
        layout: JobLayout,
    ) -> Result<Mirror, Report> {
        let private = PrivateDir::new(&id.to_string())?;
        let dir = JobDir::at(private.path());
        Ok(Mirror {
            cluster: cluster.clone(),
            id,
            hdfs,
            layout,
            remote: RemoteJob::default(),
            dir,
            permits: FollowPermits::default(),
            last: Mutex::default(),
            _private: private,
        })
    }

    /// Creates the mirror of a job that this process has just submitted.
    pub(crate) fn of_submitted(
        cluster: &ClusterClient,
        id: ApplicationId,
        hdfs: Hdfs,
        layout: JobLayout,
        submitted: SubmittedJob,
        certificate: &str,
        token: &Token,
    ) -> Result<(JobHandle, Arc<Mirror>), Report> {
        let mirror = Mirror::new(cluster, id, hdfs, layout)?;
        mirror.write_copy(mirror.dir.certificate_file(), certificate.as_bytes())?;
        mirror.write_private_copy(mirror.dir.token_file(), token.as_str().as_bytes())?;
        Ok((mirror.handle(submitted), Arc::new(mirror)))
    }

    fn handle(&self, submitted: SubmittedJob) -> JobHandle {
        JobHandle { dir: self.dir.clone(), submitted, remote: Some(self.remote.clone()) }
    }

    fn write_copy(&self, path: PathBuf, bytes: &[u8]) -> Result<(), Report> {
        let temporary = path.with_extension("part");
        let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| {
            Report::internal(format!("cannot write `{}`: {}", path.display(), reason(&error)))
        })
    }

    fn write_private_copy(&self, path: PathBuf, bytes: &[u8]) -> Result<(), Report> {
        private::write(&path, bytes).map_err(|error| Report::internal(error.to_string()))
    }

    /// Returns the last report of the ResourceManager.
    pub fn last_report(&self) -> Option<ApplicationReport> {
        let last = self.last.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Polls the ResourceManager once and records its report. Copies the final files of a finished job.
    pub async fn poll(&self) -> Result<ApplicationReport, RpcError> {
        let deadline = self.cluster.deadline();
        let report = self.cluster.rm.application(self.id, deadline).await?;
        self.record(report.clone()).await;
        Ok(report)
    }

    async fn record(&self, report: ApplicationReport) {
        let state = remote_state(&report);
        if matches!(state, RemoteState::Finished(_))
            && !matches!(self.remote.state(), RemoteState::Finished(_))
        {
            // Copies are complete before the end is reported.
            self.copy_result().await;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.remote.set_state(state);
    }

    /// Copies the files that a job leaves at its end. Missing files were never written.
    async fn copy_result(&self) {
        let deadline = Instant::now() + READ_MAX;
        let (events, result) = (self.layout.events(), self.layout.result());
        let (events, result) = tokio::join!(
            self.hdfs.read_file(&events, HISTORY_BYTES_MAX, deadline),
            self.hdfs.read_file(&result, FILE_BYTES_MAX, deadline),
        );
        if let Ok(bytes) = events {
            let _ = self.write_copy(self.dir.history_file(), &bytes);
        }
        if let Ok(bytes) = result {
            let _ = self.write_copy(self.dir.result_file(), &bytes);
        }
    }

    /// Polls the ResourceManager in the background until the job is over, and records each report.
    pub fn watch(self: &Arc<Self>) -> JoinHandle<()> {
        let mirror = self.clone();
        tokio::spawn(async move {
            while !matches!(mirror.remote.state(), RemoteState::Finished(_)) {
                // Errors may be temporary; followers report an unreachable master themselves.
                let _ = mirror.poll().await;
                sleep(POLL_INTERVAL_MIN).await;
                let _ = timeout(POLL_INTERVAL - POLL_INTERVAL_MIN, mirror.remote.poll_requested())
                    .await;
            }
        })
    }

    /// Kills the application through the ResourceManager, and waits until it has ended.
    pub async fn kill(&self, by: &str) -> Result<bool, Report> {
        let why = format!("ended by {by}");
        let deadline = Instant::now() + KILL_MAX;
        let ended = self.cluster.rm.kill_and_wait(self.id, &why, deadline).await;
        ended.map_err(|error| self.cluster.report(error))
    }
}

fn remote_state(report: &ApplicationReport) -> RemoteState {
    match report.state {
        ApplicationState::Running if report.rpc_port > 0 => {
            RemoteState::Running(format!("{}:{}", report.host, report.rpc_port))
        }
        state if state.is_over() => RemoteState::Finished(RemoteEnd {
            state: state_of(report),
            diagnostics: report.diagnostics.trim().to_owned(),
        }),
        _ => RemoteState::Waiting(report.diagnostics.trim().to_owned()),
    }
}
