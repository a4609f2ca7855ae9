//! `ydl logs`: prints the output of tasks.

use super::{
    aggregated_logs,
    follow::{FollowEnd, Follower, InterruptSignals, OnInterrupt, RemoteOutput},
    log_tails::{LogSource, LogTails, Prefix, Stream, StreamSelection, attempts},
    renderer::Renderer,
    wait_for_master::{WaitOutcome, wait_as_observer},
};
use crate::{
    cli::{self, GlobalArgs},
    client::{
        cluster::ClusterClient,
        jobs::{JobHandle, JobStatus},
        master_client::{MasterClient, block_on, settled_status},
        mirror::{CopySelection, Mirror},
        resolve::{ResolvedJob, resolve_job},
    },
    terminal,
};
use std::sync::Arc;
use yarn_native::types::ApplicationReport;
use ydl_core::TaskId;
use ydl_os::report::{Exit, Report};

/// Prints logs, and follows them if requested.
pub(crate) fn run(args: cli::LogsArgs, global: GlobalArgs) -> Result<Exit, Report> {
    block_on(async {
        let (job, mirror, mut select) = match resolve_target(&args, global).await? {
            LogTarget::Job(job, mirror, select) => (job, mirror, select),
            // Until the cluster has aggregated the logs, only the job's own files have them.
            LogTarget::ReportOnly { report, why, .. } if !report.state.is_over() => {
                let what = format!("cannot read the output of {}: {why}", report.id);
                return Err(Report::new(Exit::Unreachable, what));
            }
            LogTarget::ReportOnly { report, cluster, .. } => {
                return aggregated_logs::print(&cluster, &report, global).await;
            }
        };
        select.attempt = args.attempt;
        select.tail = args.tail;
        select.stream = match (args.stdout, args.stderr) {
            (true, _) => Some(Stream::Stdout),
            (_, true) => Some(Stream::Stderr),
            (false, false) => None,
        };
        print(args, global, *job, mirror, select).await
    })
}

async fn print(
    args: cli::LogsArgs,
    global: GlobalArgs,
    job: JobHandle,
    mirror: Option<Arc<Mirror>>,
    select: StreamSelection,
) -> Result<Exit, Report> {
    let mut renderer = Renderer::output_only(job.id(), global);
    // The lines of a single task get no prefix.
    let prefix = match renderer.prefix(global) {
        Prefix::Task(_) if select.index.is_some() => Prefix::Raw,
        prefix => prefix,
    };
    let mut status = settled_status(&job).await;
    if let (true, JobStatus::Starting, Some(mirror)) = (args.follow, &status, &mirror) {
        let watching = mirror.watch();
        let outcome =
            wait_as_observer(mirror, &mut renderer, &mut InterruptSignals::listen()?).await;
        watching.abort();
        if matches!(outcome, WaitOutcome::Interrupted) {
            return Ok(Exit::Interrupted);
        }
        status = settled_status(&job).await;
    }
    let source = if mirror.is_some() { LogSource::Copy } else { LogSource::Original };
    let mut tails = LogTails::new(&job.dir, source, select.clone(), prefix);
    if let Some(mirror) = &mirror {
        let wanted = CopySelection {
            last_only: !args.all_attempts,
            tail: select.tail,
            ..tails.copy_selection()
        };
        // Without a token for the master, only HDFS is read.
        let master = match &status {
            JobStatus::Running(place) => MasterClient::to(&job.dir, place).ok(),
            _ => None,
        };
        let master = master.map(|master| master.client());
        for failure in mirror.copy_logs(&wanted, master).await {
            terminal::message(format!("note: {failure}"));
        }
    }
    tails.scan(args.all_attempts);
    let live = matches!(status, JobStatus::Running(_));
    if let (true, JobStatus::Running(place)) = (args.follow, status) {
        let master = Arc::new(MasterClient::to(&job.dir, &place)?);
        let signals = InterruptSignals::listen()?;
        let mut follower = Follower {
            on_interrupt: OnInterrupt::Detach,
            remote_output: mirror.clone().map(RemoteOutput::new),
            ..Follower::new(Arc::new(job), master, renderer, tails, signals)
        };
        let _watching = mirror.map(|mirror| mirror.watch());
        return match follower.run().await? {
            FollowEnd::Finished(_)
            | FollowEnd::NoResult(_)
            | FollowEnd::OutputClosed
            | FollowEnd::Lost => Ok(Exit::Success),
            FollowEnd::Interrupted => Ok(Exit::Interrupted),
        };
    }
    let mut printed_any = false;
    let printed = tails.finish(&mut |id, lines| {
        printed_any = true;
        renderer.output(id, lines)
    });
    let printed = printed.and_then(|()| renderer.flush());
    if let (Err(_), Some(error)) = (&printed, renderer.error()) {
        return Err(error);
    }
    if !printed_any && printed.is_ok() {
        if let Some(mirror) = mirror.filter(|_| !live)
            && let Some(report) = mirror.last_report()
            && !mirror.has_attempts(&tails.copy_selection()).await
        {
            check_task(&job, &select)?;
            return aggregated_logs::print(&mirror.cluster, &report, global).await;
        }
        report_no_output(&job, &select, live)?;
    }
    Ok(Exit::Success)
}

