//! What travels as JSON. Both ends are one binary, except for the key-value store and events, which
//! user code reads and writes too.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text;

/// The body of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Bytes that are mostly text: `{"text": …}` where they are UTF-8, `{"base64": …}` where not.
/// Shared, so that an answer to many costs no copies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob(pub Arc<[u8]>);

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum WrittenBlob<'a> {
    Text(&'a str),
    Base64(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReadBlob {
    Text(String),
    Base64(String),
}

impl Blob {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match std::str::from_utf8(&self.0) {
            Ok(text) => WrittenBlob::Text(text),
            Err(_) => WrittenBlob::Base64(text::base64(&self.0)),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ReadBlob::deserialize(deserializer)? {
            ReadBlob::Text(text) => Ok(Self::from(text.as_str())),
            ReadBlob::Base64(text) => text::from_base64(&text)
                .map(|bytes| Self(bytes.into()))
                .ok_or_else(|| serde::de::Error::custom("`base64` is not padded base64")),
        }
    }
}

// The key-value store. A single value travels as a plain body with its revision in a header; these
// are the shapes of everything else.

/// The header that carries the revision of a value sent as a plain body.
pub const REVISION_HEADER: &str = "ydl-revision";

/// A key, its value, and when it was last written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub key: String,
    pub value: Blob,
    /// The store's revision that this value came with.
    pub revision: u64,
    /// The container with which the key goes away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// The answer to a put, a delete, and the going of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The store's revision afterwards. A put's entry carries this one.
    pub revision: u64,
    /// How many keys were written or deleted.
    pub keys: u64,
}

/// The entries below a prefix, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// The store's revision that this is a picture of: a watch goes on from here.
    pub revision: u64,
    pub entries: Vec<Entry>,
    /// Whether more follow; a next list starts after the last key given here.
    pub more: bool,
}

/// What became of one key. Only its last change is told: a watcher sees every key come to its
/// newest value, and not each value in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Put(Entry),
    Deleted { key: String, revision: u64 },
}

impl Change {
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key, .. } => key,
        }
    }

    pub fn revision(&self) -> u64 {
        match self {
            Self::Put(entry) => entry.revision,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}

/// The changes below a prefix since a revision, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Changes {
    /// All there were up to `revision`, where the next watch goes on.
    Known { revision: u64, changes: Vec<Change> },
    /// Deletions since then have been forgotten: list anew and watch from the list's revision.
    Resync { revision: u64 },
}

/// Something that user code, or the master, wanted to be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1, over all names.
    pub sequence: u64,
    pub name: String,
    pub data: Blob,
    /// The container it came from; none if it was a person's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The answer to an emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emitted {
    pub sequence: u64,
}

/// Events in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    pub events: Vec<Event>,
    /// Every event up to this one was looked at: the next question goes on from here.
    pub through: u64,
    /// Whether events between the one asked from and the first one kept were dropped.
    pub missed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_text_where_it_can_be_and_comes_back_as_it_was() {
        let check = |bytes: &[u8], json: &str| {
            let blob = Blob::from(bytes);
            assert_eq!(serde_json::to_string(&blob).unwrap(), json);
            assert_eq!(serde_json::from_str::<Blob>(json).unwrap(), blob);
        };
        check(b"", r#"{"text":""}"#);
        check("é\n\0".as_bytes(), r#"{"text":"é\n\u0000"}"#);
        check(&[0xff, 0x00], r#"{"base64":"/wA="}"#);
        for bad in [r#"{"base64":"/w"}"#, r#"{"hex":"00"}"#, r#""text""#, "{}"] {
            assert!(serde_json::from_str::<Blob>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_change_says_in_json_what_happened() {
        let changes = Changes::Known {
            revision: 8,
            changes: vec![
                Change::Put(Entry { key: "a".into(), value: "1".into(), revision: 7, owner: None }),
                Change::Deleted { key: "b".into(), revision: 8 },
            ],
        };
        let json = concat!(
            r#"{"state":"known","revision":8,"changes":["#,
            r#"{"put":{"key":"a","value":{"text":"1"},"revision":7}},"#,
            r#"{"deleted":{"key":"b","revision":8}}]}"#
        );
        assert_eq!(serde_json::to_string(&changes).unwrap(), json);
        assert_eq!(serde_json::from_str::<Changes>(json).unwrap(), changes);
    }
}
