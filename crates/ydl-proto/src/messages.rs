//! Messages between client, master and agent: JSON over the job's TLS. Private: both ends are the same binary.

use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use ydl_core::{
    Endpoint, HistoryEvent, JobView, Order, ProgramExit, Span, TaskId,
    view::{RoleView, TaskView},
};

/// Longest time that the master holds an agent's request when nothing changes.
pub const HEARTBEAT_MS: u64 = 2_000;

/// Returns the heartbeat interval for a heartbeat timeout. An agent needs several heartbeats before it considers itself
/// disconnected, and before the master reports missed heartbeats.
pub fn heartbeat_interval(timeout: Span) -> Duration {
    Duration::from_millis((timeout.0 / 8).min(HEARTBEAT_MS))
}

/// Maximum bytes of frames per request or response of `/v1/links`, unless a single frame is larger.
///
/// `POST /v1/links?round=R&session=N` carries frames of an agent in order, one call at a time. `GET` of the same path
/// waits for frames for the agent. Both responses may carry such frames, and they may overtake each other: a response
/// that is not empty begins with its sequence number, from 1 in each session, in eight bytes.
pub const LINKS_BYTES_MAX: usize = 1 << 20;

/// Length of the sequence number in front of frames for an agent.
pub const LINKS_NUMBER_BYTES: usize = size_of::<u64>();

/// Status of a response to an agent if the master received its reports but could not persist them in time. The agent is
/// still connected, and repeats them.
pub const NOT_DURABLE: u16 = 504;

/// `POST /v1/sync?wait_ms=M`: an agent reports what happened and fetches its order. Answered at once if the order is new
/// or the tokens are old, otherwise on a change or after the wait, which is limited to the heartbeat interval.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sync {
    /// Events since the last response, oldest first. Repeated until a response arrives.
    pub reports: Vec<AgentReport>,
    /// Number of the order that the agent has; 0 for none.
    pub order: u64,
    /// Number of the tokens that the agent has, or is about to fetch.
    #[serde(default)]
    pub tokens: u64,
    /// Number of the newest request that the agent received. Later ones are sent again: the agent drops a call, and its
    /// response, when it has something to report.
    #[serde(default)]
    pub last_request: u64,
    /// Resource usage of its processes.
    pub usage: Option<Usage>,
}

/// Response of the master to [`Sync`].
#[derive(Debug, Serialize, Deserialize)]
pub struct SyncReply {
    /// Number of this order. It changes with the order.
    pub number: u64,
    /// Order for the agent.
    pub order: Order,
    /// Number of the current tokens, which the agent fetches by `GET /v1/tokens` if it has others; 0 if the tokens from
    /// its launch are current.
    #[serde(default)]
    pub tokens: u64,
    /// Default environment variables of the job's programs. The job and the task override them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Event in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentReport {
    /// The ports are reserved and the agent waits for its program.
    Ready {
        /// Round of the program.
        round: u32,
        /// Address for its peers.
        endpoint: Endpoint,
    },
    /// Setup failed.
    SetupFailed {
        /// Reason.
        reason: String,
        /// True if another node may succeed.
        node_fault: bool,
    },
    /// The program runs.
    Started {
        /// Round of the program.
        round: u32,
    },
    /// The program exited.
    Exited {
        /// Round of the program.
        round: u32,
        /// Exit status.
        exit: ProgramExit,
    },
    /// The program is stopped, the outputs are uploaded if that was ordered, and the agent exits.
    Stopped {
        /// Error of the upload.
        upload_error: Option<String>,
    },
}

/// `GET /v1/view?seen=N&wait_ms=M`: state of the job; answered if it is newer than `seen`, or after the wait.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobSnapshot {
    /// Number of this view.
    pub number: u64,
    /// State of the job.
    pub view: JobView,
    /// Resource usage per task, where known.
    pub usage: BTreeMap<TaskId, Usage>,
    /// Latest metrics per task.
    #[serde(default)]
    pub metrics: BTreeMap<TaskId, BTreeMap<String, Metric>>,
    /// Progress of the job, from 0 to 1. Never decreases.
    pub progress: f32,
    /// Priority of the job in its queue, where the cluster reports it.
    pub priority: Option<i32>,
}

/// Maximum number of metrics of a task.
pub const METRICS_MAX: usize = 64;
/// Maximum length of a metric's name.
pub const METRIC_NAME_BYTES_MAX: usize = 64;

/// `POST /v1/metrics`: a program reports its progress.
#[derive(Debug, Deserialize)]
pub struct MetricsReport {
    /// Changed metrics, or all of them.
    pub metrics: Vec<ReportedMetric>,
}

/// Metric as a program reports it.
#[derive(Debug, Deserialize)]
pub struct ReportedMetric {
    /// Name, such as `loss`.
    pub name: String,
    /// Value.
    pub value: MetricValue,
    /// Training step.
    #[serde(default)]
    pub step: Option<u64>,
    /// Time in ms since 1970, by the program's clock.
    pub at: u64,
}

/// Latest value of a metric.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Metric {
    /// Value.
    pub value: MetricValue,
    /// Training step.
    pub step: Option<u64>,
    /// Time in ms since 1970.
    pub at: u64,
}

