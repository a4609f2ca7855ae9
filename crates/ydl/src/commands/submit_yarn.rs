//! Submits a job to a cluster and follows it.

use super::findings::{dry_run, print_findings};
use super::{
    follow::{Follower, InterruptSignals, RemoteOutput},
    log_tails::{LogSource, LogTails, StreamSelection},
    outcome::conclude,
    renderer::Renderer,
    submit::build_environment,
    wait_for_master::{WaitOutcome, wait_for_master},
};
use crate::{
    cli::{self, GlobalArgs},
    client::{
        cluster::ClusterClient,
        jobs::JobHandle,
        master_client::MasterClient,
        mirror::{CopySelection, Mirror},
        preflight,
        submit::{
            inputs,
            yarn::{CLEANUP_WAIT_MAX, SubmitFailure, YarnSubmission, check_staging, plan_staging},
        },
    },
    terminal,
};
use std::{path::Path, sync::Arc};
use tokio::time::timeout;
use ydl_core::JobSpec;
use ydl_os::report::{Exit, Report};
use ydl_pack as pack;

/// Checks, stages, submits and follows.
pub(crate) async fn run(
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
    // Plan the staging while the cluster is queried, unless the environment must be built first: that may take minutes, so
    // the job is checked before.
    let early = !args.dry_run && !pack::needs_build(&spec.environment);
    let planning = early.then(|| tokio::spawn(plan_staging(cluster.clone(), spec.clone())));
    // A ResourceManager reports its largest container only together with a new application id. An unused id is harmless.
    // This machine's configuration may differ from the cluster's, so it is not used for the check.
    let query = async {
        tokio::try_join!(
            preflight::gather(&cluster.rm, &cluster.config, &cluster.user, deadline),
            cluster.rm.new_application(deadline),
        )
    };
    let (mut cluster_info, new) = cluster.call(query).await?;
    cluster_info.largest = Some((&new.capability_max).into());
    let mut findings = preflight::check(&spec, &cluster_info);
    let is_secure = cluster.is_secure();
    let file_systems = &spec.cluster_options.file_systems;
    preflight::check_file_systems(file_systems, &cluster.config, is_secure, &mut findings);
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
    // Listen before anything is written: Ctrl-C must not leave a partly submitted job.
    let mut signals = InterruptSignals::listen()?;
    let mut job = YarnSubmission::new(cluster, new.id);
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
    let (id, dir) = (&accepted.submitted.id, accepted.layout.dir());
    *submitted_id = Some(id.clone());
    let submitted_line = serde_json::json!({ "job": { "id": id, "directory": dir } });
    let cleanup = job.start_cleanup();
    if args.detach {
        match global.json {
            true => terminal::print_json(&submitted_line)?,
            false => terminal::print(format!("{id}\n"))?,
        }
        let _ = timeout(CLEANUP_WAIT_MAX, cleanup).await;
        return Ok(Exit::Success);
    }
    let (handle, mirror) = Mirror::of_submitted(
        cluster,
        new.id,
        accepted.hdfs,
        accepted.layout,
        accepted.submitted,
        &accepted.submit_credentials.certificate,
        &accepted.submit_credentials.client_token,
    )?;
    let exit = follow(handle, mirror, global, signals, &submitted_line).await;
    // After a second interrupt, exit without waiting for the cleanup.
    if !matches!(exit, Ok(Exit::Interrupted)) {
        let _ = timeout(CLEANUP_WAIT_MAX, cleanup).await;
    }
    exit
}

/// Waits for the master, then follows the job to its end.
async fn follow(
    handle: JobHandle,
    mirror: Arc<Mirror>,
    global: GlobalArgs,
    mut signals: InterruptSignals,
    submitted_line: &serde_json::Value,
) -> Result<Exit, Report> {
    let job = Arc::new(handle);
    let mut renderer = Renderer::following(job.id(), global);
    let output_closed = renderer.object(submitted_line).is_err();
    if !global.json {
        let queue = job.submitted.spec.cluster_options.queue.as_deref();
        let queue = queue.unwrap_or("default");
        renderer.note(&format!("{} submitted to queue `{queue}`", job.id()));
    }
    let watching = mirror.watch();
    let outcome = wait_for_master(&job, &mirror, &mut renderer, &mut signals).await?;
    let address = match outcome {
        WaitOutcome::Running(address) => address,
        WaitOutcome::Finished => {
            // A short job may end before its master was seen.
            let wanted = CopySelection::default();
            for failure in mirror.copy_logs(&wanted, None).await {
                renderer.note(&format!("note: {failure}"));
            }
            String::new()
        }
        WaitOutcome::Interrupted => {
            renderer.close();
            terminal::message(format!(
                "{0} is still stopping; check its state with `ydl status {0}`",
                job.id()
            ));
            return Ok(Exit::Interrupted);
        }
    };
    let tails = LogTails::new(
        &job.dir,
        LogSource::Copy,
        StreamSelection::default(),
        renderer.prefix(global),
    );
    let master = Arc::new(MasterClient::at(&job.dir, address)?);
    let mut follower = Follower {
        output_closed,
        remote_output: Some(RemoteOutput::new(mirror.clone())),
        ..Follower::new(job.clone(), master, renderer, tails, signals)
    };
    let follow_end = follower.run().await;
    watching.abort();
    let follow_end = follow_end?;
    conclude(follow_end, &mut follower, global).await
}
