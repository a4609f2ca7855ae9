//! Submits a job to a cluster and follows it.

use super::findings::{dry_run, print_findings};
use super::{
    follow::{Follower, InterruptSignals, RemoteOutput},
    log_tails::{LogSelection, LogTails},
    outcome::conclude,
    renderer::Renderer,
    submit::build_environment,
    wait_for_master::{WaitOutcome, wait_for_master},
};
use crate::{
    cli::{self, GlobalArgs},
    client::{
        applications,
        cluster::ClusterClient,
        jobs::JobHandle,
        master_client::MasterClient,
        mirror::{LogFilter, Mirror},
        preflight,
        stage::{self, JobFiles, Progress, StageRequest, StagingPlan},
        submit::{SubmitCredentials, inputs, submission, submit_credentials},
    },
    terminal::{self, counted_bytes},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use yarn_native::types::{ApplicationId, ApplicationState};
use ydl_core::JobSpec;
use ydl_os::{
    reason,
    report::{Exit, Report},
};
use ydl_pack as pack;
use ydl_proto::{
    files::{JobTarget, SubmittedJob},
    inline_files::INLINE_FILES,
};
use ydl_storage::{
    data::Listing,
    hdfs::{Hdfs, JobLayout},
};

/// The longest that everything may take to get to HDFS.
const UPLOAD_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// Maximum time for small calls to HDFS.
const CALL_MAX: Duration = Duration::from_secs(120);
/// Maximum time for the ResourceManager to accept.
const ACCEPT_MAX: Duration = Duration::from_secs(120);
/// Redraw interval of the progress bar.
const FRAME: Duration = Duration::from_millis(200);
/// Time limit of a cleanup, and how much longer to wait for it before leaving: a cleanup that is
/// interrupted leaves a lock behind, for which other clients wait.
const CLEANUP_MAX: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(35));
/// Maximum time for removing the files of a job that was not submitted.
const ROLLBACK_MAX: Duration = Duration::from_secs(10);

/// Checks, stages, submits and follows.
pub async fn run(
    args: cli::SubmitArgs,
    global: GlobalArgs,
    spec: JobSpec,
    from: &Path,
    cluster: &ClusterClient,
    submitted_id: &mut Option<String>,
) -> Result<Exit, Report> {
    if args.resources.is_some() {
        return Err(Report::bad_input("`--resources` is for a job on this machine")
            .hint("leave it out, or use `--cluster local`"));
    }
    let deadline = cluster.deadline();
    // What is only looked at need not wait for what the cluster says of the job. An environment that must be made first
    // may take minutes; check the cluster first.
    let early = !args.dry_run && !pack::needs_build(&spec.environment);
    let planning = early.then(|| tokio::spawn(plan_staging(cluster.clone(), spec.clone())));
    // Only with an id does a ResourceManager tell the largest container it gives. An id that is not used is seen by
    // harmless; a rejection based on this machine's configuration could be wrong.
    let asked = async {
        tokio::try_join!(
            preflight::gather(&cluster.rm, &cluster.config, &cluster.user, deadline),
            cluster.rm.new_application(deadline),
        )
    };
    let (mut cluster_info, new) = cluster.call(asked).await?;
    cluster_info.largest = Some((&new.capability_max).into());
    let findings = preflight::check(&spec, &cluster_info);
    if args.dry_run {
        inputs::list_for_cluster(&spec, cluster).await?;
        if findings.refusals.is_empty() {
            check_staging(&spec, cluster).await?;
        }
        return dry_run(&spec, &findings, global);
    }
    if let Some(exit) = print_findings(&findings) {
        return Ok(exit);
    }
    let (spec, planning) = match planning {
        Some(planning) => (spec, planning),
        None => {
            let spec = build_environment(spec)?;
            let planning = tokio::spawn(plan_staging(cluster.clone(), spec.clone()));
            (spec, planning)
        }
    };
    // Before anything is touched: Ctrl-C must not leave half a job.
    let mut signals = InterruptSignals::listen()?;
    let mut job = Submission { cluster, id: new.id, place: None, cleanup_is_due: false };
    let hosts = cluster_info.nodes.iter().map(|node| node.host.clone()).collect();
    let submitted = tokio::select! {
        submitted = job.submit(spec, from, &hosts, planning) => submitted.map_err(SubmitFailure::Failed),
        by = signals.next() => Err(SubmitFailure::Interrupted(by)),
    };
    let accepted = match submitted {
        Ok(accepted) => accepted,
        Err(failure) => {
            let was_submitted = job.roll_back().await;
            return Err(failure.report(new.id, was_submitted));
        }
    };
    let (id, dir) = (&accepted.submitted.id, accepted.place.dir());
    *submitted_id = Some(id.clone());
    let about = serde_json::json!({ "job": { "id": id, "directory": dir } });
    let due = job.cleanup_is_due;
    let cleaning = tokio::spawn(clean_up(cluster.clone(), job.place.filter(|_| due)));
    if args.detach {
        match global.json {
            true => terminal::print_json(&about)?,
            false => terminal::print(format!("{id}\n"))?,
        }
        let _ = timeout(CLEANUP_MAX.1, cleaning).await;
        return Ok(Exit::Success);
    }
    let (handle, mirror) = Mirror::of_submitted(
        cluster,
        job.id,
        accepted.hdfs,
        accepted.place,
        accepted.submitted,
        &accepted.submit_credentials.certificate,
        &accepted.submit_credentials.client_token,
    )?;
    let exit = follow(handle, mirror, global, signals, &about).await;
    // After a second interrupt nothing is waited for.
    if !matches!(exit, Ok(Exit::Interrupted)) {
        let _ = timeout(CLEANUP_MAX.1, cleaning).await;
    }
    exit
}

