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
const PACE: (u32, Duration) = (128, Duration::from_secs(1));

/// Age after which a metric may be dropped for a new one. Reporters repeat everything several times in this
/// time, so an older metric belongs to a process that has exited.
const STALE: Duration = Duration::from_secs(180);
/// Time that metrics of a finished attempt stay available to trackers that poll.
const LINGER: Duration = Duration::from_secs(30);
/// Maximum number of names in an error.
const REFUSED_SHOWN_MAX: usize = 8;

/// Metrics by task and name.
pub(super) type Latest = BTreeMap<TaskId, BTreeMap<String, Metric>>;

#[derive(Debug, Default)]
pub(super) struct Metrics {
    tasks: BTreeMap<TaskId, OfTask>,
    kept: usize,
}

#[derive(Debug)]
struct OfTask {
    latest: BTreeMap<String, Kept>,
    /// Start of the rate limit's current period.
    since: Instant,
    reports: u32,
}

#[derive(Debug)]
struct Kept {
    metric: Metric,
    heard: Instant,
    /// Attempt of the program, and the time since it is known to be over.
    attempt: u32,
    over: Option<Instant>,
}

impl Metrics {
    /// Stores a report as far as possible. The error names rejected metrics. Clients see changes on their next
    /// poll.
    pub(super) fn take(
        &mut self,
        task: TaskId,
        attempt: u32,
        said: MetricsReport,
        now: Instant,
    ) -> Result<(), Reply> {
        let of = self.tasks.entry(task).or_insert_with(|| OfTask {
            latest: BTreeMap::new(),
            since: now,
            reports: 0,
        });
        if now.duration_since(of.since) >= PACE.1 {
            (of.since, of.reports) = (now, 0);
        }
        of.reports += 1;
        if of.reports > PACE.0 {
            return Err(Reply::error(429, "this task reports too often", None));
        }
        let (mut wrong, mut crowded) = (Vec::new(), Vec::new());
        for (name, metric) in said.metrics.into_iter().map(Metric::of) {
            let kept = Kept { metric, heard: now, attempt, over: None };
            if !fits(&name) {
                wrong.push(name);
            } else if let Some(known) = of.latest.get_mut(&name) {
                *known = kept;
            } else {
                if of.latest.len() >= METRICS_MAX || self.kept >= ALL_MAX {
                    self.kept -= of.make_room(attempt, now);
                }
                if of.latest.len() >= METRICS_MAX || self.kept >= ALL_MAX {
                    crowded.push(name);
                    continue;
                }
                self.kept += 1;
                of.latest.insert(name, kept);
            }
        }
        if !wrong.is_empty() {
            let what = format!("metrics cannot have these names: {}", listed(&wrong));
            return Err(Reply::error(400, what, None));
        }
        if !crowded.is_empty() {
            let what = format!("there is no room for these metrics: {}", listed(&crowded));
            let hint = format!("a task has {METRICS_MAX} at most, a job {ALL_MAX}");
            return Err(Reply::error(409, what, Some(hint)));
        }
        Ok(())
    }

    /// Drops metrics of finished attempts. `current` returns the current attempt of a task.
    pub(super) fn settle(&mut self, current: impl Fn(&TaskId) -> Option<u32>, now: Instant) {
        let all = &mut self.kept;
        self.tasks.retain(|task, of| {
            let current = current(task);
            of.latest.retain(|_, kept| {
                if current == Some(kept.attempt) {
                    kept.over = None;
                    return true;
                }
                let since = *kept.over.get_or_insert(now);
                let stays = now.duration_since(since) < LINGER;
                *all -= usize::from(!stays);
                stays
            });
            !of.latest.is_empty() || current.is_some()
        });
    }

    /// Returns the latest metrics of current attempts.
    pub(super) fn latest(&self, current: impl Fn(&TaskId) -> Option<u32>) -> Latest {
        self.those(|task| {
            let current = current(task);
            move |kept: &Kept| current == Some(kept.attempt)
        })
    }

    /// Returns the latest metrics, including those of attempts that have just ended.
    pub(super) fn all(&self) -> Latest {
        self.those(|_| |_: &Kept| true)
    }

    fn those<W: Fn(&Kept) -> bool>(&self, which: impl Fn(&TaskId) -> W) -> Latest {
        let mut those = Latest::new();
        for (task, of) in &self.tasks {
            let which = which(task);
            let latest = of.latest.iter().filter(|(_, kept)| which(kept));
            let latest: BTreeMap<_, _> =
                latest.map(|(name, kept)| (name.clone(), kept.metric)).collect();
            if !latest.is_empty() {
                those.insert(task.clone(), latest);
            }
        }
        those
    }
}

impl OfTask {
    /// Drops metrics that are no longer reported. Returns their number.
    fn make_room(&mut self, attempt: u32, now: Instant) -> usize {
        let before = self.latest.len();
        self.latest
            .retain(|_, kept| kept.attempt == attempt && now.duration_since(kept.heard) < STALE);
        before - self.latest.len()
    }
}

