//! Counters of the gateway, printed in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::balancer::MemberState;

/// Upper limits of the histogram, in milliseconds. Fixed, so that the figures of several gateways can be added.
const BUCKETS_MS: [u64; 14] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 60_000, 300_000];
/// Maximum number of revisions with series of their own.
const REVISIONS_MAX: usize = 32;

/// Reason of sending a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RetryReason {
    /// No connection to the replica.
    Connect,
    /// The request was not sent, or the replica refused to take it.
    Unsent,
    /// The connection broke before a response.
    Broken,
    /// No response in time.
    Timeout,
}

const RETRY_REASONS: [(RetryReason, &str); 4] = [
    (RetryReason::Connect, "connect"),
    (RetryReason::Unsent, "unsent"),
    (RetryReason::Broken, "broken"),
    (RetryReason::Timeout, "timeout"),
];

/// Revision as a label. The number of labels is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RevisionLabel {
    /// No replica was asked.
    None,
    Number(u64),
    Other,
}

/// Counters of all requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<RequestCounters>,
    retries: [AtomicU64; RETRY_REASONS.len()],
    ejections: AtomicU64,
}

#[derive(Debug, Default)]
struct RequestCounters {
    by_code: BTreeMap<(RevisionLabel, u16), u64>,
    durations: BTreeMap<RevisionLabel, Histogram>,
}

#[derive(Debug, Default)]
struct Histogram {
    /// Not cumulative; the last one is beyond all limits.
    buckets: [u64; BUCKETS_MS.len() + 1],
    sum: Duration,
}

/// Values at the time of printing.
#[derive(Debug)]
pub(crate) struct Gauges<'a> {
    pub role: &'a str,
    pub in_flight: u64,
    pub held: usize,
    pub replicas: BTreeMap<(MemberState, u64), u64>,
    pub route_version: u64,
    pub log_lines_dropped: u64,
}

impl Metrics {
    /// Counts a request that has ended.
    pub(crate) fn on_request(&self, revision: Option<u64>, code: u16, duration: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let label = requests.label(revision);
        *requests.by_code.entry((label, code)).or_insert(0) += 1;
        let histogram = requests.durations.entry(label).or_default();
        let millis = duration.as_millis();
        let index = BUCKETS_MS.partition_point(|limit| u128::from(*limit) < millis);
        histogram.buckets[index] += 1;
        histogram.sum += duration;
    }

    pub(crate) fn on_retry(&self, why: RetryReason) {
        let counters = RETRY_REASONS.iter().zip(&self.retries);
        for (_, counter) in counters.filter(|((reason, _), _)| *reason == why) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn on_ejection(&self) {
        self.ejections.fetch_add(1, Ordering::Relaxed);
    }

    /// Prints all series.
    pub(crate) fn render(&self, gauges: &Gauges) -> String {
        let mut page = Page(String::new());
        let role = gauges.role;
        {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            page.head("ydl_requests_total", "counter", "Requests by revision and status code");
            for ((revision, code), count) in &requests.by_code {
                let revision = revision.text();
                page.line(format_args!(
                    "ydl_requests_total{{role=\"{role}\",revision=\"{revision}\",code=\"{code}\"}} {count}"
                ));
            }
            page.head(
                "ydl_request_seconds",
                "histogram",
                "Time from the head of a request to the end of its response",
            );
            for (revision, histogram) in &requests.durations {
                page.histogram(role, &revision.text(), histogram);
            }
        }
        page.head("ydl_inflight", "gauge", "Requests at replicas");
        page.line(format_args!("ydl_inflight{{role=\"{role}\"}} {}", gauges.in_flight));
        page.head("ydl_held", "gauge", "Requests that wait for a replica");
        page.line(format_args!("ydl_held{{role=\"{role}\"}} {}", gauges.held));
        page.head("ydl_retries_total", "counter", "Requests sent again");
        for ((_, why), count) in RETRY_REASONS.iter().zip(&self.retries) {
            let count = count.load(Ordering::Relaxed);
            page.line(format_args!("ydl_retries_total{{role=\"{role}\",why=\"{why}\"}} {count}"));
        }
        page.head("ydl_ejections_total", "counter", "Ejections of failing replicas");
        let ejections = self.ejections.load(Ordering::Relaxed);
        page.line(format_args!("ydl_ejections_total{{role=\"{role}\"}} {ejections}"));
        page.head("ydl_replicas", "gauge", "Replicas by state and revision");
        for ((state, revision), count) in gauges.replicas.iter().take(4 * REVISIONS_MAX) {
            let state = match state {
                MemberState::Serving => "serving",
                MemberState::Ejected => "ejected",
                MemberState::Draining => "draining",
            };
            page.line(format_args!(
                "ydl_replicas{{role=\"{role}\",state=\"{state}\",revision=\"{revision}\"}} {count}"
            ));
        }
        page.head("ydl_route_version", "gauge", "Version of the route table");
        page.line(format_args!("ydl_route_version{{role=\"{role}\"}} {}", gauges.route_version));
        page.head(
            "ydl_log_lines_dropped_total",
            "counter",
            "Lines that the access log could not take",
        );
        let dropped = gauges.log_lines_dropped;
        page.line(format_args!("ydl_log_lines_dropped_total{{role=\"{role}\"}} {dropped}"));
        page.0
    }
}

impl RequestCounters {
    fn label(&self, revision: Option<u64>) -> RevisionLabel {
        let Some(number) = revision else { return RevisionLabel::None };
        let label = RevisionLabel::Number(number);
        match self.durations.contains_key(&label) || self.durations.len() < REVISIONS_MAX {
            true => label,
            false => RevisionLabel::Other,
        }
    }
}

impl RevisionLabel {
    fn text(self) -> String {
        match self {
            RevisionLabel::None => String::new(),
            RevisionLabel::Number(number) => number.to_string(),
            RevisionLabel::Other => "other".into(),
        }
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // Writing to a string never fails.
        let _ = writeln!(self.0, "{line}");
    }

