//! Events of a job's history.

use serde_json::Value;

/// Start of an attempt: `attempt-started`.
#[derive(Clone, Debug)]
pub struct AttemptStart {
    pub task: String,
    pub attempt: u64,
    pub container: String,
    pub node: String,
    /// Milliseconds since the epoch.
    pub at: u64,
}

/// End of an attempt: `attempt-ended`.
#[derive(Clone, Debug)]
pub struct AttemptEnd {
    pub task: String,
    pub attempt: u64,
    pub node: String,
    pub ending: Value,
    pub next: Value,
}

impl AttemptStart {
    /// Returns `None` for other events.
    pub(super) fn of((at, event): (u64, Value)) -> Option<AttemptStart> {
        let start = event.get("attempt-started")?;
        Some(AttemptStart {
            task: text(&start["task"]),
            attempt: start["attempt"].as_u64().expect("a number"),
            container: text(&start["container"]),
            node: text(&start["node"]),
            at,
        })
    }
}

impl AttemptEnd {
    /// Returns `None` for other events.
    pub(super) fn of((_, event): (u64, Value)) -> Option<AttemptEnd> {
        let end = event.get("attempt-ended")?;
        Some(AttemptEnd {
            task: text(&end["task"]),
            attempt: end["attempt"].as_u64().expect("a number"),
            node: text(&end["node"]),
            ending: end["ending"].clone(),
            next: end["disposition"].clone(),
        })
    }
}

/// Splits an event into its time and its kind.
pub(super) fn event(event: Value) -> (u64, Value) {
    let at = event["at"].as_u64().expect("a time");
    (at, event["kind"].clone())
}

/// Returns true if an event, with or without data, has this name.
pub fn is_event(event: &Value, name: &str) -> bool {
    event == name || event.get(name).is_some()
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