impl Metric {
    /// Returns the name and the metric of a report.
    pub fn of(report: ReportedMetric) -> (String, Metric) {
        let ReportedMetric { name, value, step, at } = report;
        (name, Metric { value, step, at })
    }
}

/// Number that may be infinite or NaN, as a diverged loss is. JSON has no such numbers: they are sent as strings.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "MetricJson", into = "MetricJson")]
pub struct MetricValue(pub f64);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum MetricJson {
    Number(f64),
    Text(String),
}

impl From<MetricValue> for MetricJson {
    fn from(value: MetricValue) -> MetricJson {
        match value.0.is_finite() {
            true => MetricJson::Number(value.0),
            false => MetricJson::Text(value.0.to_string()),
        }
    }
}

impl TryFrom<MetricJson> for MetricValue {
    type Error = String;

    fn try_from(json: MetricJson) -> Result<MetricValue, String> {
        match json {
            MetricJson::Number(number) => Ok(MetricValue(number)),
            MetricJson::Text(text) => match text.parse() {
                Ok(number) => Ok(MetricValue(number)),
                Err(_) => Err("a metric's value is a number".to_owned()),
            },
        }
    }
}

/// `GET /v1/history?after=N`: events of the job from number N on, counted from 0.
#[derive(Debug, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Number of the next event.
    pub next: u64,
    /// Events, oldest first; at most a thousand per page.
    pub events: Vec<HistoryEvent>,
}

/// `POST /v1/kill`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kill {
    /// User or component that requests it, for the record.
    pub by: String,
    /// Skips the grace period.
    pub immediate: bool,
}

/// `POST /v1/scale`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scale {
    /// Role to resize.
    pub role: String,
    /// New number of tasks.
    pub instances: u32,
}

/// `POST /v1/tasks`: adds a task to a role whose tasks start on their own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskAddition {
    /// Role of the task.
    pub role: String,
    /// Variables of this task, which take precedence over those of its role.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Response to [`TaskAddition`].
#[derive(Debug, Serialize, Deserialize)]
pub struct AddedTask {
    /// The new task.
    pub task: TaskId,
}

/// Response to `GET /v1/tasks`.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskList {
    /// Roles of the job.
    pub roles: Vec<RoleView>,
    /// Tasks of the job.
    pub tasks: Vec<TaskView>,
    /// Tasks that were stopped for good, or are being stopped.
    pub stopped: Vec<TaskId>,
}

/// `POST /v1/end`: ends the job with an outcome.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    /// Outcome of the job.
    pub outcome: RequestedOutcome,
    /// Reason of a failure.
    #[serde(default)]
    pub reason: String,
}

/// Outcome of a job that ends on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedOutcome {
    /// The job succeeded.
    Succeeded,
    /// The job failed.
    Failed,
    /// The job was killed.
    Killed,
}

/// `PUT /v1/progress`: progress of the job on the ResourceManager's page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// Progress from 0 to 1.
    pub progress: f32,
}

/// Header of a log response: current length of the file.
pub const LENGTH_HEADER: &str = "ydl-length";
/// Header of a log response: `1` if the length is final.
pub const ENDED_HEADER: &str = "ydl-ended";
/// Maximum bytes per log response.
pub const LOG_BYTES_MAX: u64 = 128 << 10;

/// Request of a client that the agent of a task serves. An agent that waits for its order receives a list of these with
/// status 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedRequest {
    /// Number of the request, which the response refers to.
    pub id: u64,
    /// Task of the agent.
    pub task: TaskId,
    /// Request of the client.
    pub request: AgentRequest,
}

/// Request of a client to the agent of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentRequest {
    /// Logs of a live task. The agent responds by `POST /v1/log-reply?request=ID`.
    ReadLog(LogRequest),
    /// Connection to a port of the program. The agent connects to it by `POST /v1/port-forward-reply?request=ID`.
    Forward(ForwardRequest),
}

/// Request for logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogRequest {
    /// `GET /v1/logs?task=worker:0`: list of files, as a list of [`LogAttempt`].
    List,
    /// `GET /v1/logs?task=worker:0&attempt=1&file=stdout.0&offset=N&wait_ms=M`: bytes from an offset on. Answered when
    /// there are bytes, when the file is complete, or after the wait.
    Read {
        /// Attempt of the task.
        attempt: u32,
        /// Name of the file.
        file: String,
        /// Offset of the first byte.
        offset: u64,
        /// Maximum number of bytes.
        bytes_max: u64,
        /// Time to wait for the first byte.
        wait_ms: u64,
    },
}

/// `POST /v1/port-forward?task=tensorboard:0&port=http`: request for a connection to a port of the program. The response
/// upgrades the connection once the agent is connected to both the port and the master; from then on it carries the raw
/// stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardRequest {
    /// Name of the port; by default the only one of the role.
    pub port: Option<String>,
}

/// Maximum length of a port name in a request, and of the reason why forwarding failed.
pub const FORWARD_TEXT_MAX: usize = 512;

/// Logs of an attempt that an agent has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAttempt {
    /// Number of the attempt.
    pub attempt: u32,
    /// Its files.
    pub files: Vec<LogFile>,
}

/// Log file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFile {
    /// Name, such as `stdout.0`.
    pub name: String,
    /// Length.
    pub bytes: u64,
}
