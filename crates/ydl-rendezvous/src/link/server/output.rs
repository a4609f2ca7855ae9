//! Output of the link server: records for the journal, frames for agents, log lines.

use serde::{Deserialize, Serialize};
use ydl_core::TaskId;

use crate::{
    base64,
    link::frame::{ConnId, ServerFrame},
    protocol::{Peer, Rejection},
};

/// Journal record of a link event. A new master replays these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkRecord {
    /// A link opened.
    Opened(Peer, ConnId),
    /// A message arrived, at this offset of its link.
    Message(Peer, ConnId, u64, #[serde(with = "base64")] Vec<u8>),
    /// A link ended.
    Closed(Peer, ConnId),
    /// The retry timer expired.
    RetryDue,
}

/// Result of an input to the link server.
#[derive(Debug, Default)]
pub struct LinkOutput {
    /// Records to persist, in order, before anything else happens.
    pub records: Vec<LinkRecord>,
    /// Frames to send afterwards.
    pub frames: Vec<(TaskId, ServerFrame)>,
    /// Lines for the job's log.
    pub log: Vec<String>,
    /// Links closed because of their input.
    pub rejected: Vec<(Peer, Rejection)>,
}

impl LinkOutput {
    pub(super) fn send(&mut self, peer: &Peer, frame: ServerFrame) {
        self.frames.push((peer.task.clone(), frame));
    }

    pub(super) fn append(&mut self, mut other: LinkOutput) {
        self.records.append(&mut other.records);
        self.frames.append(&mut other.frames);
        self.log.append(&mut other.log);
        self.rejected.append(&mut other.rejected);
    }
}
