//! Submission to a cluster: plans and uploads files, writes the job's directory, and submits the application.

use super::{
    credentials::{SubmitCredentials, submit_credentials},
    inputs,
    submission::submission,
};
use crate::{
    client::{
        applications,
        cluster::ClusterClient,
        stage::{self, JobFiles, Progress, StageRequest, StagingDir, StagingPlan},
    },
    terminal::{self, ProgressBar, counted_bytes},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use yarn_native::types::{ApplicationId, ApplicationState};
use ydl_core::JobSpec;
use ydl_os::{
    reason,
    report::{Exit, Report},
};
use ydl_proto::{
    files::{JobTarget, SubmittedJob},
    inline_files::INLINE_FILES,
};
use ydl_storage::{
    data::Listing,
    hdfs::{Hdfs, JobLayout},
};

/// Maximum time for all uploads.
const UPLOAD_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// Maximum time for small calls to HDFS.
const CALL_MAX: Duration = Duration::from_secs(120);
/// Maximum time for the ResourceManager to accept.
const ACCEPT_MAX: Duration = Duration::from_secs(120);
/// Redraw interval of the progress bar.
const FRAME: Duration = Duration::from_millis(200);
/// Time limit of a cleanup.
const CLEANUP_MAX: Duration = Duration::from_secs(20);
/// Maximum wait for a cleanup before the client exits.
pub(crate) const CLEANUP_WAIT_MAX: Duration = Duration::from_secs(35);
/// Maximum time for removing the files of a job that was not submitted.
const ROLLBACK_MAX: Duration = Duration::from_secs(10);

/// Reason why a job was not submitted.
#[derive(Debug)]
pub(crate) enum SubmitFailure {
    /// The submission failed.
    Failed(Report),
    /// The user interrupted it.
    Interrupted(&'static str),
}

impl SubmitFailure {
    /// Converts the failure to a report.
    pub(crate) fn report(self, id: ApplicationId, was_submitted: bool) -> Report {
        let by = match self {
            SubmitFailure::Failed(report) => return report,
            SubmitFailure::Interrupted(by) => by,
        };
        let what = match was_submitted {
            true => format!("{by}: {id} was already submitted and is being stopped"),
            false => format!("{by}: nothing was submitted"),
        };
        Report::new(Exit::Interrupted, what)
    }
}

/// Lists the files that the job needs and those already in HDFS.
pub(crate) async fn plan_staging(
    cluster: ClusterClient,
    spec: JobSpec,
) -> Result<(StagingPlan, Listing), Report> {
    let listing = inputs::list_for_cluster(&spec, &cluster).await?;
    let ClusterClient { config, identity, .. } = &cluster;
    let deadline = Instant::now() + CALL_MAX;
    let binary = std::env::current_exe().map_err(|error| {
        Report::internal(format!("cannot find the path of this program: {}", reason(&error)))
    })?;
    let staging = spec.cluster_options.staging.as_deref();
    let staging_dir = StagingDir::find(config, identity, staging, deadline).await?;
    let request = StageRequest {
        staging_dir: &staging_dir,
        config,
        identity,
        spec: &spec,
        binary: &binary,
        inputs: &inputs::local_files(&listing),
        progress: terminal::message,
    };
    Ok((stage::plan(request, deadline).await?, listing))
}

/// Checks that the job's files can be uploaded, without leaving anything behind.
pub(crate) async fn check_staging(spec: &JobSpec, cluster: &ClusterClient) -> Result<(), Report> {
    let ClusterClient { config, identity, .. } = cluster;
    let deadline = Instant::now() + CALL_MAX;
    let staging = spec.cluster_options.staging.as_deref();
    let staging_dir = StagingDir::find(config, identity, staging, deadline).await?;
    staging_dir.check_creatable(deadline).await
}

/// A job that the cluster has accepted.
#[derive(Debug)]
pub(crate) struct AcceptedJob {
    pub submitted: SubmittedJob,
    pub submit_credentials: SubmitCredentials,
    pub hdfs: Hdfs,
    pub layout: JobLayout,
}

/// Submission of one job to a cluster.
#[derive(Debug)]
pub(crate) struct YarnSubmission<'a> {
    cluster: &'a ClusterClient,
    id: ApplicationId,
    /// Staging directory, once it may have files of the job.
    staging_dir: Option<StagingDir>,
    /// True if the last cleanup was more than a day ago.
    cleanup_is_due: bool,
}

impl YarnSubmission<'_> {
    /// Creates a submission under an id that the ResourceManager has assigned.
    pub(crate) fn new(cluster: &ClusterClient, id: ApplicationId) -> YarnSubmission<'_> {
        YarnSubmission { cluster, id, staging_dir: None, cleanup_is_due: false }
    }

    /// Starts the removal of unused files if it is due. Its end should be waited for, at most [`CLEANUP_WAIT_MAX`]: an
    /// interrupted cleanup leaves a lock behind, for which other clients wait.
    pub(crate) fn start_cleanup(self) -> JoinHandle<()> {
        let due = self.cleanup_is_due;
        tokio::spawn(clean_up(self.cluster.clone(), self.staging_dir.filter(|_| due)))
    }

    /// Stages and submits the job. If the future is dropped, the job has usually not been submitted; [`Self::roll_back`]
    /// handles both cases.
    pub(crate) async fn submit(
        &mut self,
        spec: JobSpec,
        from: &Path,
        hosts: &BTreeSet<String>,
        planning: JoinHandle<Result<(StagingPlan, Listing), Report>>,
    ) -> Result<AcceptedJob, Report> {
        let ClusterClient { config, rm, .. } = self.cluster;
        let plan = planning.await;
        let (plan, listing) =
            plan.map_err(|_| Report::internal("planning the upload failed"))??;
        let staging_dir = plan.staging_dir.clone();
        self.staging_dir = Some(staging_dir.clone());
        self.cleanup_is_due = plan.cleanup_is_due;
        let id = self.id.to_string();
        let job = staging_dir.job(&id);
        let spec = inputs::resolve_outputs(spec, self.cluster, &id, &staging_dir.home).await?;
        let spec = inputs::prefer_data_hosts(spec, &listing, self.cluster, hosts).await;
        let (upload, mut submit_credentials) = tokio::try_join!(
            upload(plan, &id),
            submit_credentials(self.cluster, &spec, job.dir())
        )?;
        let staged = upload.staged;
        let listing = inputs::uploaded_listing(listing, upload.inputs)?;
        let submitted = SubmittedJob {
            id: id.clone(),
            at: terminal::now(),
            from: from.to_path_buf(),
            spec,
            target: JobTarget::Yarn(staged.clone()),
        };
        let files = JobFiles {
            submitted: &submitted,
            certificate: &submit_credentials.certificate,
            client_token: submit_credentials.client_token.as_str(),
            viewer_token: submit_credentials.viewer_token.as_str(),
            config,
            inputs: listing.as_deref(),
        };
        let inline_files = files.inline_files()?;
        let write = stage::write_job(&staging_dir, files, Instant::now() + CALL_MAX);
        let (cluster, yarn_id) = (self.cluster, self.id);
        let user = (!cluster.is_secure()).then_some(cluster.user.as_str());
        let context = |own, submit_credentials: &SubmitCredentials| {
            submission(yarn_id, &submitted.spec, &staged, own, submit_credentials, user)
        };
        let submit = |context| async move {
            let deadline = Instant::now() + ACCEPT_MAX;
            let report = rm.submit_and_wait(&context, deadline).await;
            report.map_err(|error| cluster.report(error))
        };
        let (report, notes) = match inline_files {
            // The containers get their files with the credentials, so the directory may be written concurrently.
            Some(inline_files) => {
                submit_credentials.credentials.set_secret(INLINE_FILES, inline_files);
                let context = context(&BTreeMap::new(), &submit_credentials)?;
                tokio::try_join!(submit(context), write)?
            }
            None => {
                let notes = write.await?;
                let own =
                    stage::own_files(&staging_dir.hdfs, &job, Instant::now() + CALL_MAX).await?;
                (submit(context(&own, &submit_credentials)?).await?, notes)
            }
        };
        for note in notes {
            terminal::message(format!("note: {note}"));
        }
        if matches!(report.state, ApplicationState::Failed | ApplicationState::Killed) {
            let what = format!("the cluster rejected the job: {}", report.diagnostics.trim());
            return Err(Report::bad_input(what));
        }
        Ok(AcceptedJob { submitted, submit_credentials, hdfs: staging_dir.hdfs, layout: job })
    }

    /// Rolls back the submission; a later cleanup removes what this cannot. Returns whether the cluster had the job already.
    pub(crate) async fn roll_back(&self) -> bool {
        let deadline = Instant::now() + ROLLBACK_MAX;
        let report = self.cluster.rm.application(self.id, deadline).await;
        let was_submitted = report.is_ok();
        if report.is_ok_and(|report| !report.state.is_over()) {
            // The interrupt came between the submission and its confirmation.
            let why = "ended by its submitter";
            let _ = self.cluster.rm.kill_and_wait(self.id, why, deadline).await;
        }
        if let Some(staging_dir) = &self.staging_dir {
            let dir = staging_dir.job(&self.id.to_string());
            let _ = staging_dir.hdfs.delete(dir.dir(), deadline).await;
            let _ =
                stage::remove_partial_uploads(staging_dir, &self.id.to_string(), deadline).await;
        }
        was_submitted
    }
}

