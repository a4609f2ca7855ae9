//! What can be done to the store, and what comes of it.

use serde::{Deserialize, Serialize};

use super::WaiterId;
use ydl_proto::kv::{Blob, Changed, Changes, Emitted, Entry, Events};

/// What changes the store. This is what the journal keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Put {
        key: String,
        value: Blob,
        /// The container with which the key goes away. The caller has made sure that it lives.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only_if: Option<OnlyIf>,
    },
    Delete {
        key: String,
    },
    DeletePrefix {
        prefix: String,
    },
    /// A container is gone, and with it the keys it owned.
    OwnerGone {
        container: String,
    },
    Emit {
        name: String,
        data: Blob,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

/// What must hold for a put to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnlyIf {
    /// There is no such key.
    Absent,
    /// The key was last written with this revision.
    Revision(u64),
}

/// What an operation did, and who need not wait any longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub done: Done,
    pub woken: Vec<Woken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Changed(Changed),
    Emitted(Emitted),
}

/// A waiter that has its answer and is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    pub waiter: WaiterId,
    pub found: Found,
}

/// The answer to a [`Wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Entry(Entry),
    Changes(Changes),
    Events(Events),
}
