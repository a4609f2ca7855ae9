//! Reports a job's outcome as an exit code and as text.

use super::follow::{FollowEnd, Follower};
use crate::{
    backend::yarn::image_hint,
    cli::GlobalArgs,
    client::{
        diagnose_failure,
        jobs::{JobHandle, RemoteEnd},
        master_client,
        output_locations::{OutputLocation, output_locations},
    },
    terminal::{self, Paint, clean},
};
use std::{collections::BTreeMap, io};
use ydl_core::{
    Cause, Ending, Outcome, RoleName, TaskId,
    spec::{Image, Memory},
};
use ydl_os::report::{Exit, Report};
use ydl_proto::messages::JobSnapshot;

/// Signal that the kernel sends to a task above its memory limit.
const SIGKILL: i32 = 9;
/// Number of lines shown of the cluster's diagnostics.
const DIAGNOSTICS_LINES_MAX: usize = 20;

/// Returns the exit status for an outcome.
pub(crate) fn exit(outcome: &Outcome) -> Exit {
    let signalled = |signal: i32| Exit::Program(128u8.saturating_add(signal.clamp(0, 64) as u8));
    match outcome {
        Outcome::Succeeded => Exit::Success,
        Outcome::Killed { .. } => Exit::JobKilled,
        Outcome::Failed(Cause::Task { ending, .. }) => match ending {
            // An exit code has eight bits.
            Ending::Exited { code } => Exit::Program((code & 0xff) as u8),
            Ending::Signalled { signal } => signalled(*signal),
            Ending::MemoryLimit { .. } => signalled(SIGKILL),
            Ending::Succeeded
            | Ending::PortTaken { .. }
            | Ending::Outdated
            | Ending::NotStarted { .. }
            | Ending::SetupFailed { .. }
            | Ending::AgentDied { .. }
            | Ending::Preempted
            | Ending::Lost
            | Ending::NodeFault { .. }
            | Ending::HeartbeatTimeout { .. }
            | Ending::TimedOut { .. }
            | Ending::UploadFailed { .. } => Exit::JobFailed,
        },
        Outcome::Failed(
            Cause::NoContainers { .. } | Cause::RunTimeout { .. } | Cause::Requested { .. },
        ) => Exit::JobFailed,
    }
}

/// Prints the end of a followed job and returns the exit status.
pub(crate) async fn conclude(
    follow_end: FollowEnd,
    follower: &mut Follower,
    global: GlobalArgs,
) -> Result<Exit, Report> {
    let job = follower.job.clone();
    let paint = Paint::of(global.use_color(), &io::stderr());
    match follow_end {
        FollowEnd::Finished(last) => {
            master_client::wait_for_master_exit(&job).await;
            if global.json {
                let result = serde_json::json!({ "result": last.view });
                // Stdout may be closed; the exit code still tells the outcome.
                let _ = follower.renderer.object(&result);
            } else {
                let mirror =
                    follower.remote_output.as_ref().map(|remote_output| &*remote_output.mirror);
                let outputs = output_locations(&job, mirror, Some(&last.view)).await;
                print_outcome(&job, &last, &follower.peaks, &outputs, paint);
                print_usage(follower);
            }
            Ok(last.view.outcome.as_ref().map_or(Exit::Internal, exit))
        }
        FollowEnd::NoResult(ended) => {
            if global.json {
                let result = serde_json::json!({ "ended": { "state": ended.state, "diagnostics": ended.diagnostics } });
                let _ = follower.renderer.object(&result);
            }
            Ok(print_remote_end(&job, &ended, paint))
        }
        FollowEnd::Lost => {
            let what = format!("the master of `{}` died", job.id());
            let hint = format!("see its log in `{}`", job.dir.master_log().display());
            Err(Report::new(Exit::Unreachable, what).hint(hint))
        }
        FollowEnd::Interrupted => {
            terminal::message(format!(
                "{0} is still stopping; check its state with `ydl status {0}`",
                job.id()
            ));
            Ok(Exit::Interrupted)
        }
        FollowEnd::OutputClosed => Ok(Exit::Success),
    }
}

