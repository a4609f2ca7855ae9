//! View of a job for clients.

use crate::master::{agents::Agents, links::RendezvousLinks};
use std::collections::BTreeMap;
use ydl_core::{
    Job, JobView, RoleName, TaskId, Time,
    view::{JobPhase, TaskState, TaskView},
};
use ydl_proto::messages::JobSnapshot;

/// Maximum number of awaited tasks to name.
const NAMED_MAX: usize = 4;

/// Returns the current view, possibly long after the last event.
pub(super) fn snapshot(
    number: u64,
    job: &Job,
    agents: &Agents,
    links: &RendezvousLinks,
    shortage: Option<&str>,
    now: Time,
) -> JobSnapshot {
    let mut view = JobView { now, ..job.view() };
    let running = view.tasks.iter();
    let running = running.filter(|task| task.state == TaskState::Running);
    let running: Vec<_> = running.map(|task| &task.task).collect();
    if let Some(wait) = describe_missing(&links.missing(), view.phase, &running) {
        view.reason = format!("{}; {wait}", view.reason);
    }
    if let Some(shortage) = shortage
        && view.roles.iter().any(|role| role.waiting > 0)
    {
        view.reason = format!("{}; {shortage}", view.reason);
    }
    let usage = agents.usage(job);
    for role in &view.roles {
        let of_role = view.tasks.iter().filter(|task| task.task.role == role.role);
        let launching = of_role.filter(|task| task.state == TaskState::Launching);
        let is_fetching = |task: &&TaskView| {
            let usage = usage.get(&task.task);
            usage.is_some_and(|usage| usage.download.is_some())
        };
        let (fetching, others): (Vec<_>, Vec<_>) = launching.partition(is_fetching);
        view.reason = describe_fetching(&view.reason, &role.role, fetching.len(), others.len());
    }
    JobSnapshot { number, view, usage, metrics: BTreeMap::new(), progress: 0.0, priority: None }
}

/// Describes the tasks that programs wait for. Applies only if a running program is not itself missing, and not
/// while the job ends.
fn describe_missing(missing: &[TaskId], phase: JobPhase, running: &[&TaskId]) -> Option<String> {
    let waits = |task: &&TaskId| !missing.contains(task);
    let ends = matches!(phase, JobPhase::Ending | JobPhase::Finished);
    if missing.is_empty() || ends || !running.iter().any(waits) {
        return None;
    }
    let named = missing.iter().take(NAMED_MAX).map(TaskId::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    Some(match missing.len().saturating_sub(NAMED_MAX) {
        0 => format!("programs wait for {named}"),
        more => format!("programs wait for {named} and {more} more"),
    })
}

/// Updates the text about tasks that wait for their agents, where some agents are fetching inputs.
fn describe_fetching(why: &str, role: &RoleName, fetching: usize, others: usize) -> String {
    if fetching == 0 {
        return why.to_owned();
    }
    let text = format!("{} × `{role}` for its agent", fetching + others);
    let mut true_now = format!("{fetching} × `{role}` fetching its inputs");
    if others > 0 {
        true_now = format!("{true_now}, {others} × `{role}` for its agent");
    }
    why.replacen(&text, &true_now, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tasks_are_named_only_if_a_running_program_waits() {
        let task = |index: u32| TaskId { role: RoleName::from("worker"), index };
        let all: Vec<_> = (0..7).map(task).collect();
        let text = |missing: &[TaskId], phase, running: &[TaskId]| {
            let running: Vec<_> = running.iter().collect();
            describe_missing(missing, phase, &running)
        };
        let waits = |missing: &[TaskId]| text(missing, JobPhase::Running, &all);
        let one = "programs wait for worker:1";
        assert_eq!(waits(&all[1..2]).as_deref(), Some(one));
        let many = "programs wait for worker:1, worker:2, worker:3, worker:4 and 2 more";
        assert_eq!(waits(&all[1..]).as_deref(), Some(many));
        // A round has just begun, or only missing programs run.
        assert_eq!(waits(&all), None);
        assert_eq!(text(&all[1..], JobPhase::Pending, &all[1..]), None);
        assert_eq!(text(&all[1..], JobPhase::Running, &[]), None);
        // No task joins any more.
        assert_eq!(text(&all[1..], JobPhase::Ending, &all), None);
        assert_eq!(waits(&[]), None);
    }

    #[test]
    fn a_task_that_fetches_inputs_does_not_wait_for_its_agent() {
        let why = "0 of 3 tasks ready; waiting: 3 × `worker` for its agent";
        let role = RoleName::from("worker");
        let text = |fetching, others| describe_fetching(why, &role, fetching, others);
        assert_eq!(text(0, 3), why);
        assert_eq!(text(3, 0), "0 of 3 tasks ready; waiting: 3 × `worker` fetching its inputs");
        assert_eq!(
            text(1, 2),
            "0 of 3 tasks ready; waiting: 1 × `worker` fetching its inputs, 2 × `worker` for its agent"
        );
    }
}
