//! A job in MLflow's terms: parameters, tags and metric names.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use ydl_core::{JobSpec, Outcome, TaskId, spec::Mlflow};
use ydl_mlflow::api::Row;
use ydl_proto::{
    messages::{JobSnapshot, Metric},
    usage::Usage,
};

/// Tag with which a later master finds the run.
pub(super) const JOB_TAG: &str = "ydl.job";
/// Maximum length of a value that every version of MLflow accepts.
const VALUE_MAX: usize = 250;
/// Maximum length of a metric's name without its task: MLflow accepts 250 in total.
const NAME_MAX: usize = 100;
/// Maximum number of tasks with resource usage.
const TASKS_MAX: usize = 128;

/// Returns the parameters of the job, without `env`, which may hold secrets.
pub(super) fn params(spec: &JobSpec) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |key: String, value: String| {
        let value: String = value.chars().take(VALUE_MAX).collect();
        if !value.is_empty() {
            all.insert(key, value);
        }
    };
    // Programs log their own parameters into the same run, where a name has only one value.
    set("job.name".to_owned(), spec.name.clone());
    set("job.framework".to_owned(), spec.framework.to_string());
    if let Some(queue) = &spec.cluster_options.queue {
        set("job.queue".to_owned(), queue.clone());
    }
    for role in &spec.roles {
        let mut of_role = |key: &str, value: String| set(format!("{}.{key}", role.name), value);
        of_role("instances", role.instances.to_string());
        of_role("memory_mib", role.resources.memory_mib.to_string());
        of_role("vcores", role.resources.vcores.to_string());
        of_role("gpus", role.resources.gpus.to_string());
        of_role("processes", role.processes.to_string());
        of_role("command", role.command.argv().join(" "));
    }
    all
}

pub(super) fn tags(
    wanted: &Mlflow,
    id: &str,
    spec: &JobSpec,
    user: &str,
) -> BTreeMap<String, String> {
    let mut tags = wanted.tags.clone();
    let own = [
        (JOB_TAG, id),
        ("mlflow.runName", run_name(wanted, id)),
        ("mlflow.source.type", "JOB"),
        ("mlflow.source.name", &spec.name),
        ("mlflow.user", user),
    ];
    for (key, value) in own.into_iter().filter(|(_, value)| !value.is_empty()) {
        tags.insert(key.to_owned(), value.to_owned());
    }
    tags
}

pub(super) fn run_name<'a>(wanted: &'a Mlflow, id: &'a str) -> &'a str {
    wanted.run_name.as_deref().unwrap_or(id)
}

/// Maps the outcome to MLflow's status.
pub(super) fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "FINISHED",
        Outcome::Failed(_) => "FAILED",
        Outcome::Killed { .. } => "KILLED",
    }
}

/// Last sent step and time of each metric that still exists.
pub(super) type SentMetrics = BTreeMap<(TaskId, String), (Option<u64>, u64)>;

/// Returns metrics that changed since the last call.
pub(super) fn reported(viewed: &JobSnapshot, sent: &mut SentMetrics) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut known = SentMetrics::new();
    for (task, metrics) in &viewed.metrics {
        for (name, metric) in metrics {
            let Metric { value, step, at } = *metric;
            let of = (task.clone(), name.clone());
            if sent.get(&of) != Some(&(step, at)) {
                rows.push(Row {
                    key: key(task, name),
                    value: figure(value.0),
                    timestamp: counted(at),
                    step: counted(step.unwrap_or_default()),
                });
            }
            known.insert(of, (step, at));
        }
    }
    // Drop metrics that are no longer reported, so that the map does not grow.
    *sent = known;
    rows
}

/// Returns the current resource usage of tasks.
pub(super) fn used(viewed: &JobSnapshot, now_ms: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let step = (viewed.view.now - viewed.view.started).0 / 1000;
    for (task, usage) in viewed.usage.iter().take(TASKS_MAX) {
        let mut add = |name: &str, value: f64| {
            rows.push(Row {
                key: format!("system/{}", key(task, name)),
                value: figure(value),
                timestamp: now_ms,
                step,
            });
        };
        let Usage { memory_bytes, cpu_percent, gpus, .. } = usage;
        add("cpu_percent", f64::from(*cpu_percent));
        add("memory_mib", (*memory_bytes >> 20) as f64);
        for (at, gpu) in gpus.iter().enumerate() {
            add(&format!("gpu_{at}_percent"), f64::from(gpu.busy_percent));
            add(&format!("gpu_{at}_memory_mib"), (gpu.memory_bytes >> 20) as f64);
        }
    }
    rows
}

