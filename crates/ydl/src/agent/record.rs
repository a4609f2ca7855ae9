//! How an attempt ended, for whoever looks for it later.

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use ydl_core::{ContainerId, ProgramExit, TaskId};

/// The file beside an attempt's logs.
pub(super) const FILE: &str = "exit.json";

/// What is in it.
#[derive(Debug, Serialize)]
pub(super) struct ExitRecord<'a> {
    pub(super) task: &'a TaskId,
    pub(super) attempt: u32,
    pub(super) round: u32,
    pub(super) container: &'a ContainerId,
    pub(super) host: &'a str,
    /// In ms since 1970.
    pub(super) at_ms: u64,
    pub(super) exit: &'a ProgramExit,
}

/// The present moment, for a record.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
