//! Metrics reported by programs, in a table cell and aggregated by role.

use super::format::clean;
use std::collections::BTreeMap;
use ydl_proto::messages::{JobSnapshot, Metric};

/// Number of metrics shown for a task and for a role. `--json` prints all.
const TASK_METRICS_MAX: usize = 4;
const ROLE_METRICS_MAX: usize = 8;

/// Formats a task's metrics: `acc 0.91, loss 0.31 @ 120`.
pub(super) fn of_task(metrics: &BTreeMap<String, Metric>) -> String {
    let each = metrics.iter().take(TASK_METRICS_MAX).map(|(name, metric)| {
        let value = format_number(metric.value.0);
        match metric.step {
            Some(step) => format!("{} {value} @ {step}", clean(name)),
            None => format!("{} {value}", clean(name)),
        }
    });
    let mut text: Vec<_> = each.collect();
    if metrics.len() > TASK_METRICS_MAX {
        text.push("…".to_owned());
    }
    text.join(", ")
}

/// Formats a line for each role of which several tasks report metrics, with the mean and the range of each metric.
pub(crate) fn metrics_of_roles(snapshot: &JobSnapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for role in &snapshot.view.roles {
        let mut values_of: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let of_role = snapshot.metrics.iter();
        let mut tasks = 0;
        for (_, metrics) in of_role.filter(|(task, _)| task.role == role.role) {
            tasks += 1;
            for (name, metric) in metrics {
                values_of.entry(name).or_default().push(metric.value.0);
            }
        }
        if tasks < 2 {
            continue;
        }
        let texts = values_of.iter().take(ROLE_METRICS_MAX).map(|(name, values)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let text = format!("{} {}", clean(name), format_number(mean));
            // If one value is NaN, so is the mean, and a range would mislead.
            match mean.is_nan() || min == max {
                true => text,
                false => format!("{text} ({} to {})", format_number(min), format_number(max)),
            }
        });
        let texts: Vec<_> = texts.collect();
        lines.push(format!("{} × `{}`: {}", tasks, role.role, texts.join(", ")));
    }
    lines
}

/// Formats a number with four significant digits.
fn format_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..=6).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let decimals = usize::try_from(3 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::{JobView, Time, view::JobPhase, view::RoleView};
    use ydl_proto::messages::MetricValue;

    fn metrics(loss: f64) -> BTreeMap<String, Metric> {
        let metric = |value, step| Metric { value: MetricValue(value), step, at: 0 };
        BTreeMap::from([
            ("loss".to_owned(), metric(loss, Some(120))),
            ("acc".to_owned(), metric(0.5, None)),
        ])
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.312_345, "0.3123"),
            (-12.0, "-12"),
            (1_234_567.8, "1234568"),
            (1e-9, "1.000e-9"),
            (3e12, "3.000e12"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn metrics_are_aggregated_for_roles_with_several_reporting_tasks() {
        assert_eq!(of_task(&metrics(0.3)), "acc 0.5, loss 0.3 @ 120");
        let role = RoleView {
            role: "worker".into(),
            instances: 2,
            elastic: None,
            waiting: 0,
            preparing: 0,
            running: 2,
            succeeded: 0,
            failed: 0,
        };
        let mut snapshot = JobSnapshot {
            number: 1,
            view: JobView {
                name: "j".to_owned(),
                phase: JobPhase::Running,
                started: Time(0),
                now: Time(0),
                round: 1,
                reason: String::new(),
                outcome: None,
                roles: vec![role],
                tasks: Vec::new(),
            },
            usage: BTreeMap::new(),
            metrics: BTreeMap::from([("worker:0".parse().unwrap(), metrics(0.25))]),
            progress: 0.0,
            priority: None,
        };
        assert!(metrics_of_roles(&snapshot).is_empty());
        let second = ("worker:1".parse().unwrap(), metrics(0.75));
        snapshot.metrics.extend([second]);
        assert_eq!(metrics_of_roles(&snapshot), ["2 × `worker`: acc 0.5, loss 0.5 (0.25 to 0.75)"]);
    }
}
