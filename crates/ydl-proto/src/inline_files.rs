//! Small files that every container of a job on a cluster needs. They are passed in its credentials, so a node that has
//! the job's other files downloads nothing, and containers start sooner.

use crate::version::{from_json, to_json_line};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, io, path::Path};

/// Name of the files among the credentials.
pub const INLINE_FILES: &str = "ydl.files";
/// Names of the files that may be inline.
pub const INLINE_FILE_NAMES: [&str; 4] =
    ["job.json", "certificate.pem", "hadoop.json", "inputs.json"];
/// Maximum size of all inline files; larger ones are downloaded from HDFS. A ResourceManager may keep what is submitted
/// in ZooKeeper, which accepts a megabyte.
const BYTES_MAX: usize = 256 << 10;

/// Texts of files by their names.
#[derive(Serialize, Deserialize)]
struct InlineFiles<S: Ord> {
    files: BTreeMap<S, S>,
}

/// Packs the texts of files by their names. Returns `None` if they are too large.
pub fn pack(files: BTreeMap<&str, &str>) -> Option<Vec<u8>> {
    let bytes = to_json_line(&InlineFiles { files }).ok()?;
    (bytes.len() <= BYTES_MAX).then_some(bytes)
}

/// Writes packed files into a container's directory.
pub fn unpack(bytes: &[u8], dir: &Path) -> io::Result<()> {
    let InlineFiles::<String> { files } = from_json(bytes)?;
    for (name, text) in files {
        // Write no other file: the content is untrusted.
        if INLINE_FILE_NAMES.contains(&name.as_str()) {
            fs::write(dir.join(name), text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_files_are_written_and_files_of_other_names_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("job.json", "{}"), ("../outside", "no"), ("other", "no")];
        let bytes = pack(files.into()).expect("small files");
        unpack(&bytes, dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("job.json")).unwrap(), "{}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(unpack(b"{", dir.path()).is_err());
        let large = "x".repeat(BYTES_MAX);
        assert_eq!(pack([("job.json", large.as_str())].into()), None);
    }

    #[test]
    fn files_of_another_version_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let error = |json: &str| unpack(json.as_bytes(), dir.path()).unwrap_err().to_string();
        assert!(error(r#"{"version":2,"files":[]}"#).contains("unsupported file version 2"));
        assert!(error(r#"{"job.json":"{}"}"#).contains("has no version"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
