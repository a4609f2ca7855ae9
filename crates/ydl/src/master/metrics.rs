//! Metrics reported by programs: the latest value of each metric of each task.
//!
//! They are kept in memory only. Reporters repeat all metrics periodically, so a new master catches up. The
//! result contains the last values.

use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use ydl_core::TaskId;
use ydl_net::request::Reply;
use ydl_proto::messages::{METRIC_NAME_BYTES_MAX, METRICS_MAX, Metric, MetricsReport};

/// Maximum number of metrics of all tasks.
const ALL_MAX: usize = 100_000;
/// Rate limit of a task: each of its processes sends reports.
const RATE_LIMIT: (u32, Duration) = (128, Duration::from_secs(1));

/// Age after which a metric may be dropped for a new one. Reporters repeat everything several times in this
/// time, so an older metric belongs to a process that has exited.
const STALE_AFTER: Duration = Duration::from_secs(180);
/// Time that metrics of a finished attempt stay available to trackers that poll.
const RETENTION: Duration = Duration::from_secs(30);
/// Maximum number of names in an error.
const NAMES_SHOWN_MAX: usize = 8;

/// Metrics by task and name.
pub(super) type Latest = BTreeMap<TaskId, BTreeMap<String, Metric>>;

#[derive(Debug, Default)]
pub(super) struct Metrics {
    tasks: BTreeMap<TaskId, TaskMetrics>,
    count: usize,
}

#[derive(Debug)]
struct TaskMetrics {
    latest: BTreeMap<String, StoredMetric>,
    /// Start of the rate limit's current period.
    since: Instant,
    reports: u32,
}

#[derive(Debug)]
struct StoredMetric {
    metric: Metric,
    reported_at: Instant,
    /// Attempt of the program, and the time since it is known to have ended.
    attempt: u32,
    ended_at: Option<Instant>,
}

impl Metrics {
    /// Stores a report as far as possible. The error names rejected metrics. Clients see changes on their next
    /// poll.
    pub(super) fn store(
        &mut self,
        task: TaskId,
        attempt: u32,
        report: MetricsReport,
        now: Instant,
    ) -> Result<(), Reply> {
        let task_metrics = self.tasks.entry(task).or_insert_with(|| TaskMetrics {
            latest: BTreeMap::new(),
            since: now,
            reports: 0,
        });
        if now.duration_since(task_metrics.since) >= RATE_LIMIT.1 {
            (task_metrics.since, task_metrics.reports) = (now, 0);
        }
        task_metrics.reports += 1;
        if task_metrics.reports > RATE_LIMIT.0 {
            return Err(Reply::error(429, "too many metric reports from this task", None));
        }
        let (mut invalid, mut over_limit) = (Vec::new(), Vec::new());
        for (name, metric) in report.metrics.into_iter().map(Metric::of) {
            let stored = StoredMetric { metric, reported_at: now, attempt, ended_at: None };
            if !is_valid_name(&name) {
                invalid.push(name);
            } else if let Some(known) = task_metrics.latest.get_mut(&name) {
                *known = stored;
            } else {
                if task_metrics.latest.len() >= METRICS_MAX || self.count >= ALL_MAX {
                    self.count -= task_metrics.drop_stale(attempt, now);
                }
                if task_metrics.latest.len() >= METRICS_MAX || self.count >= ALL_MAX {
                    over_limit.push(name);
                    continue;
                }
                self.count += 1;
                task_metrics.latest.insert(name, stored);
            }
        }
        if !invalid.is_empty() {
            let what = format!("invalid metric names: {}", list_names(&invalid));
            return Err(Reply::error(400, what, None));
        }
        if !over_limit.is_empty() {
            let what = format!("too many metrics, rejected: {}", list_names(&over_limit));
            let hint =
                format!("the limits are {METRICS_MAX} metrics per task and {ALL_MAX} per job");
            return Err(Reply::error(409, what, Some(hint)));
        }
        Ok(())
    }

