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
const EVERY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// A look is followed by so many times its own length without one: a NameNode has others to serve.
const REST: u32 = 10;
/// Maximum time for one listing.
const LOOK_MAX: Duration = Duration::from_secs(300);
/// Read at once.
const PIECE_BYTES: usize = 2 << 20;
/// The end of what is here is compared before more is added to it.
const SEAM_BYTES: u64 = 4 << 10;
/// All that is brought: nodes are shared, and TensorBoard reads all of it into its memory.
const BYTES_MAX: u64 = 4 << 30;

/// Brings what TensorBoard reads.
pub(super) async fn follow(config: Config, url: String, to: PathBuf) -> Result<Exit, Report> {
    let mut brought = LogdirCopy { to, room: BYTES_MAX, known: BTreeMap::new() };
    let mut ways = FileSystems::of(config.clone())?;
    let mut said = String::new();
    loop {
        let began = Instant::now();
        let looked = brought.look(&ways, &url, began + LOOK_MAX).await;
        let news = match looked {
            Ok(0) => String::new(),
            Ok(left) => {
                let mib = BYTES_MAX >> 20;
                format!("is shown in part: its newest {mib} MiB, without {left} older files")
            }
            Err(report) => {
                // The tokens that it was opened with may have ended.
                ways = FileSystems::of(config.clone())?;
                format!("cannot be shown yet: {}", report.what)
            }
        };
        // Said once: what stands in the way may stand there for hours.
        if news != said {
            if !news.is_empty() {
                eprintln!("ydl: `{url}` {news}");
            }
            said = news;
        }
        sleep((began.elapsed() * REST).clamp(EVERY.0, EVERY.1)).await;
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
    room: u64,
    known: BTreeMap<String, FileCopy>,
}

impl LogdirCopy {
    /// Brings what is new, and takes away what is gone. How many files there is no room for.
    async fn look(
        &mut self,
        ways: &FileSystems,
        url: &str,
        deadline: Instant,
    ) -> Result<usize, Report> {
        let hdfs = ways.to(url, deadline).await?;
        let found = list_source(url.trim_end_matches('/'), Some(hdfs.clone()), deadline).await?;
        let shown = found.files.iter().filter(|file| is_shown(&file.name));
        let (fits, left) = fitting(shown.collect(), self.room);
        if found.there {
            self.forget(&fits);
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
    fn forget(&mut self, stay: &[&ListedFile]) {
        let to = &self.to;
        let names: BTreeSet<_> = stay.iter().map(|file| &file.name).collect();
        self.known.retain(|name, _| {
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
        let known = self.known.get(&file.name).copied().unwrap_or_default();
        let is_same = (known.modified_ms, known.bytes) == (file.modified_ms, file.bytes);
        let Some(place) = data::below(&self.to, &file.name) else {
            return Ok(());
        };
        if is_same && known.here == known.bytes {
            return Ok(());
        }
        let here = copy(hdfs, file, &place, known.here, deadline).await?;
        let now = FileCopy { modified_ms: file.modified_ms, bytes: file.bytes, here };
        self.known.insert(file.name.clone(), now);
        Ok(())
    }
}

/// The newest files that there is room for, and how many others there are.
fn fitting(mut files: Vec<&ListedFile>, mut room: u64) -> (Vec<&ListedFile>, usize) {
    let all = files.len();
    files.sort_by_key(|file| std::cmp::Reverse(file.modified_ms));
    files.retain(|file| match room.checked_sub(file.bytes) {
        Some(rest) => {
            room = rest;
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
    let seam = here.saturating_sub(SEAM_BYTES);
    let goes_on = here > 0
        && here <= length
        && match piece(to, seam, here) {
            Ok(ours) => ours == reader.read_at(seam, ours.len(), deadline).await?,
            Err(_) => false,
        };
    let mut here = if goes_on { here } else { 0 };
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
    fn what_is_large_and_not_shown_stays_where_it_is() {
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
    fn what_is_newest_has_room_first() {
        let file = |name: &str, bytes, modified_ms| ListedFile {
            name: name.to_owned(),
            url: String::new(),
            bytes,
            modified_ms,
        };
        let all = [file("old", 5, 1), file("new", 4, 9), file("huge", 90, 8), file("middle", 5, 7)];
        let (fits, left) = fitting(all.iter().collect(), 10);
        let names: Vec<_> = fits.iter().map(|file| &*file.name).collect();
        assert_eq!((names, left), (vec!["new", "middle"], 2));
    }
}