/// Fails if the job has no such task.
fn check_task(job: &JobHandle, select: &StreamSelection) -> Result<(), Report> {
    let existing = attempts(&job.dir);
    if let (Some(role), Some(index)) = (&select.role, select.index) {
        // A scaled role may have more tasks than were submitted; each of them has a log directory.
        let mut roles = job.submitted.spec.roles.iter();
        let role = roles.find(|known| known.name.as_str() == role);
        if let Some(role) = role.filter(|role| index >= role.instances)
            && !existing.keys().any(|task| task.role == role.name && task.index == index)
        {
            let what = format!("`{}` has no task `{}:{index}`", job.id(), role.name);
            let hint = match role.instances {
                1 => format!("it has `{}:0`", role.name),
                n => format!("it has `{0}:0` to `{0}:{1}`", role.name, n - 1),
            };
            return Err(Report::bad_input(what).hint(hint));
        }
    }
    Ok(())
}

/// Reports that existing is no output, or that the task does not exist.
fn report_no_output(job: &JobHandle, select: &StreamSelection, live: bool) -> Result<(), Report> {
    check_task(job, select)?;
    if let Some(wanted) = select.attempt {
        let existing = attempts(&job.dir);
        let highest = existing.values().flatten().max();
        if highest.is_none_or(|highest| *highest < wanted) {
            let report = Report::bad_input(format!("no task has had an attempt {wanted}"));
            return Err(match highest {
                Some(highest) => report.hint(format!("the highest attempt is {highest}")),
                None => report,
            });
        }
    }
    terminal::message(if live { "no output yet" } else { "no output" });
    Ok(())
}

/// Target of the command.
enum LogTarget {
    /// A job, or some of its tasks.
    Job(Box<JobHandle>, Option<Arc<Mirror>>, StreamSelection),
    /// A job without accessible files; only the cluster's report exists.
    ReportOnly { report: Box<ApplicationReport>, cluster: Box<ClusterClient>, why: String },
}

/// Resolves the operands `[JOB] [ROLE[:INDEX]]`. A single operand may be either; a job is tried first.
async fn resolve_target(args: &cli::LogsArgs, global: GlobalArgs) -> Result<LogTarget, Report> {
    let (found, word) = match args.operands.as_slice() {
        [] => (resolve_job(None, global).await?, None),
        [word] if parse_part(word).1.is_some() => (resolve_job(None, global).await?, Some(word)),
        [word] => match resolve_job(Some(word), global).await {
            Ok(found) => (found, None),
            Err(unknown) => match resolve_job(None, global).await {
                Ok(ResolvedJob::Full(job, mirror)) if has_role(&job, word) => {
                    (ResolvedJob::Full(job, mirror), Some(word))
                }
                Ok(_) | Err(_) => return Err(unknown),
            },
        },
        [job, word, ..] => (resolve_job(Some(job), global).await?, Some(word)),
    };
    match found {
        ResolvedJob::Full(job, mirror) => {
            let select = match word {
                Some(word) => select_part(&job, word)?,
                None => StreamSelection::default(),
            };
            Ok(LogTarget::Job(job, mirror, select))
        }
        ResolvedJob::ReportOnly { report, cluster, why } => {
            Ok(LogTarget::ReportOnly { report, cluster, why })
        }
    }
}

/// Splits `worker:3` into role and index. `worker` has no index.
fn parse_part(word: &str) -> (String, Option<u32>) {
    match word.parse::<TaskId>() {
        Ok(task) => (task.role.to_string(), Some(task.index)),
        Err(_) => (word.to_owned(), None),
    }
}

fn has_role(job: &JobHandle, role: &str) -> bool {
    job.submitted.spec.roles.iter().any(|known| known.name.as_str() == role)
}

fn select_part(job: &JobHandle, word: &str) -> Result<StreamSelection, Report> {
    let (role, index) = parse_part(word);
    if !has_role(job, &role) {
        let roles = job.submitted.spec.roles.iter();
        let roles: Vec<_> = roles.map(|role| format!("`{}`", role.name)).collect();
        let what = format!("`{}` has no role `{role}`", job.id());
        return Err(Report::bad_input(what).hint(format!("it has {}", roles.join(", "))));
    }
    Ok(StreamSelection { role: Some(role), index, ..StreamSelection::default() })
}
