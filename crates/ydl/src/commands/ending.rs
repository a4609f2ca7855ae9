//! How a job ended: as a code for the shell, and in words.

use crate::{
    jobs::Known,
    report::Exit,
    show::{self, Paint, clean},
    talk::Viewed,
};
use std::collections::BTreeMap;
use ydl_core::{Cause, Ending, Outcome, TaskId, spec::Memory};

/// What ends a task above its memory limit.
const SIGKILL: i32 = 9;

/// The code that tells a shell how the job ended.
pub fn exit(outcome: &Outcome) -> Exit {
    let signalled = |signal: i32| Exit::Program(128u8.saturating_add(signal.clamp(0, 64) as u8));
    match outcome {
        Outcome::Succeeded => Exit::Success,
        Outcome::Killed { .. } => Exit::JobKilled,
        Outcome::Failed(Cause::Task { ending, .. }) => match ending {
            // A shell sees the low eight bits, too.
            Ending::Exited { code } => Exit::Program((code & 0xff) as u8),
            Ending::Signalled { signal } => signalled(*signal),
            Ending::MemoryLimit { .. } => signalled(SIGKILL),
            Ending::Succeeded
            | Ending::NotStarted { .. }
            | Ending::Unready { .. }
            | Ending::AgentDied { .. }
            | Ending::Preempted
            | Ending::Lost
            | Ending::NodeFault { .. }
            | Ending::Silent { .. }
            | Ending::TooLate { .. }
            | Ending::Unsaved { .. } => Exit::JobFailed,
        },
        Outcome::Failed(Cause::NoContainers { .. } | Cause::RanTooLong { .. }) => Exit::JobFailed,
    }
}

/// Says how the job ended and where to look next.
pub fn tell(job: &Known, last: &Viewed, peaks: &BTreeMap<TaskId, u64>, paint: Paint) {
    let (id, spec) = (job.id(), &job.submitted.spec);
    let after = last.view.now - last.view.started;
    let Some(outcome) = &last.view.outcome else {
        show::tell(format!("{id} is over after {after}"));
        return;
    };
    let peak = peaks
        .iter()
        .max_by_key(|(_, mib)| **mib)
        .filter(|(_, mib)| **mib > 0);
    let peak = peak.map(|(task, mib)| format!("; peak memory {} ({task})", Memory(*mib)));
    let peak = peak.unwrap_or_default();
    match outcome {
        Outcome::Succeeded => {
            show::tell(format!(
                "{} after {after}{peak}",
                paint.green(&format!("{id} succeeded"))
            ));
        }
        Outcome::Killed { by } => {
            show::tell(format!(
                "{id} was killed by {} after {after}{peak}",
                clean(by)
            ));
        }
        Outcome::Failed(cause) => {
            let error = paint.red("error:");
            let cause_text = clean(&cause.to_string());
            show::tell(format!("{error} {id} failed after {after}: {cause_text}"));
            tell_cause(job, cause);
        }
    }
    show::tell(format!(
        "logs:    ydl logs {id}    ({})",
        job.dir.logs().display()
    ));
    // What a failed task has not written cannot be there.
    let part = match outcome {
        Outcome::Succeeded => "",
        Outcome::Killed { .. } | Outcome::Failed(_) => "    (as far as there was any)",
    };
    for output in &spec.outputs {
        show::tell(format!(
            "output:  {} → {}{part}",
            clean(&output.from),
            clean(&output.to)
        ));
    }
}

fn tell_cause(job: &Known, cause: &Cause) {
    let id = job.id();
    let Cause::Task {
        task,
        container,
        ending,
        stderr_tail,
        ..
    } = cause
    else {
        return;
    };
    let tail = stderr_tail.trim_end();
    if !tail.is_empty() {
        show::tell("\nthe last lines of its stderr:");
        for line in tail.lines() {
            show::tell(format!("  {}", clean(line)));
        }
    }
    let hint = match (ending, container) {
        (Ending::AgentDied { .. }, Some(container)) => format!(
            "its agent's last words may be in `{}`",
            job.dir.container(container).join("agent.log").display()
        ),
        (Ending::MemoryLimit { .. }, _) => {
            format!(
                "raise `memory` of role `{}`, or set its `memory_growth`",
                task.role
            )
        }
        (Ending::NotStarted { .. }, _) => {
            format!(
                "look at `run` of role `{}`, at `files` and at `environment`",
                task.role
            )
        }
        (Ending::Unready { .. }, _) => "look at `ports` and at what the role asks for".to_owned(),
        (Ending::Unsaved { .. }, _) => {
            "look at `outputs`; what the task wrote is still there".to_owned()
        }
        _ => format!("`ydl logs {id} {task}` shows all it printed"),
    };
    show::tell(format!("\nhint: {hint}\n"));
}