/// Removes unused files once a day. Failures are ignored: the next submission tries again.
async fn clean_up(cluster: ClusterClient, place: Option<stage::StagingDir>) {
    let Some(place) = place else {
        return;
    };
    let Ok(all) = applications::list(&cluster).await else {
        return;
    };
    let live = all.iter().filter(|report| !report.state.is_over());
    let live: BTreeSet<_> = live.map(|report| report.id.to_string()).collect();
    let is_running = |id: &str| live.contains(id);
    let deadline = Instant::now() + CLEANUP_MAX.0;
    // The result does not concern the submission.
    let _ = stage::clean(&place, stage::AGE, is_running, deadline).await;
}

/// Reason why a job was not submitted.
enum SubmitFailure {
    /// It could not.
    Failed(Report),
    /// The user interrupted it.
    Interrupted(&'static str),
}

impl SubmitFailure {
    fn report(self, id: ApplicationId, was_submitted: bool) -> Report {
        let by = match self {
            SubmitFailure::Failed(report) => return report,
            SubmitFailure::Interrupted(by) => by,
        };
        let what = match was_submitted {
            true => format!("{by}: {id} was submitted a moment ago, and is ended"),
            false => format!("{by}: nothing was submitted"),
        };
        Report::new(Exit::Interrupted, what)
    }
}

/// Returns whether the job's files could be put where they would be; nothing of it stays.
async fn check_staging(spec: &JobSpec, cluster: &ClusterClient) -> Result<(), Report> {
    let ClusterClient { config, identity, .. } = cluster;
    let deadline = Instant::now() + CALL_MAX;
    let staging = spec.cluster_options.staging.as_deref();
    let place = stage::StagingDir::find(config, identity, staging, deadline).await?;
    place.check_creatable(deadline).await
}

/// A job that the cluster has taken.
struct AcceptedJob {
    submitted: SubmittedJob,
    submit_credentials: SubmitCredentials,
    hdfs: Hdfs,
    place: JobLayout,
}

/// A job on its way to the cluster.
struct Submission<'a> {
    cluster: &'a ClusterClient,
    id: ApplicationId,
    /// Staging directory, once it may have files of the job.
    place: Option<stage::StagingDir>,
    /// True if the last cleanup was more than a day ago.
    cleanup_is_due: bool,
}

