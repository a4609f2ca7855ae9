//! What somebody sees who looks at the job.

use crate::{
    master::{agents::Agents, links::Links},
    talk::Viewed,
};
use std::collections::BTreeMap;
use ydl_core::{
    Job, JobView, RoleName, Time,
    view::{TaskState, TaskView},
};

/// The job as it is at this moment, which may be long after the last event.
pub(super) fn viewed(number: u64, job: &Job, agents: &Agents, links: &Links, now: Time) -> Viewed {
    let mut view = JobView { now, ..job.view() };
    if let Some(wait) = links.why() {
        view.why = format!("{}; {wait}", view.why);
    }
    let usage = agents.usage(job);
    for role in &view.roles {
        let of_role = view.tasks.iter().filter(|task| task.task.role == role.role);
        let launching = of_role.filter(|task| task.state == TaskState::Launching);
        let is_fetching = |task: &&TaskView| {
            let usage = usage.get(&task.task);
            usage.is_some_and(|usage| usage.fetching.is_some())
        };
        let (fetching, others): (Vec<_>, Vec<_>) = launching.partition(is_fetching);
        view.why = said_fetching(&view.why, &role.role, fetching.len(), others.len());
    }
    Viewed {
        number,
        view,
        usage,
        metrics: BTreeMap::new(),
    }
}

/// A sentence about tasks that wait for their agents, where some agents are there and fetch inputs.
fn said_fetching(why: &str, role: &RoleName, fetching: usize, others: usize) -> String {
    if fetching == 0 {
        return why.to_owned();
    }
    let said = format!("{} × `{role}` for its agent", fetching + others);
    let mut true_now = format!("{fetching} × `{role}` fetching its inputs");
    if others > 0 {
        true_now = format!("{true_now}, {others} × `{role}` for its agent");
    }
    why.replacen(&said, &true_now, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_whose_inputs_come_does_not_wait_for_its_agent() {
        let why = "0 of 3 tasks ready; waiting: 3 × `worker` for its agent";
        let role = RoleName::from("worker");
        let said = |fetching, others| said_fetching(why, &role, fetching, others);
        assert_eq!(said(0, 3), why);
        assert_eq!(
            said(3, 0),
            "0 of 3 tasks ready; waiting: 3 × `worker` fetching its inputs"
        );
        assert_eq!(
            said(1, 2),
            "0 of 3 tasks ready; waiting: 1 × `worker` fetching its inputs, 2 × `worker` for its agent"
        );
    }
}