/// Prints the end of a job that left no result, from the cluster's diagnostics.
fn print_remote_end(job: &JobHandle, ended: &RemoteEnd, paint: Paint) -> Exit {
    let id = job.id();
    let hint = format!("`ydl logs {id}` shows the logs of its containers");
    let (why, hint) = match diagnose_failure::diagnose(&ended.diagnostics) {
        Some(found) => (clean(&found.what), format!("{}; {hint}", found.hint)),
        None => {
            let why = ended.diagnostics.lines().map(str::trim);
            let why = why.filter(|line| !line.is_empty());
            let why: Vec<_> = why.map(clean).take(DIAGNOSTICS_LINES_MAX).collect();
            (why.join("\n  "), hint)
        }
    };
    match ended.state {
        "killed" => terminal::message(format!("{id} was killed: {why}")),
        state => terminal::message(format!(
            "{} {id} {state} and left no result: {why}",
            paint.red("error:"),
        )),
    }
    terminal::message(format!("\nhint: {hint}\n"));
    match ended.state {
        "killed" => Exit::JobKilled,
        _ => Exit::JobFailed,
    }
}

/// Prints the resource usage of the job.
fn print_usage(follower: &Follower) {
    let report = follower
        .remote_output
        .as_ref()
        .and_then(|remote_output| remote_output.mirror.last_report());
    let Some(usage) = report.and_then(|report| report.usage) else {
        return;
    };
    // The unit fits the amount.
    let (seconds, unit) = match usage.vcore_seconds {
        ..120 => (1.0, "seconds"),
        120..7200 => (60.0, "minutes"),
        _ => (3600.0, "hours"),
    };
    terminal::message(format!(
        "used:    {:.1} GiB·{unit}, {:.1} vcore·{unit}",
        usage.memory_mib_seconds as f64 / 1024.0 / seconds,
        usage.vcore_seconds as f64 / seconds
    ));
}

/// Prints the outcome of a job, and the commands that show more.
fn print_outcome(
    job: &JobHandle,
    last: &JobSnapshot,
    peaks: &BTreeMap<TaskId, u64>,
    outputs: &[OutputLocation],
    paint: Paint,
) {
    let id = job.id();
    let after = last.view.now - last.view.started;
    let Some(outcome) = &last.view.outcome else {
        terminal::message(format!("{id} ended after {after}"));
        return;
    };
    let peak = peaks.iter().max_by_key(|(_, mib)| **mib).filter(|(_, mib)| **mib > 0);
    let peak = peak.map(|(task, mib)| format!("; peak memory {} ({task})", Memory(*mib)));
    let peak = peak.unwrap_or_default();
    match outcome {
        Outcome::Succeeded => {
            terminal::message(format!(
                "{} after {after}{peak}",
                paint.green(&format!("{id} succeeded"))
            ));
        }
        Outcome::Killed { by } => {
            terminal::message(format!("{id} was killed by {} after {after}{peak}", clean(by)));
        }
        Outcome::Failed(cause) => {
            let error = paint.red("error:");
            let cause_text = clean(&cause.to_string());
            terminal::message(format!("{error} {id} failed after {after}: {cause_text}"));
            print_cause(job, cause);
        }
    }
    terminal::message(format!("logs:    ydl logs {id}    ({})", job.logs()));
    // A failed task may have written nothing.
    let condition = match outcome {
        Outcome::Succeeded => "",
        Outcome::Killed { .. } | Outcome::Failed(_) => "    (if the tasks wrote any)",
    };
    for output in outputs {
        terminal::message(format!("output:  {}{condition}", output.line));
    }
    for warning in outputs.iter().filter_map(|output| output.warning.as_ref()) {
        terminal::message(format!("warning: {warning}"));
    }
}

