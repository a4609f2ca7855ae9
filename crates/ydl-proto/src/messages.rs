//! What client, master and agent say to each other, as JSON over the job's TLS. Private: the same binary is at
//! both ends.

use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use ydl_core::{Endpoint, HistoryEvent, JobView, Order, ProgramExit, Span, TaskId};

/// The longest that the master holds an agent's question open when nothing changes.
pub const BEAT_MS: u64 = 2_000;

/// How long a question is held in a job whose agents may be silent for so long: an agent must be answered well before
/// it takes itself for cut off, and be missed before that, too.
pub fn beat(silence: Span) -> Duration {
    Duration::from_millis((silence.0 / 8).min(BEAT_MS))
}

/// `POST /v1/links?round=R&connection=N`: frames of an agent, in their order, one such call at a time. `GET` of the same:
/// answered when there are frames for it. Frames for it come with either answer, whichever is given first, and two answers
/// may overtake each other: what is not empty begins with its number, from 1 on each connection, in eight bytes. Both
/// carry so many bytes of frames at most, unless a single frame has more.
pub const LINKS_BYTES_MAX: usize = 1 << 20;

/// What stands before frames for an agent: the number of the answer.
pub const LINKS_NUMBER_BYTES: usize = size_of::<u64>();

/// The status of an answer to an agent whose master has its question, but could not write down yet what it says: its disks
/// are away. The agent is not cut off, and says it again.
pub const UNWRITTEN: u16 = 504;

/// `POST /v1/sync?wait_ms=M`: an agent says what happened and asks for its order. Answered at once when the order is
/// not the one it has seen or its tokens are old, otherwise when that changes or after the wait, which is a beat at most.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sync {
    /// What happened since the last answer, oldest first. Said again until an answer has come.
    pub reports: Vec<AgentReport>,
    /// The number of the order it knows; 0 for none.
    pub seen: u64,
    /// The number of the tokens that it has, or is about to fetch.
    #[serde(default)]
    pub tokens: u64,
    /// The number of the newest wish that it has heard of: what was wished after that is told again. A question is
    /// dropped where something happens meanwhile, and its answer with it.
    #[serde(default)]
    pub wished: u64,
    /// What its processes use.
    pub usage: Option<Usage>,
}

/// The master's answer to [`Sync`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Synced {
    /// The number of this order: it changes when the order does.
    pub number: u64,
    /// What the agent should be doing.
    pub order: Order,
    /// The number of the tokens that it should have, and fetches by `GET /v1/tokens` if it has others; 0 where the ones
    /// it was started with will do.
    #[serde(default)]
    pub tokens: u64,
    /// Variables that programs of the job get, where neither the job nor the task says something else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Something that happened in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentReport {
    /// The ports are held; it waits for its program.
    Ready {
        /// For this round.
        round: u32,
        /// Where its peers reach it.
        endpoint: Endpoint,
    },
    /// It cannot get ready.
    Unready {
        /// Why.
        why: String,
        /// Whether another node might do better.
        node: bool,
    },
    /// The program runs.
    Started {
        /// In this round.
        round: u32,
    },
    /// The program ended.
    Exited {
        /// In this round.
        round: u32,
        /// How.
        exit: ProgramExit,
    },
    /// Everything is stopped and saved; it leaves.
    Saved {
        /// What could not be saved.
        error: Option<String>,
    },
}

/// `GET /v1/view?seen=N&wait_ms=M`: the job as people see it; answered when it is newer than `seen`, or after the wait.
#[derive(Debug, Serialize, Deserialize)]
pub struct Viewed {
    /// The number of this view.
    pub number: u64,
    /// The job.
    pub view: JobView,
    /// What each task's processes use, where known.
    pub usage: BTreeMap<TaskId, Usage>,
    /// What programs have reported last.
    #[serde(default)]
    pub metrics: BTreeMap<TaskId, BTreeMap<String, Metric>>,
}

/// Metrics of one task.
pub const METRICS_MAX: usize = 64;
/// The longest name of one.
pub const METRIC_NAME_BYTES_MAX: usize = 64;

/// `POST /v1/metrics`: a program reports how far its training is.
#[derive(Debug, Deserialize)]
pub struct Reported {
    /// What has changed, or everything.
    pub metrics: Vec<ReportedMetric>,
}

