//! Identifiers: cheap to clone, ordered, and printed as a user would type them.

use alloc::{borrow::ToOwned, format, string::String, sync::Arc};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name(Arc::from(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Ok($name(Arc::from(String::deserialize(from)?)))
            }
        }
    };
}

name! {
    /// A role of the job: `worker`, `server`, `chief`.
    RoleName
}
name! {
    /// A container id assigned by the backend. Ids are never reused, so they fence messages of
    /// earlier attempts.
    ContainerId
}
name! {
    /// A node that runs containers.
    NodeName
}

/// A task: an index in a role. It keeps its identity over attempts, rounds and containers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The role it belongs to.
    pub role: RoleName,
    /// Index in the role, from 0.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.role, self.index))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TaskId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid task `{text}`: expected a task such as `worker:3`");
        let (role, index) = text.rsplit_once(':').ok_or_else(wrong)?;
        let index = index.parse().map_err(|_| wrong())?;
        if role.is_empty() {
            return Err(wrong());
        }
        Ok(TaskId { role: RoleName::from(role), index })
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{}:{}", self.role, self.index))
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?.to_owned();
        text.parse().map_err(de::Error::custom)
    }
}