/// Returns a metric's name, such as `worker/0/loss`. MLflow's page groups names by the part before the last
/// slash. MLflow rejects colons and paths with empty, `.` or `..` parts, and the whole batch with them.
fn key(task: &TaskId, name: &str) -> String {
    let fits = |envelope: char| envelope.is_ascii_alphanumeric() || "-_./ ".contains(envelope);
    let name = name.chars().map(|it| if fits(it) { it } else { '_' });
    let name: String = name.take(NAME_MAX).collect();
    let parts = name.split('/').map(|part| match part {
        "" | "." | ".." => "_",
        part => part,
    });
    let parts: Vec<_> = parts.collect();
    format!("{}/{}/{}", task.role, task.index, parts.join("/"))
}

/// Clamps a number to MLflow's integer range.
fn counted(number: u64) -> u64 {
    number.min(i64::MAX as u64)
}

/// Converts a number to MLflow's JSON, including infinities and NaN.
fn figure(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("NaN"),
        value if value.is_infinite() && value > 0.0 => json!("Infinity"),
        value if value.is_infinite() => json!("-Infinity"),
        value => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::{JobView, Time, view::JobPhase};
    use ydl_proto::messages::MetricValue;

    #[test]
    fn names_are_converted_to_valid_mlflow_names() {
        let task: TaskId = "worker:3".parse().unwrap();
        assert_eq!(key(&task, "val loss"), "worker/3/val loss");
        assert_eq!(key(&task, "acc@5:é"), "worker/3/acc_5__");
        assert_eq!(key(&task, "a//b/./../"), "worker/3/a/_/b/_/_/_");
        assert_eq!(key(&task, "/"), "worker/3/_/_");
        assert_eq!(figure(f64::NEG_INFINITY), json!("-Infinity"));
    }

    #[test]
    fn metrics_are_sent_when_changed_and_forgotten_when_removed() {
        let task: TaskId = "worker:0".parse().unwrap();
        let mut sent = SentMetrics::new();
        let mut tell = |metrics: &[(&str, u64, u64)]| {
            let each = metrics.iter().map(|(name, step, at)| {
                let metric = Metric { value: MetricValue(1.0), step: Some(*step), at: *at };
                ((*name).to_owned(), metric)
            });
            let viewed = viewed(BTreeMap::from([(task.clone(), each.collect())]));
            let rows = reported(&viewed, &mut sent);
            let rows = rows.iter().map(|row| (row.key.clone(), row.step, row.timestamp));
            (rows.collect::<Vec<_>>(), sent.len())
        };
        let row = |name: &str, step, at| (format!("worker/0/{name}"), step, at);
        // Two names that are the same to MLflow are tracked separately.
        let both = [("acc@5", 1, 7), ("acc#5", 1, 8)];
        assert_eq!(tell(&both), (vec![row("acc_5", 1, 8), row("acc_5", 1, 7)], 2));
        assert_eq!(tell(&both), (vec![], 2));
        assert_eq!(tell(&[("acc@5", 2, 9)]), (vec![row("acc_5", 2, 9)], 1));
        let most = i64::MAX as u64;
        let wild = [("loss", u64::MAX, u64::MAX)];
        assert_eq!(tell(&wild), (vec![row("loss", most, most)], 1));
    }

    fn viewed(metrics: BTreeMap<TaskId, BTreeMap<String, Metric>>) -> JobSnapshot {
        JobSnapshot {
            number: 1,
            view: JobView {
                name: "j".to_owned(),
                phase: JobPhase::Running,
                started: Time(0),
                now: Time(0),
                round: 1,
                reason: String::new(),
                outcome: None,
                roles: Vec::new(),
                tasks: Vec::new(),
            },
            usage: BTreeMap::new(),
            metrics,
            progress: 0.0,
            priority: None,
        }
    }
}