fn fits(name: &str) -> bool {
    let long = name.is_empty() || name.len() > METRIC_NAME_BYTES_MAX;
    !long && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(REFUSED_SHOWN_MAX);
    let shown: Vec<_> = shown
        .map(|name| {
            let clean = name.chars().filter(|c| !c.is_control());
            let clean: String = clean.take(METRIC_NAME_BYTES_MAX).collect();
            format!("`{clean}`")
        })
        .collect();
    match names.len().saturating_sub(REFUSED_SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(json: &str) -> MetricsReport {
        serde_json::from_str(json).unwrap()
    }

    fn worker() -> TaskId {
        "worker:0".parse().unwrap()
    }

    #[test]
    fn the_latest_value_of_each_name_is_kept_whatever_number_it_is() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        for json in [
            r#"{"metrics":[{"name":"loss","value":2.5,"step":1,"at":7}]}"#,
            r#"{"metrics":[{"name":"loss","value":"nan","step":2,"at":8},{"name":"lr","value":1,"at":8}]}"#,
        ] {
            assert!(metrics.take(worker(), 1, said(json), now).is_ok());
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
    fn a_task_that_says_too_much_is_refused_and_keeps_what_it_has() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        for n in 0..METRICS_MAX {
            let one = said(&format!(r#"{{"metrics":[{{"name":"m{n}","value":1,"at":0}}]}}"#));
            assert!(metrics.take(worker(), 1, one, now).is_ok(), "{n}");
        }
        let status = |metrics: &mut Metrics, name: &str, now| {
            let json = serde_json::json!({ "metrics": [{ "name": name, "value": 1, "at": 0 }] });
            let taken = metrics.take(worker(), 1, serde_json::from_value(json).unwrap(), now);
            taken.err().map(|reply| reply.status.as_u16())
        };
        assert_eq!(status(&mut metrics, "one-more", now), Some(409));
        assert_eq!(status(&mut metrics, "a b", now), Some(400));
        assert_eq!(status(&mut metrics, &"m".repeat(65), now), Some(400));
        assert_eq!(status(&mut metrics, "m0", now), None);
        for _ in 0..PACE.0 {
            status(&mut metrics, "m0", now);
        }
        assert_eq!(status(&mut metrics, "m0", now), Some(429));
        assert_eq!(status(&mut metrics, "m0", now + PACE.1), None);
        assert_eq!(metrics.all()[&worker()].len(), METRICS_MAX);
    }
    #[test]
    fn what_is_good_in_a_report_is_taken_and_what_is_not_is_named() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        let json =
            r#"{"metrics":[{"name":"a b","value":1,"at":0},{"name":"loss","value":1,"at":0}]}"#;
        let refused = metrics.take(worker(), 1, said(json), now).unwrap_err();
        assert_eq!(refused.status.as_u16(), 400);
        assert!(String::from_utf8_lossy(&refused.body).contains("`a b`"));
        assert_eq!(metrics.all()[&worker()].len(), 1);
    }

    #[test]
    fn names_that_nobody_says_any_more_make_room_for_those_that_are_said() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        let say = |metrics: &mut Metrics, name: &str, now| {
            let json = serde_json::json!({ "metrics": [{ "name": name, "value": 1, "at": 0 }] });
            metrics.take(worker(), 1, serde_json::from_value(json).unwrap(), now).is_ok()
        };
        for n in 0..METRICS_MAX {
            assert!(say(&mut metrics, &format!("m{n}"), now));
        }
        assert!(say(&mut metrics, "m0", now + STALE / 2));
        assert!(!say(&mut metrics, "new", now + STALE / 2));
        assert!(say(&mut metrics, "new", now + STALE));
        let names: Vec<_> = metrics.all()[&worker()].keys().cloned().collect();
        assert_eq!((names, metrics.kept), (vec!["m0".to_string(), "new".to_string()], 2));
    }

    #[test]
    fn what_an_attempt_has_said_goes_with_it() {
        let (mut metrics, now) = (Metrics::default(), Instant::now());
        let loss = r#"{"metrics":[{"name":"loss","value":1,"at":0}]}"#;
        let rate = r#"{"metrics":[{"name":"lr","value":1,"at":0}]}"#;
        let names = |latest: Latest| {
            let of = latest.get(&worker()).into_iter();
            of.flat_map(|it| it.keys().cloned()).collect::<Vec<_>>()
        };
        metrics.take(worker(), 1, said(loss), now).unwrap();
        assert_eq!(names(metrics.latest(|_| Some(1))), ["loss"]);
        // The attempt is over, or its task was removed: trackers have some time to read them.
        for current in [None, Some(2)] {
            assert!(names(metrics.latest(|_| current)).is_empty());
            metrics.settle(|_| current, now);
            assert_eq!(names(metrics.all()), ["loss"]);
        }
        // The next attempt starts without metrics.
        metrics.take(worker(), 2, said(rate), now).unwrap();
        assert_eq!(names(metrics.latest(|_| Some(2))), ["lr"]);
        assert_eq!(names(metrics.all()), ["loss", "lr"]);
        metrics.settle(|_| Some(2), now + LINGER);
        assert_eq!((names(metrics.all()), metrics.kept), (vec!["lr".to_owned()], 1));
        metrics.settle(|_| None, now + LINGER);
        metrics.settle(|_| None, now + LINGER * 2);
        assert!(names(metrics.all()).is_empty());
        assert_eq!((metrics.kept, metrics.tasks.len()), (0, 0));
    }
}
