//! A job in MLflow's words: its parameters, its tags, and the names of its metrics.

use super::api::Row;
use crate::{
    agent::measure::Usage,
    talk::{Metric, Viewed},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use ydl_core::{JobSpec, Outcome, TaskId, spec::Mlflow};

/// The tag by which a later master finds the run again.
pub(super) const JOB_TAG: &str = "ydl.job";
/// Letters of a value that every version of MLflow takes.
const VALUE_MAX: usize = 500;
/// Tasks whose use is told; of more nobody looks at each.
const TASKS_MAX: usize = 128;

/// What the job is. What is in `env` is nobody's business but the programs'.
pub(super) fn params(spec: &JobSpec) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |key: String, value: String| {
        let value: String = value.chars().take(VALUE_MAX).collect();
        if !value.is_empty() {
            all.insert(key, value);
        }
    };
    set("name".to_owned(), spec.name.clone());
    set("framework".to_owned(), spec.framework.to_string());
    if let Some(queue) = &spec.on_cluster.queue {
        set("queue".to_owned(), queue.clone());
    }
    for role in &spec.roles {
        let mut of_role = |key: &str, value: String| set(format!("{}.{key}", role.name), value);
        of_role("instances", role.instances.to_string());
        of_role("memory_mib", role.resources.memory_mib.to_string());
        of_role("vcores", role.resources.vcores.to_string());
        of_role("gpus", role.resources.gpus.to_string());
        of_role("processes", role.processes.to_string());
        of_role("command", role.command.words().join(" "));
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

/// MLflow's word for how a job ended.
pub(super) fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "FINISHED",
        Outcome::Failed(_) => "FAILED",
        Outcome::Killed { .. } => "KILLED",
    }
}

/// What was told last of each metric.
pub(super) type Told = BTreeMap<String, (Option<u64>, u64)>;

/// What programs have reported since.
pub(super) fn reported(viewed: &Viewed, told: &mut Told) -> Vec<Row> {
    let mut rows = Vec::new();
    for (task, metrics) in &viewed.metrics {
        for (name, metric) in metrics {
            let key = key(task, name);
            let Metric { value, step, at } = metric;
            if told.insert(key.clone(), (*step, *at)) == Some((*step, *at)) {
                continue;
            }
            rows.push(Row {
                key,
                value: figure(value.0),
                timestamp: *at,
                step: step.unwrap_or_default(),
            });
        }
    }
    rows
}

/// What tasks use now.
pub(super) fn used(viewed: &Viewed, now_ms: u64) -> Vec<Row> {
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
        let Usage {
            memory_bytes,
            cpu_percent,
            gpus,
            ..
        } = usage;
        add("cpu_percent", f64::from(*cpu_percent));
        add("memory_mib", (*memory_bytes >> 20) as f64);
        for (at, gpu) in gpus.iter().enumerate() {
            add(&format!("gpu_{at}_percent"), f64::from(gpu.busy_percent));
            add(
                &format!("gpu_{at}_memory_mib"),
                (gpu.memory_bytes >> 20) as f64,
            );
        }
    }
    rows
}

/// As `worker/0/loss`: MLflow's page shows what stands before the last slash as groups. Its names have no colons.
fn key(task: &TaskId, name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./ ".contains(letter);
    let name = name.chars().map(|it| if fits(it) { it } else { '_' });
    let name: String = name.take(150).collect();
    format!("{}/{}/{name}", task.role, task.index)
}

/// A number, also where JSON has none.
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

    #[test]
    fn names_are_such_that_mlflow_takes_them() {
        let task: TaskId = "worker:3".parse().unwrap();
        assert_eq!(key(&task, "val loss"), "worker/3/val loss");
        assert_eq!(key(&task, "acc@5:é"), "worker/3/acc_5__");
        assert_eq!(figure(f64::NEG_INFINITY), json!("-Infinity"));
    }
}
