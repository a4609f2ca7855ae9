//! Downloads TensorBoard's log directory to its node, repeatedly, within a size limit.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use yarn_native::config::Config;
use ydl_os::{
    reason,
    report::{Exit, Report},
};
use ydl_storage::{
    data::{self, ListedFile, list_source},
    hdfs::{FileSystems, Hdfs},
};

/// Shortest and longest interval between two refreshes.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// Ratio of the pause after a refresh to its duration, to limit the load on the NameNode.
const PAUSE_FACTOR: u32 = 10;
/// Maximum time for one refresh.
const REFRESH_MAX: Duration = Duration::from_secs(300);
/// Maximum size of one read.
const PIECE_BYTES: usize = 2 << 20;
/// Bytes at the end of a local copy that are compared with the source before more is appended.
const OVERLAP_BYTES: u64 = 4 << 10;
/// Maximum size of all copies: nodes are shared, and TensorBoard reads everything into memory.
const BYTES_MAX: u64 = 4 << 30;

/// Downloads the files that TensorBoard reads.
pub(super) async fn follow(config: Config, url: String, to: PathBuf) -> Result<Exit, Report> {
    let mut copies = LogdirCopy { to, bytes_max: BYTES_MAX, files: BTreeMap::new() };
    let mut file_systems = FileSystems::of(config.clone())?;
    let mut last_message = String::new();
    loop {
        let began = Instant::now();
        let result = copies.refresh(&file_systems, &url, began + REFRESH_MAX).await;
        let message = match result {
            Ok(0) => String::new(),
            Ok(skipped) => {
                let mib = BYTES_MAX >> 20;
                format!(
                    "showing the newest {mib} MiB of `{url}`; {skipped} older files are skipped"
                )
            }
            Err(report) => {
                // The delegation tokens may have expired.
                file_systems = FileSystems::of(config.clone())?;
                format!("cannot show `{url}` yet: {}", report.what)
            }
        };
        // Printed once: the error may persist for hours.
        if message != last_message {
            if !message.is_empty() {
                eprintln!("ydl: {message}");
            }
            last_message = message;
        }
        sleep((began.elapsed() * PAUSE_FACTOR).clamp(INTERVAL.0, INTERVAL.1)).await;
    }
}

/// Length and source version of a local copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileCopy {
    modified_ms: u64,
    bytes: u64,
    copied: u64,
}

/// Local copies.
#[derive(Debug)]
struct LogdirCopy {
    to: PathBuf,
    bytes_max: u64,
    files: BTreeMap<String, FileCopy>,
}

impl LogdirCopy {
    /// Downloads new data and removes deleted files. Returns the number of files skipped for lack of space.
    async fn refresh(
        &mut self,
        file_systems: &FileSystems,
        url: &str,
        deadline: Instant,
    ) -> Result<usize, Report> {
        let hdfs = file_systems.to(url, deadline).await?;
        let found = list_source(url.trim_end_matches('/'), Some(file_systems), deadline).await?;
        let shown = found.files.iter().filter(|file| is_shown(&file.name));
        let (selected, skipped) = newest_within(shown.collect(), self.bytes_max);
        if found.there {
            self.remove_deleted(&selected);
        }
        let mut failure = None;
        for file in selected {
            if let Err(report) = self.download(&hdfs, file, deadline).await {
                failure = Some(report);
            }
        }
        failure.map_or(Ok(skipped), Err)
    }

    /// Removes copies of files that are not selected any more.
    fn remove_deleted(&mut self, selected: &[&ListedFile]) {
        let to = &self.to;
        let names: BTreeSet<_> = selected.iter().map(|file| &file.name).collect();
        self.files.retain(|name, _| {
            let is_selected = names.contains(name);
            if !is_selected && let Some(path) = data::below(to, name) {
                // If this fails, TensorBoard keeps showing the file.
                let _ = fs::remove_file(path);
            }
            is_selected
        });
    }