    /// Drops metrics of finished attempts. `current` returns the current attempt of a task.
    pub(super) fn expire(&mut self, current: impl Fn(&TaskId) -> Option<u32>, now: Instant) {
        let all = &mut self.count;
        self.tasks.retain(|task, task_metrics| {
            let current = current(task);
            task_metrics.latest.retain(|_, stored| {
                if current == Some(stored.attempt) {
                    stored.ended_at = None;
                    return true;
                }
                let since = *stored.ended_at.get_or_insert(now);
                let is_retained = now.duration_since(since) < RETENTION;
                *all -= usize::from(!is_retained);
                is_retained
            });
            !task_metrics.latest.is_empty() || current.is_some()
        });
    }

    /// Returns the latest metrics of current attempts.
    pub(super) fn latest(&self, current: impl Fn(&TaskId) -> Option<u32>) -> Latest {
        self.select(|task| {
            let current = current(task);
            move |stored: &StoredMetric| current == Some(stored.attempt)
        })
    }

    /// Returns the latest values of one metric of current attempts.
    pub(super) fn values(
        &self,
        name: &str,
        current: impl Fn(&TaskId) -> Option<u32>,
    ) -> Vec<(&TaskId, f64)> {
        let reported = self.tasks.iter().filter_map(|(task, task_metrics)| {
            let stored = task_metrics.latest.get(name)?;
            (current(task) == Some(stored.attempt)).then_some((task, stored.metric.value.0))
        });
        reported.collect()
    }

    /// Returns the latest metrics, including those of attempts that have just ended.
    pub(super) fn all(&self) -> Latest {
        self.select(|_| |_: &StoredMetric| true)
    }

    fn select<W: Fn(&StoredMetric) -> bool>(&self, filter: impl Fn(&TaskId) -> W) -> Latest {
        let mut selected = Latest::new();
        for (task, task_metrics) in &self.tasks {
            let filter = filter(task);
            let latest = task_metrics.latest.iter().filter(|(_, stored)| filter(stored));
            let latest: BTreeMap<_, _> =
                latest.map(|(name, stored)| (name.clone(), stored.metric)).collect();
            if !latest.is_empty() {
                selected.insert(task.clone(), latest);
            }
        }
        selected
    }
}

impl TaskMetrics {
    /// Drops metrics that are no longer reported. Returns their number.
    fn drop_stale(&mut self, attempt: u32, now: Instant) -> usize {
        let before = self.latest.len();
        self.latest.retain(|_, stored| {
            stored.attempt == attempt && now.duration_since(stored.reported_at) < STALE_AFTER
        });
        before - self.latest.len()
    }
}