fn print_cause(job: &JobHandle, cause: &Cause) {
    let id = job.id();
    let Cause::Task { task, container, ending, stderr_tail, .. } = cause else {
        return;
    };
    let tail = stderr_tail.trim_end();
    if !tail.is_empty() {
        terminal::message("\nthe last lines of its stderr:");
        for line in tail.lines() {
            terminal::message(format!("  {}", clean(line)));
        }
    }
    let hint = match (ending, container) {
        (Ending::AgentDied { .. }, Some(container)) if job.remote.is_none() => format!(
            "see the agent's log in `{}`",
            job.dir.container(container).join("agent.log").display()
        ),
        (Ending::MemoryLimit { limit_mib, .. }, _) => {
            let more = match is_virtual(job, &task.role, *limit_mib) {
                true => {
                    "; the limit applies to virtual memory, and administrators set it with `yarn.nodemanager.vmem-pmem-ratio` and `yarn.nodemanager.vmem-check-enabled`"
                }
                false => "",
            };
            format!("raise `memory` of role `{}`, or set its `memory_growth`{more}", task.role)
        }
        (Ending::NotStarted { .. }, _) => {
            format!("check `run` of role `{}`, `files` and `environment`", task.role)
        }
        (Ending::SetupFailed { reason: why }, _)
            if why.contains("was changed after it was listed") =>
        {
            "submit the job again; inputs should not change while it runs".to_owned()
        }
        (Ending::SetupFailed { reason: why }, _) if why.contains("input") => {
            "check `inputs`, `disk` and `timeouts.fetch`".to_owned()
        }
        (Ending::SetupFailed { .. }, _) => "check `ports` and the resources of the role".to_owned(),
        (Ending::NodeFault { reason: why }, _) => match job.submitted.spec.image_of(&task.role) {
            Some(image) => image_hint(why).map_or_else(|| image_node_hint(image), str::to_owned),
            None => format!("see its output with `ydl logs {id} {task}`"),
        },
        // A cluster removes a container's directory with the container.
        (Ending::UploadFailed { .. }, _) if job.remote.is_some() => {
            "check `outputs`; with `every:`, finished files are uploaded while the program still runs".to_owned()
        }
        (Ending::UploadFailed { .. }, Some(container)) => format!(
            "check `outputs`; what the task wrote is in `{}`",
            job.dir.container(container).display()
        ),
        (Ending::UploadFailed { .. }, None) => "check `outputs`".to_owned(),
        (Ending::Exited { .. }, _) => {
            let (spec, from) = (&job.submitted.spec, &job.submitted.from);
            let in_place = job.remote.is_none() && spec.local.directory.is_some();
            let missing = diagnose_failure::missing_file_hint(tail, spec, from, in_place);
            let logs = format!("see its output with `ydl logs {id} {task}`");
            missing.map_or_else(|| logs.clone(), |missing| format!("{}; {logs}", clean(&missing)))
        }
        _ => format!("see its output with `ydl logs {id} {task}`"),
    };
    terminal::message(format!("\nhint: {hint}\n"));
}

/// Names the node configuration that an image needs. Nodes without it usually report no reason.
fn image_node_hint(image: &Image) -> String {
    let runtime = image.runtime;
    format!(
        "ask an administrator whether `{runtime}` is in the nodes' `yarn.nodemanager.runtime.linux.allowed-runtimes` \
         and whether the nodes can pull the image; the NodeManagers' logs have the details"
    )
}

/// Returns whether the exceeded limit was one of virtual memory, which is larger than the container. False for roles
/// with `memory_growth`, whose container size is unknown.
fn is_virtual(job: &JobHandle, role: &RoleName, limit_mib: u64) -> bool {
    let mut roles = job.submitted.spec.roles.iter();
    let spec = roles.find(|spec| spec.name == *role);
    spec.is_some_and(|spec| {
        let is_fixed = spec.memory_growth.is_none();
        job.remote.is_some()
            && is_fixed
            && limit_mib > spec.resources.memory_mib.saturating_mul(3) / 2
    })
}
