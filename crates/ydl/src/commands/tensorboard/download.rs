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

/// Between two looks at what is in HDFS, at least and at most.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// A look is followed by so many times its own length without one: a NameNode has others to serve.
const PAUSE_FACTOR: u32 = 10;
/// Maximum time for one listing.
const REFRESH_MAX: Duration = Duration::from_secs(300);
/// Read at once.
const PIECE_BYTES: usize = 2 << 20;
/// The end of what is here is compared before more is added to it.
const OVERLAP_BYTES: u64 = 4 << 10;
/// All that is brought: nodes are shared, and TensorBoard reads all of it into its memory.
const BYTES_MAX: u64 = 4 << 30;

/// Downloads the files that TensorBoard reads.
pub(super) async fn follow(config: Config, url: String, to: PathBuf) -> Result<Exit, Report> {
    let mut copies = LogdirCopy { to, bytes_max: BYTES_MAX, files: BTreeMap::new() };
    let mut file_systems = FileSystems::of(config.clone())?;
    let mut last_message = String::new();
    loop {
        let began = Instant::now();
        let refreshed = copies.refresh(&file_systems, &url, began + REFRESH_MAX).await;
        let message = match refreshed {
            Ok(0) => String::new(),
            Ok(left) => {
                let mib = BYTES_MAX >> 20;
                format!("is shown in part: its newest {mib} MiB, without {left} older files")
            }
            Err(report) => {
                // The tokens that it was opened with may have ended.
                file_systems = FileSystems::of(config.clone())?;
                format!("cannot be shown yet: {}", report.what)
            }
        };
        // Said once: what stands in the way may stand there for hours.
        if message != last_message {
            if !message.is_empty() {
                eprintln!("ydl: `{url}` {message}");
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
    here: u64,
}

/// Local copies.
#[derive(Debug)]
struct LogdirCopy {
    to: PathBuf,
    bytes_max: u64,
    files: BTreeMap<String, FileCopy>,
}

impl LogdirCopy {
    /// Brings what is new, and takes away what is gone. How many files there is no room for.
    async fn refresh(
        &mut self,
        file_systems: &FileSystems,
        url: &str,
        deadline: Instant,
    ) -> Result<usize, Report> {
        let hdfs = file_systems.to(url, deadline).await?;
        let found = list_source(url.trim_end_matches('/'), Some(hdfs.clone()), deadline).await?;
        let shown = found.files.iter().filter(|file| is_shown(&file.name));
        let (fits, left) = newest_within(shown.collect(), self.bytes_max);
        if found.there {
            self.remove_deleted(&fits);
        }
        let mut failed = None;
        for file in fits {
            if let Err(report) = self.download(&hdfs, file, deadline).await {
                failed = Some(report);
            }
        }
        failed.map_or(Ok(left), Err)
    }

    /// Removes what is not to be here any more.
    fn remove_deleted(&mut self, stay: &[&ListedFile]) {
        let to = &self.to;
        let names: BTreeSet<_> = stay.iter().map(|file| &file.name).collect();
        self.files.retain(|name, _| {
            let stays = names.contains(name);
            if !stays && let Some(place) = data::below(to, name) {
                // What cannot be removed is only shown for longer.
                let _ = fs::remove_file(place);
            }
            stays
        });
    }

    async fn download(
        &mut self,
        hdfs: &Hdfs,
        file: &ListedFile,
        deadline: Instant,
    ) -> Result<(), Report> {
        let files = self.files.get(&file.name).copied().unwrap_or_default();
        let is_same = (files.modified_ms, files.bytes) == (file.modified_ms, file.bytes);
        let Some(place) = data::below(&self.to, &file.name) else {
            return Ok(());
        };
        if is_same && files.here == files.bytes {
            return Ok(());
        }
        let here = copy(hdfs, file, &place, files.here, deadline).await?;
        let now = FileCopy { modified_ms: file.modified_ms, bytes: file.bytes, here };
        self.files.insert(file.name.clone(), now);
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
    let left = all - files.len();
    (files, left)
}

/// Returns whether TensorBoard reads it: beside what is to be shown, a directory of checkpoints holds what is large.
fn is_shown(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.contains("tfevents") || name.split('/').any(|part| part == "plugins")
}

/// Brings a file of which so much is here; how much is here now. What grew goes on where it ended, so that TensorBoard
/// can, too. What became shorter, or ends otherwise where it ended here, is another file. It may grow while it is read,
/// and no more is taken than was listed: there is room for that.
async fn copy(
    hdfs: &Hdfs,
    file: &ListedFile,
    to: &Path,
    here: u64,
    deadline: Instant,
) -> Result<u64, Report> {
    let reader = hdfs.open(&file.url, deadline).await?;
    let cannot = |error: io::Error| {
        let why = reason(&error);
        Report::internal(format!("cannot write `{}`: {why}", to.display()))
    };
    let length = reader.length().min(file.bytes);
    let overlap = here.saturating_sub(OVERLAP_BYTES);
    let continues = here > 0
        && here <= length
        && match piece(to, overlap, here) {
            Ok(ours) => ours == reader.read_at(overlap, ours.len(), deadline).await?,
            Err(_) => false,
        };
    let mut here = if continues { here } else { 0 };
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).map_err(cannot)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(here == 0);
    let mut file = options.open(to).map_err(cannot)?;
    file.seek(SeekFrom::Start(here)).map_err(cannot)?;
    while here < length {
        let most = (length - here).min(PIECE_BYTES as u64) as usize;
        let piece = reader.read_at(here, most, deadline).await?;
        if piece.is_empty() {
            break;
        }
        file.write_all(&piece).map_err(cannot)?;
        here += piece.len() as u64;
    }
    Ok(here)
}

/// Reads a range of a local file.
fn piece(path: &Path, from: u64, to: u64) -> io::Result<Vec<u8>> {
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
        let (fits, left) = newest_within(all.iter().collect(), 10);
        let names: Vec<_> = fits.iter().map(|file| &*file.name).collect();
        assert_eq!((names, left), (vec!["new", "middle"], 2));
    }
}