    async fn download(
        &mut self,
        hdfs: &Hdfs,
        file: &ListedFile,
        deadline: Instant,
    ) -> Result<(), Report> {
        let last = self.files.get(&file.name).copied().unwrap_or_default();
        let is_same = (last.modified_ms, last.bytes) == (file.modified_ms, file.bytes);
        let Some(path) = data::below(&self.to, &file.name) else {
            return Ok(());
        };
        if is_same && last.copied == last.bytes {
            return Ok(());
        }
        let copied = copy(hdfs, file, &path, last.copied, deadline).await?;
        let current = FileCopy { modified_ms: file.modified_ms, bytes: file.bytes, copied };
        self.files.insert(file.name.clone(), current);
        Ok(())
    }
}

/// Returns the newest files within the limit, and the number of the others.
fn newest_within(mut files: Vec<&ListedFile>, mut bytes_max: u64) -> (Vec<&ListedFile>, usize) {
    let all = files.len();
    files.sort_by_key(|file| std::cmp::Reverse(file.modified_ms));
    files.retain(|file| match bytes_max.checked_sub(file.bytes) {
        Some(rest) => {
            bytes_max = rest;
            true
        }
        None => false,
    });
    let skipped = all - files.len();
    (files, skipped)
}

/// Returns whether TensorBoard reads a file. A directory of checkpoints also holds large files that it does not read.
fn is_shown(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.contains("tfevents") || name.split('/').any(|part| part == "plugins")
}

/// Updates a copy of which `copied` bytes exist, and returns its new length.
///
/// A file that grew is appended to, so that TensorBoard continues where it stopped. A file that is shorter, or differs in
/// the last bytes of the copy, was replaced and is copied from the start. A file may grow meanwhile; only its listed
/// length is read, for which there is space.
async fn copy(
    hdfs: &Hdfs,
    file: &ListedFile,
    to: &Path,
    copied: u64,
    deadline: Instant,
) -> Result<u64, Report> {
    let reader = hdfs.open(&file.url, deadline).await?;
    let cannot = |error: io::Error| {
        let why = reason(&error);
        Report::internal(format!("cannot write `{}`: {why}", to.display()))
    };
    let length = reader.length().min(file.bytes);
    let overlap = copied.saturating_sub(OVERLAP_BYTES);
    let continues = copied > 0
        && copied <= length
        && match read_range(to, overlap, copied) {
            Ok(local) => local == reader.read_at(overlap, local.len(), deadline).await?,
            Err(_) => false,
        };
    let mut copied = if continues { copied } else { 0 };
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).map_err(cannot)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(copied == 0);
    let mut file = options.open(to).map_err(cannot)?;
    file.seek(SeekFrom::Start(copied)).map_err(cannot)?;
    while copied < length {
        let bytes = (length - copied).min(PIECE_BYTES as u64) as usize;
        let piece = reader.read_at(copied, bytes, deadline).await?;
        if piece.is_empty() {
            break;
        }
        file.write_all(&piece).map_err(cannot)?;
        copied += piece.len() as u64;
    }
    Ok(copied)
}

/// Reads a range of a local file.
fn read_range(path: &Path, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (to - from) as usize];
    File::open(path)?.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_tensorboard_reads_are_downloaded() {
        for name in [
            "events.out.tfevents.1.host",
            "train/events.out.tfevents.1.host.v2",
            "plugins/profile/1/host.xplane.pb",
        ] {
            assert!(is_shown(name), "{name}");
        }
        for name in ["model.ckpt-1.data", "checkpoint", "tfevents/weights.bin"] {
            assert!(!is_shown(name), "{name}");
        }
    }

    #[test]
    fn the_newest_files_are_chosen_first() {
        let file = |name: &str, bytes, modified_ms| ListedFile {
            name: name.to_owned(),
            url: String::new(),
            bytes,
            modified_ms,
        };
        let all = [file("old", 5, 1), file("new", 4, 9), file("huge", 90, 8), file("middle", 5, 7)];
        let (selected, skipped) = newest_within(all.iter().collect(), 10);
        let names: Vec<_> = selected.iter().map(|file| &*file.name).collect();
        assert_eq!((names, skipped), (vec!["new", "middle"], 2));
    }
}
