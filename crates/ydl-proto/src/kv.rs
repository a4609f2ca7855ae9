//! JSON messages of the key-value store and of events, which user code reads and writes too.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Bytes, as `{"text": …}` if they are UTF-8 without control characters other than tabs and line ends, else as
/// `{"base64": …}`: a control character takes six bytes in JSON. Shared, so that a reply to many readers copies
/// nothing.
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
        let is_short = |text: &&str| {
            !text.bytes().any(|byte| byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t'))
        };
        let written = match std::str::from_utf8(&self.0).ok().filter(is_short) {
            Some(text) => WrittenBlob::Text(text),
            None => WrittenBlob::Base64(STANDARD.encode(&self.0)),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ReadBlob::deserialize(deserializer)? {
            ReadBlob::Text(text) => Ok(Self::from(text.as_str())),
            ReadBlob::Base64(text) => STANDARD
                .decode(&text)
                .ok()
                .map(|bytes| Self(bytes.into()))
                .ok_or_else(|| serde::de::Error::custom("`base64` is not padded base64")),
        }
    }
}

/// The header that carries the revision of a value sent as a plain body.
pub const REVISION_HEADER: &str = "ydl-revision";

/// A key with its value and revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub key: String,
    pub value: Blob,
    /// Revision of the store that wrote this value.
    pub revision: u64,
    /// Container with which the key is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// Response to a put, a delete, or the end of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Revision of the store afterwards, which a put's entry carries.
    pub revision: u64,
    /// Number of keys written or deleted.
    pub keys: u64,
}

/// The entries below a prefix, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Revision of this snapshot: a watch continues from here.
    pub revision: u64,
    pub entries: Vec<Entry>,
    /// More entries follow: the next list starts after the last key here.
    pub more: bool,
}

/// Change of one key. Only the last change is reported: a watcher sees the newest value of each key, not every value in
/// between.
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
    /// All changes up to `revision`, where the next watch continues.
    Current { revision: u64, changes: Vec<Change> },
    /// Deletions since then were compacted: list again and watch from that revision.
    Resync { revision: u64 },
}

/// Event emitted by user code or by the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Sequence number from 1, over all names.
    pub sequence: u64,
    pub name: String,
    pub data: Blob,
    /// Container that emitted it; absent for a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Response to an emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emitted {
    pub sequence: u64,
}

/// Events in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    pub events: Vec<Event>,
    /// Last sequence number examined: the next request continues from here.
    pub through: u64,
    /// Events between the requested one and the oldest one kept were dropped.
    pub missed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_round_trips_as_text_or_base64() {
        let check = |bytes: &[u8], json: &str| {
            let blob = Blob::from(bytes);
            assert_eq!(serde_json::to_string(&blob).unwrap(), json);
            assert_eq!(serde_json::from_str::<Blob>(json).unwrap(), blob);
        };
        check(b"", r#"{"text":""}"#);
        check("é\r\n\t\"".as_bytes(), r#"{"text":"é\r\n\t\""}"#);
        check(&[0, 0, 0], r#"{"base64":"AAAA"}"#);
        check(&[0xff, 0x00], r#"{"base64":"/wA="}"#);
        let escaped: Blob = serde_json::from_str(r#"{"text":"\u0000"}"#).unwrap();
        assert_eq!(escaped, Blob::from([0].as_slice()));
        for bad in [r#"{"base64":"/w"}"#, r#"{"hex":"00"}"#, r#""text""#, "{}"] {
            assert!(serde_json::from_str::<Blob>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn changes_have_the_documented_json() {
        let changes = Changes::Current {
            revision: 8,
            changes: vec![
                Change::Put(Entry { key: "a".into(), value: "1".into(), revision: 7, owner: None }),
                Change::Deleted { key: "b".into(), revision: 8 },
            ],
        };
        let json = concat!(
            r#"{"state":"current","revision":8,"changes":["#,
            r#"{"put":{"key":"a","value":{"text":"1"},"revision":7}},"#,
            r#"{"deleted":{"key":"b","revision":8}}]}"#
        );
        assert_eq!(serde_json::to_string(&changes).unwrap(), json);
        assert_eq!(serde_json::from_str::<Changes>(json).unwrap(), changes);
    }
}
