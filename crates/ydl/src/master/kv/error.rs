//! Errors of the store.

use std::fmt;

use super::{
    EVENT_BYTES_MAX, KEY_BYTES_MAX, KEYS_MAX, NAME_BYTES_MAX, STEPS_MAX, STORE_BYTES_MAX,
    TRANSACTION_BYTES_MAX, TRANSACTION_ENTRIES_MAX, VALUE_BYTES_MAX, WAITERS_MAX,
};

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvError {
    KeyLength {
        length: usize,
    },
    KeyLetter {
        letter: char,
    },
    NameLength {
        length: usize,
    },
    NameLetter {
        letter: char,
    },
    ValueTooLong {
        key: String,
        length: usize,
    },
    EventTooLong {
        name: String,
        length: usize,
    },
    /// The precondition failed; `found` is the key's revision.
    Changed {
        key: String,
        found: Option<u64>,
    },
    /// A step keeps the value of a key that does not exist.
    NoValue {
        key: String,
    },
    /// A transaction has too many conditions or steps.
    TooManySteps {
        count: usize,
    },
    /// The steps of a transaction read or delete too many entries.
    TooManyEntries,
    /// The entries that a transaction returns are too large.
    ResultTooLarge,
    TooManyKeys,
    Full,
    TooManyWaiters,
}

impl KvError {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::KeyLength { .. }
            | Self::KeyLetter { .. }
            | Self::NameLength { .. }
            | Self::NameLetter { .. }
            | Self::NoValue { .. } => 400,
            Self::Changed { .. } => 409,
            Self::ValueTooLong { .. }
            | Self::EventTooLong { .. }
            | Self::TooManySteps { .. }
            | Self::TooManyEntries
            | Self::ResultTooLarge => 413,
            Self::TooManyWaiters => 503,
            Self::TooManyKeys | Self::Full => 507,
        }
    }

    /// Returns a hint, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ValueTooLong { .. } | Self::EventTooLong { .. } => {
                Some("keep large data in a file and give its path")
            }
            Self::TooManySteps { .. } | Self::TooManyEntries => Some("use several transactions"),
            Self::ResultTooLarge => {
                Some("use smaller ranges or `keys_only`, or list the keys page by page")
            }
            Self::TooManyKeys | Self::Full => Some("delete unused keys, or give them an owner"),
            Self::Changed { .. } => Some("read the key again before you write it"),
            _ => None,
        }
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyLength { length } => {
                write!(f, "a key has 1 to {KEY_BYTES_MAX} bytes, not {length}")
            }
            Self::KeyLetter { letter } => {
                write!(f, "a key cannot contain `{}`", letter.escape_default())
            }
            Self::NameLength { length } => {
                write!(f, "an event's name has 1 to {NAME_BYTES_MAX} bytes, not {length}")
            }
            Self::NameLetter { letter } => {
                write!(f, "an event's name cannot contain `{}`", letter.escape_default())
            }
            Self::ValueTooLong { key, length } => write!(
                f,
                "the value of `{key}` has {length} bytes, and a value has at most {VALUE_BYTES_MAX}"
            ),
            Self::EventTooLong { name, length } => write!(
                f,
                "the event `{name}` has {length} bytes, and an event has at most {EVENT_BYTES_MAX}"
            ),
            Self::Changed { key, found: Some(revision) } => {
                write!(f, "`{key}` was not written: it has revision {revision} by now")
            }
            Self::Changed { key, found: None } => {
                write!(f, "`{key}` was not written: the key does not exist any more")
            }
            Self::NoValue { key } => {
                write!(f, "`{key}` does not exist, so it has no value to keep")
            }
            Self::TooManySteps { count } => write!(
                f,
                "the transaction has {count} conditions and steps, and the maximum is {STEPS_MAX}"
            ),
            Self::TooManyEntries => write!(
                f,
                "the transaction reads or deletes more than {TRANSACTION_ENTRIES_MAX} entries"
            ),
            Self::ResultTooLarge => write!(
                f,
                "the transaction would return more than {TRANSACTION_BYTES_MAX} bytes of keys and values"
            ),
            Self::TooManyKeys => write!(f, "the store has {KEYS_MAX} keys, the most it can hold"),
            Self::Full => {
                write!(f, "keys and values would take more than {STORE_BYTES_MAX} bytes")
            }
            Self::TooManyWaiters => write!(f, "{WAITERS_MAX} requests are waiting, the maximum"),
        }
    }
}

impl std::error::Error for KvError {}

pub(super) fn check_key(key: &str) -> Result<(), KvError> {
    match key.len() {
        1..=KEY_BYTES_MAX => check_prefix(key),
        length => Err(KvError::KeyLength { length }),
    }
}

/// Checks a prefix: a key that may be empty.
pub(super) fn check_prefix(prefix: &str) -> Result<(), KvError> {
    match prefix.chars().find(|letter| !is_printable(*letter)) {
        _ if prefix.len() > KEY_BYTES_MAX => Err(KvError::KeyLength { length: prefix.len() }),
        Some(letter) => Err(KvError::KeyLetter { letter }),
        None => Ok(()),
    }
}

pub(super) fn check_name(name: &str) -> Result<(), KvError> {
    match name.chars().find(|letter| !is_printable(*letter)) {
        _ if !(1..=NAME_BYTES_MAX).contains(&name.len()) => {
            Err(KvError::NameLength { length: name.len() })
        }
        Some(letter) => Err(KvError::NameLetter { letter }),
        None => Ok(()),
    }
}

fn is_printable(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace())
}
