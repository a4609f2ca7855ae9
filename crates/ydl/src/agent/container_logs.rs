//! Programs' output (not the agent's own log) in the log directory of a YARN container.
//!
//! A node shows and aggregates the regular files of this directory by name, without subdirectories. So segments are
//! stored there, and the attempt's log directory has symbolic links to them: the disk holds them once, also if local
//! and log directories are on different disks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use ydl_core::TaskId;

/// Place of the output of one attempt.
#[derive(Clone, Debug)]
pub struct ContainerLogs {
    dir: PathBuf,
    /// Start of each name: role, index and attempt.
    prefix: String,
}

impl ContainerLogs {
    pub fn new(dir: &Path, task: &TaskId, attempt: u32) -> ContainerLogs {
        let prefix = format!("{}-{}.attempt-{attempt}", task.role, task.index);
        ContainerLogs { dir: dir.to_owned(), prefix }
    }

    /// Returns the name of a segment. Users look for the first one, so it has no number.
    pub(super) fn name(&self, stream: &str, index: u64) -> String {
        match index {
            0 => format!("{}.{stream}", self.prefix),
            _ => format!("{}.{stream}.{index}", self.prefix),
        }
    }

    /// Creates a segment with a link to it at `link`.
    pub(super) fn create(&self, stream: &str, index: u64, link: &Path) -> io::Result<File> {
        let path = self.dir.join(self.name(stream, index));
        let file = create(&path)?;
        remove(link)?;
        if let Err(error) = symlink(&path, link) {
            // Without a link it is of no use to readers of the job's logs.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(file)
    }

    /// Removes a segment, if it exists.
    pub(super) fn remove(&self, stream: &str, index: u64) -> io::Result<()> {
        remove(&self.dir.join(self.name(stream, index)))
    }
}

/// Creates or truncates a segment. The group of the container's user, which its node belongs to, may read it.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(path)
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::output::{Capture, OutputSpec, Rotation};
    use crate::logs::{LogReader, LogSegments, StreamChunk};
    use std::io::Write;
    use std::time::Duration;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Captures an output and returns the names of all files in the container's log directory.
    async fn capture(root: &Path, output: &[u8], logs: &Path) -> Vec<String> {
        let spec = OutputSpec {
            dir: root.join("attempt"),
            container_logs: Some(ContainerLogs::new(logs, &"worker:1".parse().unwrap(), 2)),
            rotation: Rotation { segment_bytes: 10, newest: 2 },
        };
        let (mut capture, mut stdout, stderr) = Capture::start(spec).unwrap();
        stdout.write_all(output).unwrap();
        drop((stdout, stderr));
        assert_eq!(capture.finish(TIMEOUT).await.dropped_bytes, 0);
        let names = fs::read_dir(logs).into_iter().flatten();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn read(root: &Path) -> (Vec<u8>, u64) {
        let mut reader = LogReader::new(root.join("attempt"), "stdout", 0);
        let (mut all, mut missing) = (Vec::new(), 0);
        loop {
            match reader.read_some().unwrap() {
                StreamChunk::Data { bytes, .. } => all.extend(bytes),
                StreamChunk::Gap { bytes, .. } => missing += bytes,
                StreamChunk::End => return (all, missing),
            }
        }
    }

    #[tokio::test]
    async fn segments_are_regular_files_of_the_container_and_read_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("container");
        fs::create_dir(&logs).unwrap();
        let output: Vec<u8> = (0..45).map(|at| b'!' + at).collect();
        let names = capture(dir.path(), &output, &logs).await;
        let expected = [
            "worker-1.attempt-2.stderr",
            "worker-1.attempt-2.stdout",
            "worker-1.attempt-2.stdout.3",
            "worker-1.attempt-2.stdout.4",
        ];
        assert_eq!(names, expected);
        for name in expected {
            assert!(logs.join(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        let segments = LogSegments::new(dir.path().join("attempt"), "stdout");
        assert!(segments.path(0).is_symlink());
        assert_eq!(read(dir.path()), ([&output[..10], &output[30..]].concat(), 20));

        // The next program of the same attempt replaces them.
        let names = capture(dir.path(), b"again", &logs).await;
        assert_eq!(names, ["worker-1.attempt-2.stderr", "worker-1.attempt-2.stdout"]);
        assert_eq!(read(dir.path()), (b"again".to_vec(), 0));
    }

    #[tokio::test]
    async fn output_is_rotated_if_the_log_directory_cannot_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("container");
        // Neither created nor removed as files.
        for index in 1..5 {
            fs::create_dir_all(logs.join(format!("worker-1.attempt-2.stdout.{index}"))).unwrap();
        }
        let output: Vec<u8> = (0..45).map(|at| b'!' + at).collect();
        capture(dir.path(), &output, &logs).await;
        assert_eq!(read(dir.path()), ([&output[..10], &output[30..]].concat(), 20));
    }

    #[tokio::test]
    async fn output_stays_in_the_working_directory_if_the_log_directory_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let names = capture(dir.path(), b"still here", &dir.path().join("lost")).await;
        assert!(names.is_empty());
        assert_eq!(read(dir.path()), (b"still here".to_vec(), 0));
    }
}
