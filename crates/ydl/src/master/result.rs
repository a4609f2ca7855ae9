//! Final snapshot of a job, written even if the disk is full.
//!
//! A job may fill the disk with its logs. So space for the result is reserved when the job starts.

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
};
use ydl_proto::{files::JobDir, version::to_json};

/// Size of a result: its base size and the size per task.
const RESERVED: (u64, u64) = (32 << 10, 512);

/// Reserves space for the result of that many tasks.
pub(super) fn reserve(dir: &JobDir, tasks: u64) -> io::Result<()> {
    let file = File::create(temporary_file(dir))?;
    let bytes = RESERVED.0 + RESERVED.1 * tasks;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

/// Writes the result atomically.
pub(super) fn write(dir: &JobDir, last: &impl Serialize) -> io::Result<()> {
    let bytes = to_json(last)?;
    let temporary_file = temporary_file(dir);
    // Do not truncate before writing: that would release the reserved space.
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(false).open(&temporary_file)?;
    file.write_all(&bytes)?;
    file.set_len(bytes.len() as u64)?;
    std::fs::rename(&temporary_file, dir.result_file())
}

fn temporary_file(dir: &JobDir) -> PathBuf {
    dir.result_file().with_extension("tmp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_result_is_written_into_its_reserved_space_and_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let dir = JobDir::at(folder.path());
        reserve(&dir, 100).unwrap();
        let room = std::fs::metadata(temporary_file(&dir)).unwrap();
        assert!(room.blocks() * 512 >= 80 << 10, "{} blocks", room.blocks());

        write(&dir, &serde_json::json!({ "outcome": "succeeded" })).unwrap();
        let result = dir.result_file();
        let expected = b"{\n  \"version\": 1,\n  \"outcome\": \"succeeded\"\n}";
        assert_eq!(std::fs::read(&result).unwrap(), expected);
        assert_eq!(std::fs::metadata(&result).unwrap().ino(), room.ino());
        assert!(!temporary_file(&dir).exists());
    }

    #[test]
    fn a_result_is_written_without_reserved_space() {
        let folder = tempfile::tempdir().unwrap();
        let dir = JobDir::at(folder.path());
        write(&dir, &serde_json::json!({})).unwrap();
        assert_eq!(std::fs::read(dir.result_file()).unwrap(), b"{\n  \"version\": 1\n}");
    }
}