/// Uploads missing files, with a progress bar on a terminal.
async fn upload(plan: StagingPlan, id: &str) -> Result<stage::Upload, Report> {
    let progress = Arc::new(Mutex::new(Progress::default()));
    let shared_progress = progress.clone();
    let sink =
        move |progress| *shared_progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    let began = Instant::now();
    let mut staging = std::pin::pin!(stage::stage(plan, id, sink, began + UPLOAD_MAX));
    let mut bar = ProgressBar::new();
    let mut frame = interval(FRAME);
    frame.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let upload = loop {
        tokio::select! {
            result = &mut staging => break result,
            _ = frame.tick() => {
                let Progress { sent, total } = *progress.lock().unwrap_or_else(PoisonError::into_inner);
                bar.draw(sent, total);
            },
        }
    };
    bar.clear();
    let upload = upload?;
    for note in &upload.notes {
        terminal::message(format!("note: {note}"));
    }
    terminal::message(match upload.sent.files {
        0 => "nothing to upload: all files are in HDFS already".to_owned(),
        _ => format!(
            "uploaded {} in {:.1}s",
            counted_bytes(upload.sent.bytes),
            began.elapsed().as_secs_f64()
        ),
    });
    Ok(upload)
}

/// Removes unused files once a day. Failures are ignored: the next submission tries again.
async fn clean_up(cluster: ClusterClient, staging_dir: Option<StagingDir>) {
    let Some(staging_dir) = staging_dir else {
        return;
    };
    let Ok(all) = applications::list(&cluster).await else {
        return;
    };
    let live = all.iter().filter(|report| !report.state.is_over());
    let live: BTreeSet<_> = live.map(|report| report.id.to_string()).collect();
    let is_running = |id: &str| live.contains(id);
    let deadline = Instant::now() + CLEANUP_MAX;
    // The result does not concern the submission.
    let _ = stage::clean(&staging_dir, stage::AGE, is_running, deadline).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reports_whether_the_job_was_submitted() {
        let id: ApplicationId = "application_1700000000000_0007".parse().expect("an id");
        let message = |was_submitted| {
            SubmitFailure::Interrupted("Ctrl-C").report(id, was_submitted).to_string()
        };
        assert_eq!(message(false), "error: Ctrl-C: nothing was submitted");
        let submitted = "error: Ctrl-C: application_1700000000000_0007 was already submitted and is being stopped";
        assert_eq!(message(true), submitted);
    }
}
