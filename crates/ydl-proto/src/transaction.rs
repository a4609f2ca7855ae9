//! JSON messages of transactions on the key-value store: `POST /v1/kv`.

use serde::{Deserialize, Serialize};

use crate::kv::{Blob, Entry};

/// Conditions, and steps that are applied together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// Conditions, all of which must be met.
    #[serde(default, rename = "if", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Steps if the conditions are met.
    #[serde(default, rename = "then", skip_serializing_if = "Vec::is_empty")]
    pub on_success: Vec<Step>,
    /// Steps otherwise.
    #[serde(default, rename = "else", skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<Step>,
}

impl Transaction {
    /// Replaces the owners of conditions and steps: tasks in a request, containers in the store.
    pub fn map_owners<E>(
        &mut self,
        mut map: impl FnMut(&str, OwnerUse) -> Result<String, E>,
    ) -> Result<(), E> {
        for condition in &mut self.conditions {
            if let Condition::Owner { owner, .. } = condition
                && !owner.is_empty()
            {
                *owner = map(owner, OwnerUse::Compared)?;
            }
        }
        for step in self.on_success.iter_mut().chain(&mut self.on_failure) {
            if let Step::Put { owner: Some(owner), .. } = step
                && !owner.is_empty()
            {
                *owner = map(owner, OwnerUse::Assigned)?;
            }
        }
        Ok(())
    }
}

/// Use of an owner in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerUse {
    /// It is compared with the owner of a key.
    Compared,
    /// It becomes the owner of a key.
    Assigned,
}

/// Condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// The key exists.
    Exists { key: String },
    /// The key does not exist.
    Missing { key: String },
    /// The value of the key compares so. Without the key only `!=` is met.
    Value { key: String, operator: Operator, value: Blob },
    /// The owner of the key is this one, or is another one; an empty owner is none. Without the key only another one is.
    Owner { key: String, equal: bool, owner: String },
}

/// Comparison of values, byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    LessOrEqual,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    GreaterOrEqual,
}

/// Step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Reads keys.
    Read {
        /// Keys to read.
        keys: KeyRange,
        /// True to leave out the values.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keys_only: bool,
    },
    /// Deletes keys and returns them.
    Delete {
        /// Keys to delete.
        keys: KeyRange,
        /// True to leave out the values.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keys_only: bool,
    },
    /// Sets a key and returns its earlier entry.
    Put {
        /// The key.
        key: String,
        /// New value; the present one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Blob>,
        /// New owner, empty for none; the present one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
}

/// Range of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyRange {
    /// One key.
    Key(String),
    /// Keys with a prefix.
    Prefix(String),
    /// Keys from `start` on and before `end`.
    Between {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<String>,
    },
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionOutcome {
    /// True if the conditions were met.
    pub succeeded: bool,
    /// Revision of the store afterwards.
    pub revision: u64,
    /// Result of each step: the keys read or deleted, or the earlier entry of a put.
    pub results: Vec<Vec<Entry>>,
}
