//! Exit record of an attempt, stored next to its logs.

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use ydl_core::{ContainerId, ProgramExit, TaskId};

/// Name of the file next to an attempt's logs.
pub(super) const FILE: &str = "exit.json";

/// Content of the exit record.
#[derive(Debug, Serialize)]
pub(super) struct ExitRecord<'a> {
    pub(super) task: &'a TaskId,
    pub(super) attempt: u32,
    pub(super) round: u32,
    pub(super) container: &'a ContainerId,
    pub(super) host: &'a str,
    /// Milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) exit: &'a ProgramExit,
}

/// Returns the present time in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
