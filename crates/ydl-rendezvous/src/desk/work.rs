//! What follows from something that was heard.

use serde::{Deserialize, Serialize};
use ydl_core::TaskId;

use crate::{
    base64,
    frames::{Call, Down},
    protocol::{Peer, Refusal},
};

/// Something that a new master must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// A link was opened.
    Opened(Peer, Call),
    /// A message, which began at that byte of its link.
    Message(Peer, Call, u64, #[serde(with = "base64")] Vec<u8>),
    /// A link ended.
    Closed(Peer, Call),
    /// It was time to say again what nobody had heeded.
    Reminded,
}

/// What follows from something that was heard.
#[derive(Debug, Default)]
pub struct Work {
    /// To be written down, in this order, before anything else.
    pub keep: Vec<Kept>,
    /// To be told to agents then.
    pub down: Vec<(TaskId, Down)>,
    /// To be told to people.
    pub say: Vec<String>,
    /// Links that were ended because of what came over them.
    pub refused: Vec<(Peer, Refusal)>,
}

impl Work {
    pub(super) fn tell(&mut self, peer: &Peer, down: Down) {
        self.down.push((peer.task.clone(), down));
    }

    pub(super) fn append(&mut self, mut other: Work) {
        self.keep.append(&mut other.keep);
        self.down.append(&mut other.down);
        self.say.append(&mut other.say);
        self.refused.append(&mut other.refused);
    }
}
