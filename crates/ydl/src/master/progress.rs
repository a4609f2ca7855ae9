//! Progress of a job: its finished tasks, and the metric `progress` that running programs report.

use serde::{Deserialize, Serialize};
use ydl_core::{
    JobSpec, TaskId,
    spec::Completion,
    view::{JobView, TaskState},
};

/// Name of the metric, from 0 to 1.
pub(super) const METRIC: &str = "progress";
/// Progress of a finished job.
const ALL: f64 = 1000.0;

/// Progress in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobProgress(u16);

impl JobProgress {
    /// Progress of a job that succeeded.
    pub(super) const DONE: JobProgress = JobProgress(ALL as u16);

    /// Returns the progress at a fraction from 0 to 1.
    pub(super) fn from_fraction(fraction: f32) -> JobProgress {
        JobProgress((f64::from(fraction).clamp(0.0, 1.0) * ALL) as u16)
    }

    /// Returns the progress from 0 to 1.
    pub(super) fn fraction(self) -> f32 {
        f32::from(self.0) / ALL as f32
    }

    /// Returns the progress in percent.
    pub(super) fn percent(self) -> u16 {
        self.0 / 10
    }

    /// Estimates the progress from a view and the reported values, sorted by task. Counts the roles that the job waits for: primary
    /// ones, or else all that must end.
    pub(super) fn estimate(
        spec: &JobSpec,
        view: &JobView,
        reported: &[(&TaskId, f64)],
    ) -> JobProgress {
        let has_primary = spec.roles.iter().any(|role| role.completion == Completion::Primary);
        let (mut done, mut all) = (0.0, 0.0);
        for (role, tasks) in spec.roles.iter().zip(&view.roles) {
            let is_awaited = match role.completion {
                Completion::Primary => true,
                Completion::All | Completion::Any => !has_primary,
                Completion::Service | Completion::Follows | Completion::Sidecar => false,
            };
            if !is_awaited {
                continue;
            }
            let running = view.tasks.iter().filter(|task| task.state == TaskState::Running);
            let running = running.filter(|task| task.task.role == role.name);
            let values = running.filter_map(|running| {
                let at = reported.binary_search_by(|(task, _)| (*task).cmp(&running.task)).ok()?;
                let value = reported.get(at)?.1.clamp(0.0, 1.0);
                value.is_finite().then_some(value)
            });
            let values: Vec<f64> = values.collect();
            let succeeded = f64::from(tasks.succeeded);
            if role.completion == Completion::Any {
                let best = values.iter().copied().fold(succeeded.min(1.0), f64::max);
                (done, all) = (done + best, all + 1.0);
                continue;
            }
            // Often only one task of a role reports; the others are as far.
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let instances = f64::from(tasks.instances);
            let succeeded = succeeded.min(instances);
            done += succeeded + (instances - succeeded) * mean;
            all += instances;
        }
        JobProgress(if all > 0.0 { (done / all * ALL) as u16 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::event_loop::tests::job_spec;
    use ydl_core::{Job, JobSpecBuilder, Time};

    fn estimate(spec: &JobSpec, states: &[TaskState], reported: &[(&str, f64)]) -> u16 {
        let (job, _) = Job::new(spec.clone(), Time(0));
        let mut view = job.view();
        for (task, state) in view.tasks.iter_mut().zip(states) {
            task.state = *state;
        }
        for role in &mut view.roles {
            let own = view.tasks.iter().filter(|task| task.task.role == role.role);
            role.succeeded = own.filter(|task| task.state == TaskState::Succeeded).count() as u32;
        }
        let tasks: Vec<(TaskId, f64)> =
            reported.iter().map(|(task, value)| (task.parse().unwrap(), *value)).collect();
        let reported: Vec<_> = tasks.iter().map(|(task, value)| (task, *value)).collect();
        JobProgress::estimate(spec, &view, &reported).percent()
    }

    #[test]
    fn finished_tasks_and_reported_values_count() {
        use TaskState::{Running, Succeeded};
        let spec = job_spec(4);
        assert_eq!(estimate(&spec, &[Running; 4], &[]), 0);
        assert_eq!(estimate(&spec, &[Succeeded, Running, Running, Running], &[]), 25);
        assert_eq!(estimate(&spec, &[Succeeded; 4], &[]), 100);
        // One of four reports for all.
        assert_eq!(estimate(&spec, &[Running; 4], &[("worker:0", 0.5)]), 50);
        let two = [("worker:0", 0.2), ("worker:1", 0.4)];
        assert_eq!(estimate(&spec, &[Running, Running, Succeeded, Succeeded], &two), 65);
        // The last value of a finished task does not count for the others.
        assert_eq!(
            estimate(&spec, &[Succeeded, Running, Running, Running], &[("worker:0", 1.0)]),
            25
        );
    }

    #[test]
    fn values_out_of_range_are_clamped() {
        let spec = job_spec(1);
        for (value, percent) in [(-1.0, 0), (7.0, 100), (f64::NAN, 0), (f64::INFINITY, 100)] {
            let estimated = estimate(&spec, &[TaskState::Running], &[("worker:0", value)]);
            assert_eq!(estimated, percent, "{value}");
        }
    }

    #[test]
    fn roles_that_the_job_does_not_wait_for_do_not_count() {
        use TaskState::{Running, Succeeded};
        let spec_of = |worker, server| {
            let mut draft = JobSpecBuilder::from(job_spec(2));
            let mut other = draft.roles[0].clone();
            other.name = "server".into();
            draft.roles.push(other);
            (draft.roles[0].completion, draft.roles[1].completion) = (worker, server);
            draft.build().unwrap()
        };
        let spec = spec_of(Completion::All, Completion::Service);
        assert_eq!(estimate(&spec, &[Succeeded, Running, Running, Running], &[]), 50);
        let spec = spec_of(Completion::All, Completion::Primary);
        assert_eq!(estimate(&spec, &[Succeeded, Succeeded, Running, Running], &[]), 0);
        let spec = spec_of(Completion::Any, Completion::Service);
        assert_eq!(estimate(&spec, &[Running; 4], &[("worker:1", 0.3)]), 30);
        assert_eq!(estimate(&spec, &[Running, Succeeded, Running, Running], &[]), 100);
    }
}