    fn histogram(&mut self, role: &str, revision: &str, histogram: &Histogram) {
        let labels = format!("role=\"{role}\",revision=\"{revision}\"");
        let mut count = 0;
        for (limit, bucket) in BUCKETS_MS.iter().zip(&histogram.buckets) {
            count += bucket;
            let limit = *limit as f64 / 1000.0;
            self.line(format_args!(
                "ydl_request_seconds_bucket{{{labels},le=\"{limit}\"}} {count}"
            ));
        }
        count += histogram.buckets[BUCKETS_MS.len()];
        self.line(format_args!("ydl_request_seconds_bucket{{{labels},le=\"+Inf\"}} {count}"));
        let sum = histogram.sum.as_secs_f64();
        self.line(format_args!("ydl_request_seconds_sum{{{labels}}} {sum}"));
        self.line(format_args!("ydl_request_seconds_count{{{labels}}} {count}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauges() -> Gauges<'static> {
        Gauges {
            role: "server",
            in_flight: 3,
            held: 2,
            replicas: BTreeMap::from([
                ((MemberState::Serving, 1), 2),
                ((MemberState::Ejected, 1), 1),
            ]),
            route_version: 7,
            log_lines_dropped: 0,
        }
    }

    #[test]
    fn series_are_printed_as_prometheus_text() {
        let metrics = Metrics::default();
        metrics.on_request(Some(1), 200, Duration::from_millis(2));
        metrics.on_request(Some(1), 200, Duration::from_secs(1000));
        metrics.on_request(None, 503, Duration::ZERO);
        metrics.on_retry(RetryReason::Unsent);
        metrics.on_ejection();
        let text = metrics.render(&gauges());
        let lines: Vec<_> = text
            .lines()
            .filter(|line| {
                !line.starts_with('#') && !line.contains("_bucket{")
                    || line.contains("revision=\"1\",le=\"0.00")
                    || line.contains("revision=\"1\",le=\"+Inf")
            })
            .collect();
        expect_test::expect![[r#"
            ydl_requests_total{role="server",revision="",code="503"} 1
            ydl_requests_total{role="server",revision="1",code="200"} 2
            ydl_request_seconds_sum{role="server",revision=""} 0
            ydl_request_seconds_count{role="server",revision=""} 1
            ydl_request_seconds_bucket{role="server",revision="1",le="0.001"} 0
            ydl_request_seconds_bucket{role="server",revision="1",le="0.002"} 1
            ydl_request_seconds_bucket{role="server",revision="1",le="0.005"} 1
            ydl_request_seconds_bucket{role="server",revision="1",le="+Inf"} 2
            ydl_request_seconds_sum{role="server",revision="1"} 1000.002
            ydl_request_seconds_count{role="server",revision="1"} 2
            ydl_inflight{role="server"} 3
            ydl_held{role="server"} 2
            ydl_retries_total{role="server",why="connect"} 0
            ydl_retries_total{role="server",why="unsent"} 1
            ydl_retries_total{role="server",why="broken"} 0
            ydl_retries_total{role="server",why="timeout"} 0
            ydl_ejections_total{role="server"} 1
            ydl_replicas{role="server",state="serving",revision="1"} 2
            ydl_replicas{role="server",state="ejected",revision="1"} 1
            ydl_route_version{role="server"} 7
            ydl_log_lines_dropped_total{role="server"} 0"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn the_number_of_series_is_limited() {
        let metrics = Metrics::default();
        for revision in 0..1000 {
            metrics.on_request(Some(revision), 200, Duration::ZERO);
        }
        let text = metrics.render(&gauges());
        let series = text.lines().filter(|line| line.starts_with("ydl_requests_total{")).count();
        assert_eq!(series, REVISIONS_MAX + 1);
        assert!(text.contains(r#"revision="other",code="200"} 968"#), "{text}");
    }
}
