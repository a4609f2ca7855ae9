//! Operations on the store and their results.

use serde::{Deserialize, Serialize};

use super::WaiterId;
use ydl_proto::kv::{Blob, Changed, Changes, Emitted, Entry, Events};
use ydl_proto::transaction::{Transaction, TransactionOutcome};

/// Operation that changes the store. The journal records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Put {
        key: String,
        value: Blob,
        /// Container that owns the key; the key is deleted with it. The caller checks that the container is
        /// alive.
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
    /// Conditions and steps. Owners are containers.
    Transact(Transaction),
    /// A container ended; its keys are deleted.
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

/// Precondition of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnlyIf {
    /// The key does not exist.
    Absent,
    /// The key has this revision.
    Revision(u64),
}

/// Result of an operation, and the waiters to wake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub done: Done,
    pub wakeups: Vec<Wakeup>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    Changed(Changed),
    Emitted(Emitted),
    Transacted(TransactionOutcome),
}

/// Waiter that received its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wakeup {
    pub waiter: WaiterId,
    pub result: WaitResult,
}

/// Result of a [`Wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    Entry(Entry),
    Changes(Changes),
    Events(Events),
}