impl Submission<'_> {
    /// Stages and submits. Dropped half-way, it has submitted nothing, unless it was about to return.
    async fn submit(
        &mut self,
        spec: JobSpec,
        from: &Path,
        hosts: &BTreeSet<String>,
        planning: JoinHandle<Result<(StagingPlan, Listing), Report>>,
    ) -> Result<AcceptedJob, Report> {
        let ClusterClient { config, rm, .. } = self.cluster;
        let plan = planning.await;
        let (plan, listing) =
            plan.map_err(|_| Report::internal("the job's files could not be looked through"))??;
        let place = plan.staging_dir.clone();
        self.place = Some(place.clone());
        self.cleanup_is_due = plan.cleanup_is_due;
        let id = self.id.to_string();
        let job = place.job(&id);
        let spec = inputs::resolve_outputs(spec, self.cluster, &id, &place.home).await?;
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
        let writing = stage::write_job(&place, files, Instant::now() + CALL_MAX);
        let (cluster, yarn_id) = (self.cluster, self.id);
        let user = (!cluster.is_secure()).then_some(cluster.user.as_str());
        let ask = |own, submit_credentials: &SubmitCredentials| {
            submission(yarn_id, &submitted.spec, &staged, own, submit_credentials, user)
        };
        let submitting = |asked| async move {
            let deadline = Instant::now() + ACCEPT_MAX;
            let report = rm.submit_and_wait(&asked, deadline).await;
            report.map_err(|error| cluster.report(error))
        };
        let (report, notes) = match inline_files {
            // Its containers have what they need, and clients do not read sooner than this is over.
            Some(inline_files) => {
                submit_credentials.credentials.set_secret(INLINE_FILES, inline_files);
                let asked = ask(&BTreeMap::new(), &submit_credentials)?;
                tokio::try_join!(submitting(asked), writing)?
            }
            None => {
                let notes = writing.await?;
                let own = stage::own_files(&place.hdfs, &job, Instant::now() + CALL_MAX).await?;
                (submitting(ask(&own, &submit_credentials)?).await?, notes)
            }
        };
        for note in notes {
            terminal::message(format!("note: {note}"));
        }
        if matches!(report.state, ApplicationState::Failed | ApplicationState::Killed) {
            let what = format!("the cluster does not take the job: {}", report.diagnostics.trim());
            return Err(Report::bad_input(what));
        }
        Ok(AcceptedJob { submitted, submit_credentials, hdfs: place.hdfs, place: job })
    }

    /// Rolls back the submission; a later cleanup removes the rest. Returns whether the cluster had the job already.
    async fn roll_back(&self) -> bool {
        let deadline = Instant::now() + ROLLBACK_MAX;
        let reached = self.cluster.rm.application(self.id, deadline).await;
        let was_submitted = reached.is_ok();
        if reached.is_ok_and(|report| !report.state.is_over()) {
            // It was interrupted in the moment between submitting and knowing it.
            let why = "ended by its submitter";
            let _ = self.cluster.rm.kill_and_wait(self.id, why, deadline).await;
        }
        if let Some(place) = &self.place {
            let dir = place.job(&self.id.to_string());
            let _ = place.hdfs.delete(dir.dir(), deadline).await;
            let _ = stage::remove_partial_uploads(place, &self.id.to_string(), deadline).await;
        }
        was_submitted
    }
}