fn is_valid_name(name: &str) -> bool {
    let long = name.is_empty() || name.len() > METRIC_NAME_BYTES_MAX;
    !long && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn list_names(names: &[String]) -> String {
    let listed = names.iter().take(NAMES_SHOWN_MAX);
    let listed: Vec<_> = listed
        .map(|name| {
            let clean = name.chars().filter(|c| !c.is_control());
            let clean: String = clean.take(METRIC_NAME_BYTES_MAX).collect();
            format!("`{clean}`")
        })
        .collect();
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> MetricsReport {
        serde_json::from_str(json).unwrap()
    }

    fn worker() -> TaskId {
        "worker:0".parse().unwrap()
    }

    #[test]
    fn the_latest_value_is_stored_even_if_not_finite() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        for json in [
            r#"{"metrics":[{"name":"loss","value":2.5,"step":1,"at":7}]}"#,
            r#"{"metrics":[{"name":"loss","value":"nan","step":2,"at":8},{"name":"lr","value":1,"at":8}]}"#,
        ] {
            assert!(metrics.store(worker(), 1, report(json), now).is_ok());
        }
        assert_eq!(
            serde_json::to_string(&metrics.all()).unwrap(),
            r#"{"worker:0":{"loss":{"value":"NaN","step":2,"at":8},"lr":{"value":1.0,"step":null,"at":8}}}"#
        );
        let again = serde_json::to_string(&metrics.all()).unwrap();
        let again: BTreeMap<TaskId, BTreeMap<String, Metric>> =
            serde_json::from_str(&again).unwrap();
        assert!(again[&worker()]["loss"].value.0.is_nan());
    }

    #[test]
    fn reports_over_the_limits_are_rejected_and_keep_stored_metrics() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        for n in 0..METRICS_MAX {
            let one = report(&format!(r#"{{"metrics":[{{"name":"m{n}","value":1,"at":0}}]}}"#));
            assert!(metrics.store(worker(), 1, one, now).is_ok(), "{n}");
        }
        let status = |metrics: &mut Metrics, name: &str, now| {
            let json = serde_json::json!({ "metrics": [{ "name": name, "value": 1, "at": 0 }] });
            let stored = metrics.store(worker(), 1, serde_json::from_value(json).unwrap(), now);
            stored.err().map(|reply| reply.status.as_u16())
        };
        assert_eq!(status(&mut metrics, "one-more", now), Some(409));
        assert_eq!(status(&mut metrics, "a b", now), Some(400));
        assert_eq!(status(&mut metrics, &"m".repeat(65), now), Some(400));
        assert_eq!(status(&mut metrics, "m0", now), None);
        for _ in 0..RATE_LIMIT.0 {
            status(&mut metrics, "m0", now);
        }
        assert_eq!(status(&mut metrics, "m0", now), Some(429));
        assert_eq!(status(&mut metrics, "m0", now + RATE_LIMIT.1), None);
        assert_eq!(metrics.all()[&worker()].len(), METRICS_MAX);
    }
    #[test]
    fn valid_metrics_are_stored_and_invalid_ones_are_named() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        let json =
            r#"{"metrics":[{"name":"a b","value":1,"at":0},{"name":"loss","value":1,"at":0}]}"#;
        let refused = metrics.store(worker(), 1, report(json), now).unwrap_err();
        assert_eq!(refused.status.as_u16(), 400);
        assert!(String::from_utf8_lossy(&refused.body).contains("`a b`"));
        assert_eq!(metrics.all()[&worker()].len(), 1);
    }

    #[test]
    fn stale_metrics_are_dropped_for_new_ones() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        let report_one = |metrics: &mut Metrics, name: &str, now| {
            let json = serde_json::json!({ "metrics": [{ "name": name, "value": 1, "at": 0 }] });
            metrics.store(worker(), 1, serde_json::from_value(json).unwrap(), now).is_ok()
        };
        for n in 0..METRICS_MAX {
            assert!(report_one(&mut metrics, &format!("m{n}"), now));
        }
        assert!(report_one(&mut metrics, "m0", now + STALE_AFTER / 2));
        assert!(!report_one(&mut metrics, "new", now + STALE_AFTER / 2));
        assert!(report_one(&mut metrics, "new", now + STALE_AFTER));
        let names: Vec<_> = metrics.all()[&worker()].keys().cloned().collect();
        assert_eq!((names, metrics.count), (vec!["m0".to_string(), "new".to_string()], 2));
    }

    #[test]
    fn metrics_of_a_finished_attempt_expire() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        let loss = r#"{"metrics":[{"name":"loss","value":1,"at":0}]}"#;
        let rate = r#"{"metrics":[{"name":"lr","value":1,"at":0}]}"#;
        let names = |latest: Latest| {
            let task_metrics = latest.get(&worker()).into_iter();
            task_metrics.flat_map(|it| it.keys().cloned()).collect::<Vec<_>>()
        };
        metrics.store(worker(), 1, report(loss), now).unwrap();
        assert_eq!(names(metrics.latest(|_| Some(1))), ["loss"]);
        // The attempt is over, or its task was removed: trackers have some time to read them.
        for current in [None, Some(2)] {
            assert!(names(metrics.latest(|_| current)).is_empty());
            metrics.expire(|_| current, now);
            assert_eq!(names(metrics.all()), ["loss"]);
        }
        // The next attempt starts without metrics.
        metrics.store(worker(), 2, report(rate), now).unwrap();
        assert_eq!(names(metrics.latest(|_| Some(2))), ["lr"]);
        assert_eq!(names(metrics.all()), ["loss", "lr"]);
        metrics.expire(|_| Some(2), now + RETENTION);
        assert_eq!((names(metrics.all()), metrics.count), (vec!["lr".to_owned()], 1));
        metrics.expire(|_| None, now + RETENTION);
        metrics.expire(|_| None, now + RETENTION * 2);
        assert!(names(metrics.all()).is_empty());
        assert_eq!((metrics.count, metrics.tasks.len()), (0, 0));
    }
}
