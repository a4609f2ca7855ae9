//! Metrics reported by programs, in a table cell and aggregated by role.

use super::format::clean;
use std::collections::BTreeMap;
use ydl_proto::messages::{JobSnapshot, Metric};

/// Metrics of a task in its cell, and of a role in its line; the rest is in `--json`.
const SHOWN: (usize, usize) = (4, 8);

/// A task's metrics: `acc 0.91, loss 0.31 @ 120`.
pub(super) fn of_task(metrics: &BTreeMap<String, Metric>) -> String {
    let each = metrics.iter().take(SHOWN.0).map(|(name, metric)| {
        let value = format_number(metric.value.0);
        match metric.step {
            Some(step) => format!("{} {value} @ {step}", clean(name)),
            None => format!("{} {value}", clean(name)),
        }
    });
    let mut text: Vec<_> = each.collect();
    if metrics.len() > SHOWN.0 {
        text.push("…".to_owned());
    }
    text.join(", ")
}

/// A line for each role with several tasks that report: the mean of each metric, and how far apart they are.
pub fn metrics_of_roles(snapshot: &JobSnapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for role in &snapshot.view.roles {
        let mut named: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let of_role = snapshot.metrics.iter();
        let mut tasks = 0;
        for (_, metrics) in of_role.filter(|(task, _)| task.role == role.role) {
            tasks += 1;
            for (name, metric) in metrics {
                named.entry(name).or_default().push(metric.value.0);
            }
        }
        if tasks < 2 {
            continue;
        }
        let shown = named.iter().take(SHOWN.1).map(|(name, values)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let text = format!("{} {}", clean(name), format_number(mean));
            // Where one is no number the mean is none, and says enough.
            match mean.is_nan() || least == most {
                true => text,
                false => format!("{text} ({} to {})", format_number(least), format_number(most)),
            }
        });
        let shown: Vec<_> = shown.collect();
        lines.push(format!("{} × `{}`: {}", tasks, role.role, shown.join(", ")));
    }
    lines
}

/// A number with four digits that mean something.
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
        };
        assert!(metrics_of_roles(&snapshot).is_empty());
        let second = ("worker:1".parse().unwrap(), metrics(0.75));
        snapshot.metrics.extend([second]);
        assert_eq!(metrics_of_roles(&snapshot), ["2 × `worker`: acc 0.5, loss 0.5 (0.25 to 0.75)"]);
    }
}
