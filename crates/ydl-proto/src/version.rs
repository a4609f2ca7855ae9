//! Versions of messages and files.
//!
//! All processes of a job are the same binary, so one of another version is an error: a client that is older or newer
//! than the job, or a job's directory of another version. Versions make that an error with a clear message.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fmt, fs,
    io::{self, Read},
    path::Path,
};

/// Version of the messages between client, master and agent. Increased with every incompatible change.
pub const PROTOCOL_VERSION: u32 = 1;
/// Header of requests and responses with the [`PROTOCOL_VERSION`] of the sender.
pub const VERSION_HEADER: &str = "ydl-version";
/// Version of the JSON files of a job, in their field `version`. Increased with every incompatible change.
pub(crate) const FILE_VERSION: u32 = 1;
/// Hint of errors about an unsupported version.
pub const VERSION_HINT: &str = "use the version of `ydl` that submitted the job";

/// Content of a file with its version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// Version of a file, whatever else it contains.
#[derive(Deserialize)]
struct FileVersion {
    version: Option<u32>,
}

/// Error of reading a versioned file.
#[derive(Debug)]
pub enum FileError {
    /// The content is malformed.
    Malformed(serde_json::Error),
    /// The file has another version, or none.
    Unsupported(Option<u32>),
}

impl FileError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            FileError::Malformed(_) => None,
            FileError::Unsupported(_) => Some(VERSION_HINT),
        }
    }

    /// Returns true if the file has another version, or none.
    pub fn is_version(&self) -> bool {
        matches!(self, FileError::Unsupported(_))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Malformed(error) => error.fmt(f),
            FileError::Unsupported(Some(found)) => {
                write!(
                    f,
                    "unsupported file version {found}: this `ydl` reads version {FILE_VERSION}"
                )
            }
            FileError::Unsupported(None) => {
                write!(f, "the file has no version: this `ydl` reads version {FILE_VERSION}")
            }
        }
    }
}

impl std::error::Error for FileError {}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Serializes a file with its version, for people to read, too.
pub fn to_json(content: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(&Versioned { version: FILE_VERSION, content })
}

/// Serializes a line of a file with its version.
pub fn to_json_line(content: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Versioned { version: FILE_VERSION, content })?;
    line.push(b'\n');
    Ok(line)
}

/// Parses a file, or a line of one, after checking its version.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FileError> {
    let FileVersion { version } = serde_json::from_slice(bytes).map_err(FileError::Malformed)?;
    if version != Some(FILE_VERSION) {
        return Err(FileError::Unsupported(version));
    }
    serde_json::from_slice(bytes).map_err(FileError::Malformed)
}

/// Checks the version of the first JSON value that a reader returns: a whole file, or its first line. Accepts malformed
/// content.
pub(crate) fn check_first(reader: impl Read) -> Result<(), FileError> {
    let mut values = serde_json::Deserializer::from_reader(reader).into_iter::<FileVersion>();
    match values.next() {
        Some(Ok(FileVersion { version })) if version != Some(FILE_VERSION) => {
            Err(FileError::Unsupported(version))
        }
        _ => Ok(()),
    }
}

/// Writes a file with its version atomically: readers see the whole file or none.
pub fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let temporary = path.with_extension("aside");
    fs::write(&temporary, to_json(content)?)?;
    fs::rename(&temporary, path)
}

/// Checks the version in a message's header. Returns what is wrong with it.
pub fn check_protocol(header: Option<&str>) -> Result<(), String> {
    match header {
        Some(found) if found.parse() == Ok(PROTOCOL_VERSION) => Ok(()),
        Some(found) => Err(format!(
            "it uses protocol version {}, this `ydl` uses version {PROTOCOL_VERSION}",
            found.escape_debug()
        )),
        None => {
            Err(format!("it has no protocol version, this `ydl` uses version {PROTOCOL_VERSION}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Example {
        name: String,
    }

    #[test]
    fn a_file_is_written_with_its_version_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("example.json");
        let example = Example { name: "a".into() };
        write_json(&path, &example).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\n  \"version\": 1,\n  \"name\": \"a\"\n}");
        assert_eq!(from_json::<Example>(text.as_bytes()).unwrap(), example);
        let line = to_json_line(&example).unwrap();
        assert_eq!(line, b"{\"version\":1,\"name\":\"a\"}\n");
        assert_eq!(from_json::<Example>(&line).unwrap(), example);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_another_version_or_of_none_is_rejected_whatever_it_contains() {
        let error = |text: &str| from_json::<Example>(text.as_bytes()).unwrap_err();
        for text in [r#"{"version":2,"name":"a"}"#, r#"{"version":2,"names":[]}"#] {
            let error = error(text);
            assert_eq!(error.to_string(), "unsupported file version 2: this `ydl` reads version 1");
            assert_eq!(error.hint(), Some(VERSION_HINT));
        }
        let missing = error(r#"{"name":"a"}"#);
        assert_eq!(missing.to_string(), "the file has no version: this `ydl` reads version 1");
        assert!(missing.is_version());
        for text in ["", "{", "[]", r#"{"version":"x"}"#, r#"{"version":1}"#] {
            let error = error(text);
            assert!(!error.is_version() && error.hint().is_none(), "{text}: {error}");
        }
    }

    #[test]
    fn the_version_of_a_first_line_is_checked() {
        let check = |text: &str| check_first(text.as_bytes());
        for good in ["", "{", "\n", "{\"version\":1}\n{\"version\":2}\n", "{\n\"version\": 1\n}"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["{\"version\":2}\n{\"version\":1}\n", "{\"at\":1}\n", "{}"] {
            assert!(check(bad).unwrap_err().is_version(), "{bad}");
        }
    }

    #[test]
    fn another_protocol_version_or_none_is_rejected() {
        assert_eq!(check_protocol(Some("1")), Ok(()));
        let error = |header| check_protocol(header).unwrap_err();
        assert_eq!(error(Some("2")), "it uses protocol version 2, this `ydl` uses version 1");
        assert_eq!(error(None), "it has no protocol version, this `ydl` uses version 1");
        for odd in ["", "one", "1.0", "-1", "99999999999"] {
            assert!(check_protocol(Some(odd)).is_err(), "{odd}");
        }
    }
}