/// Lists the files that the job needs and those already in HDFS.
async fn plan_staging(
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
    let place = stage::StagingDir::find(config, identity, staging, deadline).await?;
    let request = StageRequest {
        staging_dir: &place,
        config,
        identity,
        spec: &spec,
        binary: &binary,
        inputs: &inputs::local_files(&listing),
        progress: terminal::message,
    };
    Ok((stage::plan(request, deadline).await?, listing))
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
            done = &mut staging => break done,
            _ = frame.tick() => bar.draw(*progress.lock().unwrap_or_else(PoisonError::into_inner)),
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

/// Upload progress: the last line of a terminal, or a line now and then.
struct ProgressBar {
    on: bool,
    drawn: bool,
    last_message: Instant,
}

impl ProgressBar {
    const WIDTH: u64 = 30;
    const MESSAGE_INTERVAL: Duration = Duration::from_secs(10);

    fn new() -> ProgressBar {
        ProgressBar { on: io::stderr().is_terminal(), drawn: false, last_message: Instant::now() }
    }

    fn draw(&mut self, progress: Progress) {
        if progress.total == 0 {
            return;
        }
        let sent = progress.sent.min(progress.total);
        if !self.on {
            if self.last_message.elapsed() > ProgressBar::MESSAGE_INTERVAL {
                self.last_message = Instant::now();
                let (sent, total) = (counted_bytes(sent), counted_bytes(progress.total));
                terminal::message(format!("uploading: {sent} of {total}"));
            }
            return;
        }
        self.drawn = true;
        let full = (sent.saturating_mul(ProgressBar::WIDTH) / progress.total) as usize;
        let rest = ProgressBar::WIDTH as usize - full;
        let text = format!(
            "\r\x1b[Kuploading [{}{}] {} of {}",
            "#".repeat(full),
            " ".repeat(rest),
            counted_bytes(sent),
            counted_bytes(progress.total)
        );
        // A terminal that is gone needs no bar.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}

/// Waits for the master, then follows the job to its end.
async fn follow(
    handle: JobHandle,
    mirror: Arc<Mirror>,
    global: GlobalArgs,
    mut signals: InterruptSignals,
    about: &serde_json::Value,
) -> Result<Exit, Report> {
    let job = Arc::new(handle);
    let mut renderer = Renderer::following(job.id(), global);
    let output_closed = renderer.object(about).is_err();
    if !global.json {
        let queue = job.submitted.spec.cluster_options.queue.as_deref();
        let queue = queue.unwrap_or("default");
        renderer.note(&format!("{} submitted to queue `{queue}`", job.id()));
    }
    let watching = mirror.watch();
    let arrived = wait_for_master(&job, &mirror, &mut renderer, &mut signals).await?;
    let address = match arrived {
        WaitOutcome::Running(address) => address,
        WaitOutcome::Finished => {
            // A short job may be over before its master was seen.
            let wanted = LogFilter::default();
            for failure in mirror.copy_logs(&wanted, None).await {
                renderer.note(&format!("note: {failure}"));
            }
            String::new()
        }
        WaitOutcome::Interrupted => {
            renderer.close();
            terminal::message(format!(
                "{0} is still being stopped; `ydl status {0}` shows how far",
                job.id()
            ));
            return Ok(Exit::Interrupted);
        }
    };
    let tails = LogTails::new(&job.dir, LogSelection::default(), renderer.prefix(global));
    let master = Arc::new(MasterClient::at(&job.dir, address)?);
    let mut follower = Follower {
        output_closed,
        mirror: Some(RemoteOutput::new(mirror.clone())),
        ..Follower::new(job.clone(), master, renderer, tails, signals)
    };
    let follow_end = follower.run().await;
    watching.abort();
    let follow_end = follow_end?;
    conclude(follow_end, &mut follower, global).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reports_whether_the_job_was_submitted() {
        let id: ApplicationId = "application_1700000000000_0007".parse().expect("an id");
        let last_message = |was_submitted| {
            SubmitFailure::Interrupted("Ctrl-C").report(id, was_submitted).to_string()
        };
        assert_eq!(last_message(false), "error: Ctrl-C: nothing was submitted");
        let ended = "error: Ctrl-C: application_1700000000000_0007 was submitted a moment ago, and is ended";
        assert_eq!(last_message(true), ended);
    }
}