/// A metric as a program reports it.
#[derive(Debug, Deserialize)]
pub struct ReportedMetric {
    /// As `loss`.
    pub name: String,
    /// Its value.
    pub value: Figure,
    /// After how many steps.
    #[serde(default)]
    pub step: Option<u64>,
    /// When, in ms since 1970, by the program's clock.
    pub at: u64,
}

/// The latest value of a metric.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Metric {
    /// The value.
    pub value: Figure,
    /// After how many steps.
    pub step: Option<u64>,
    /// When, in ms since 1970.
    pub at: u64,
}

impl Metric {
    /// A metric by its name.
    pub fn of(said: ReportedMetric) -> (String, Metric) {
        let ReportedMetric { name, value, step, at } = said;
        (name, Metric { value, step, at })
    }
}

/// A number of any kind. JSON has none that is infinite or not a number at all; they travel as words, because a loss that
/// has become one is worth seeing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Figure(pub f64);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Word(String),
}

impl From<Figure> for Written {
    fn from(figure: Figure) -> Written {
        match figure.0.is_finite() {
            true => Written::Number(figure.0),
            false => Written::Word(figure.0.to_string()),
        }
    }
}

impl TryFrom<Written> for Figure {
    type Error = String;

    fn try_from(written: Written) -> Result<Figure, String> {
        match written {
            Written::Number(number) => Ok(Figure(number)),
            Written::Word(word) => match word.parse() {
                Ok(number) => Ok(Figure(number)),
                Err(_) => Err("a value is a number".to_owned()),
            },
        }
    }
}

/// `GET /v1/history?after=N`: events of the job from number N on (counted from 0).
#[derive(Debug, Serialize, Deserialize)]
pub struct History {
    /// The number of the next one that will come.
    pub next: u64,
    /// Those there are, oldest first; at most a thousand at a time.
    pub events: Vec<HistoryEvent>,
}

/// `POST /v1/kill`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kill {
    /// Who wants it, for the record.
    pub by: String,
    /// Without grace.
    pub now: bool,
}

/// `POST /v1/scale`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scale {
    /// Which role.
    pub role: String,
    /// How many tasks it should have.
    pub instances: u32,
}

/// What the answer to a read of logs says beside the bytes: how long the file is now.
pub const LENGTH_HEADER: &str = "ydl-length";
/// And whether it will stay so.
pub const ENDED_HEADER: &str = "ydl-ended";
/// The most that one read of logs brings.
pub const LOG_BYTES_MAX: u64 = 128 << 10;

/// Somebody wants to see what a live task prints, or to reach one of its ports. An agent that waits for its order is told by an answer of status 202
/// with a list of these, and says what it finds by `POST /v1/logged?wish=ID`, or leads to the port by
/// `POST /v1/forwarded?wish=ID`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogWish {
    /// Under which the answer is expected.
    pub id: u64,
    /// Whose logs.
    pub task: TaskId,
    /// What of them.
    pub want: LogWant,
}

/// What of a task's logs is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogWant {
    /// `GET /v1/logs?task=worker:0`: which files there are, as a list of [`LogAttempt`].
    List,
    /// `GET /v1/logs?task=worker:0&attempt=1&file=stdout.0&offset=N&wait_ms=M`: bytes from there on. Answered when there
    /// are some, when there will be none, or after the wait.
    Read {
        /// Of which attempt.
        attempt: u32,
        /// Of which file.
        file: String,
        /// The first byte wanted.
        offset: u64,
        /// How many at most.
        bytes_max: u64,
        /// How long to wait for the first.
        wait_ms: u64,
    },
    /// `POST /v1/port-forward?task=tensorboard:0&port=http`: a connection to a port of its program. It is answered by a change of
    /// protocol once the agent is connected to the port and to the master; from then on it carries what both ends say.
    Open {
        /// The port's name; the role's only one if not said.
        port: Option<String>,
    },
}

/// The longest name of a port that is asked for, and the longest reason why there is none.
pub const OPEN_WORDS_MAX: usize = 512;

/// The logs of an attempt that an agent has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAttempt {
    /// Which one.
    pub attempt: u32,
    /// Its files.
    pub files: Vec<LogFile>,
}

/// A file of logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFile {
    /// As `stdout.0`.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
}
