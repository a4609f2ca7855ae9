//! Downloads to the local disk: several files at a time, each atomically, resumed after an interruption.
//!
//! While a file comes it has a name of its own beside its place, which holds when its source was last changed: what is
//! continued is the same file. The library below compares every packet with its checksum; length and time of change are
//! compared here with what was listed.

use super::error::DataError;
use crate::hdfs::{FileSystems, HdfsError, Reader};
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use rustix::fs::OFlags;
use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinHandle, JoinSet, spawn_blocking},
    time::{Instant, sleep},
};
use ydl_os::reason;

/// Concurrent file downloads.
const FILES_AT_ONCE: usize = 8;
/// Size of a chunk.
const CHUNK_BYTES: u64 = 2 << 20;
/// Chunks in flight, per file and in total. They bound the memory use.
const CHUNKS_PER_FILE: usize = 6;
const CHUNKS_MAX: usize = 12;
/// Timeout of one step.
const STEP_MAX: Duration = Duration::from_secs(120);
/// Time without progress after which a download fails.
const STALL_MAX: Duration = Duration::from_secs(600);
/// Initial and maximum backoff between retries while HDFS is unavailable.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// File to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadItem {
    /// Source: a path on this machine, or `hdfs://…`.
    pub url: String,
    /// Destination.
    pub to: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
    /// Modification time in ms since 1970.
    pub modified_ms: u64,
}

impl DownloadItem {
    /// The name it has while it comes. Names may be as long as a directory takes, so that a part of it and what tells it
    /// from others have to do.
    pub fn part(&self) -> PathBuf {
        let name = self.to.file_name().unwrap_or_default();
        // Only the same file of the same source is resumed.
        let whole = [self.url.as_bytes(), b"\0", name.as_encoded_bytes()].concat();
        let digest = digest(&SHA256, &whole);
        let own = hex::encode(&digest.as_ref()[..8]);
        let short: String = name.to_string_lossy().chars().take(50).collect();
        self.to.with_file_name(format!(".{short}.{own}.{:x}.part", self.modified_ms))
    }
}

/// Handling of sources on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalMode {
    /// Link to them.
    #[default]
    Link,
    /// Copy them.
    Copy,
}

/// Progress in bytes.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// Returns the downloaded and the total number of bytes.
    pub fn bytes(&self) -> (u64, u64) {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (of(&self.done), of(&self.all))
    }
}

/// Returns the path of a name below a directory; `None` if the name would lead out of it.
pub fn below(root: &Path, name: &str) -> Option<PathBuf> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    name.split('/').all(plain).then(|| root.join(name))
}

/// Downloads files from HDFS or from this machine.
#[derive(Debug)]
pub struct Downloader {
    ways: Option<FileSystems>,
    near: LocalMode,
    progress: Arc<Progress>,
    deadline: Instant,
    chunks: Arc<Semaphore>,
    /// Time of the last progress.
    moved: Mutex<Instant>,
}

impl Downloader {
    /// Creates a downloader with a deadline.
    pub fn new(
        ways: Option<FileSystems>,
        near: LocalMode,
        progress: Arc<Progress>,
        deadline: Instant,
    ) -> Downloader {
        Downloader {
            ways,
            near,
            progress,
            deadline,
            chunks: Arc::new(Semaphore::new(CHUNKS_MAX)),
            moved: Mutex::new(Instant::now()),
        }
    }

    /// Brings all of them; those that are there already stay. The first that cannot be had ends the others. Dropped
    /// half-way, nothing more comes.
    pub async fn all(self, items: Vec<DownloadItem>) -> Result<(), DataError> {
        let all = items.iter().map(|item| item.bytes).sum();
        self.progress.all.store(all, Ordering::Relaxed);
        self.progress.done.store(0, Ordering::Relaxed);
        let this = Arc::new(self);
        let mut coming = JoinSet::new();
        for item in items {
            if coming.len() >= FILES_AT_ONCE {
                came(coming.join_next().await)?;
            }
            let this = this.clone();
            coming.spawn(async move { this.one(&item).await });
        }
        while let Some(one) = coming.join_next().await {
            came(Some(one))?;
        }
        Ok(())
    }

    /// Retries while HDFS is unavailable.
    async fn one(&self, item: &DownloadItem) -> Result<(), DataError> {
        let mut counted = 0;
        let mut retry = RETRY.0;
        loop {
            let before = counted;
            let Err(trouble) = self.try_one(item, &mut counted).await else {
                return Ok(());
            };
            let now = Instant::now();
            let moved = *self.moved.lock().unwrap_or_else(PoisonError::into_inner);
            if !trouble.is_transient || now + retry > self.deadline || is_stalled(moved, now) {
                return Err(trouble);
            }
            if counted > before {
                retry = RETRY.0;
            }
            tracing::debug!("tried again: {}", trouble.what);
            sleep(retry).await;
            retry = (retry * 2).min(RETRY.1);
        }
    }

    fn soon(&self) -> Instant {
        self.deadline.min(Instant::now() + STEP_MAX)
    }

    /// Records that this much of the file is on disk.
    fn count(&self, counted: &mut u64, is: u64) {
        let done = &self.progress.done;
        match is >= *counted {
            true => done.fetch_add(is - *counted, Ordering::Relaxed),
            false => done.fetch_sub(*counted - is, Ordering::Relaxed),
        };
        let more = is > *counted;
        *counted = is;
        // An attempt that starts where the last one ended is no progress.
        if !more {
            return;
        }
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    async fn try_one(&self, item: &DownloadItem, counted: &mut u64) -> Result<(), DataError> {
        let here = |error: io::Error| DataError::local_write(&item.to, &error);
        if let Some(dir) = item.to.parent() {
            fs::create_dir_all(dir).map_err(here)?;
        }
        let is_near = !item.url.contains("://");
        match self.near {
            LocalMode::Link if is_near => {
                unchanged(item)?;
                if fs::symlink_metadata(&item.to).is_err() {
                    std::os::unix::fs::symlink(&item.url, &item.to).map_err(here)?;
                }
            }
            _ if is_whole(item) => {}
            LocalMode::Copy if is_near => {
                let own = item.clone();
                let copied = spawn_blocking(move || copy(&own)).await;
                copied.map_err(|_| DataError::permanent("copying failed"))??;
            }
            LocalMode::Link | LocalMode::Copy => self.download(item, counted).await?,
        }
        self.count(counted, item.bytes);
        Ok(())
    }

    async fn download(&self, item: &DownloadItem, counted: &mut u64) -> Result<(), DataError> {
        let part = item.part();
        let here = |error: io::Error| DataError::local_write(&part, &error);
        let Some(ways) = &self.ways else {
            return Err(DataError::permanent(format!("`{}` is in HDFS", item.url)));
        };
        let hdfs = ways.to(&item.url, self.soon()).await?;
        match hdfs.stat(&item.url, self.soon()).await? {
            None => return Err(DataError::changed(format!("`{}` is gone", item.url))),
            Some(entry) if entry.bytes != item.bytes || entry.modified_ms != item.modified_ms => {
                return Err(changed(item));
            }
            Some(_) => {}
        }
        let file = open_part(&part).map_err(here)?;
        let mut length = file.metadata().map_err(here)?.len();
        if length > item.bytes {
            file.set_len(0).map_err(here)?;
            length = 0;
        }
        self.count(counted, length);
        if item.bytes > 0 {
            let reader = hdfs.open(&item.url, self.soon()).await?;
            if reader.length() != item.bytes {
                return Err(changed(item));
            }
            self.read(&reader, item, &file, length, counted).await?;
        }
        let time = UNIX_EPOCH + Duration::from_millis(item.modified_ms);
        file.set_modified(time).map_err(here)?;
        fs::rename(&part, &item.to).map_err(here)
    }

    /// Reads from `offset` to the end, ahead and in order: the length of what is written says how far it is.
    async fn read(
        &self,
        reader: &Reader,
        item: &DownloadItem,
        file: &File,
        mut offset: u64,
        counted: &mut u64,
    ) -> Result<(), DataError> {
        let mut ahead: VecDeque<ChunkRead> = VecDeque::new();
        let mut next = offset;
        while offset < item.bytes {
            while next < item.bytes && ahead.len() < CHUNKS_PER_FILE {
                // A file with a chunk in flight continues without another one: this avoids a deadlock.
                let Some(turn) = self.turn(ahead.is_empty()).await else {
                    break;
                };
                let length = CHUNK_BYTES.min(item.bytes - next);
                ahead.push_back(self.chunk(reader, next, length, turn));
                next += length;
            }
            let Some(mut chunk) = ahead.pop_front() else {
                break;
            };
            let failed = |_| DataError::permanent(format!("reading `{}` failed", item.url));
            let (bytes, turn) = (&mut chunk.0).await.map_err(failed)?;
            let bytes = bytes?;
            if bytes.is_empty() {
                return Err(changed(item));
            }
            file.write_all_at(&bytes, offset)
                .map_err(|error| DataError::local_write(&item.to, &error))?;
            offset += bytes.len() as u64;
            drop((bytes, turn));
            self.count(counted, offset);
        }
        Ok(())
    }

    /// The right to have one more chunk in memory, until it is written; at once or not at all, unless it is waited for.
    async fn turn(&self, waits: bool) -> Option<OwnedSemaphorePermit> {
        let chunks = self.chunks.clone();
        match waits {
            true => chunks.acquire_owned().await.ok(),
            false => chunks.try_acquire_owned().ok(),
        }
    }

    fn chunk(
        &self,
        reader: &Reader,
        offset: u64,
        length: u64,
        turn: OwnedSemaphorePermit,
    ) -> ChunkRead {
        let (reader, until) = (reader.clone(), self.soon());
        ChunkRead(tokio::spawn(async move {
            let read = reader.read_at(offset, length as usize, until).await;
            (read, turn)
        }))
    }
}

/// Read of a chunk; dropping it aborts the read.
struct ChunkRead(JoinHandle<(Result<Bytes, HdfsError>, OwnedSemaphorePermit)>);

impl Drop for ChunkRead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns true if there was no progress for [`STALL_MAX`].
fn is_stalled(moved: Instant, now: Instant) -> bool {
    now > moved + STALL_MAX
}

fn came(
    one: Option<Result<Result<(), DataError>, tokio::task::JoinError>>,
) -> Result<(), DataError> {
    match one {
        Some(Ok(came)) => came,
        Some(Err(_)) => Err(DataError::permanent("a download failed without a reason")),
        None => Ok(()),
    }
}

fn is_whole(item: &DownloadItem) -> bool {
    let about = fs::symlink_metadata(&item.to);
    about.is_ok_and(|about| about.is_file() && about.len() == item.bytes && is_of(&about, item))
}

fn is_of(about: &fs::Metadata, item: &DownloadItem) -> bool {
    let time = about.modified().ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.is_some_and(|since| since.as_millis() as u64 == item.modified_ms)
}

fn changed(item: &DownloadItem) -> DataError {
    DataError::changed(format!(
        "`{}` was changed after it was listed: it no longer has {} bytes and the same time of change",
        item.url, item.bytes
    ))
    .hint("run the command again; inputs of a job should not change while it runs")
}

/// Checks that a file of this machine is still the listed one.
fn unchanged(item: &DownloadItem) -> Result<(), DataError> {
    match fs::metadata(&item.url) {
        Ok(about) if about.len() == item.bytes && is_of(&about, item) => Ok(()),
        Ok(_) => Err(changed(item)),
        Err(error) => {
            Err(DataError::permanent(format!("cannot read `{}`: {}", item.url, reason(&error))))
        }
    }
}

/// Opens the partial file. Fails on a symbolic link, so that nothing is written through it.
fn open_part(part: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits() as i32;
    let mut file = OpenOptions::new();
    file.write(true).create(true).truncate(false);
    file.custom_flags(no_link).open(part)
}

fn copy(item: &DownloadItem) -> Result<(), DataError> {
    let part = item.part();
    let here = |error: io::Error| DataError::local_write(&part, &error);
    let unread = |error: io::Error| {
        DataError::permanent(format!("cannot read `{}`: {}", item.url, reason(&error)))
    };
    let source = File::open(&item.url).map_err(unread)?;
    let mut file = open_part(&part).map_err(here)?;
    file.set_len(0).map_err(here)?;
    // Of a log that grows, as much as was listed.
    let copied = io::copy(&mut source.take(item.bytes), &mut file).map_err(here)?;
    if copied != item.bytes {
        return Err(changed(item));
    }
    let time = UNIX_EPOCH + Duration::from_millis(item.modified_ms);
    file.set_modified(time).map_err(here)?;
    fs::rename(&part, &item.to).map_err(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_come_side_by_side_are_not_written_into_one() {
        let item = |name: String| DownloadItem {
            url: "hdfs://nn/in".into(),
            to: Path::new("/in").join(name),
            bytes: 1,
            modified_ms: 7,
        };
        let long = "x".repeat(200);
        let parts = ["a", "b"].map(|end| item(format!("{long}{end}")).part());
        assert_ne!(parts[0], parts[1]);
        assert!(parts[0].file_name().unwrap().len() < 255);
        assert_eq!(parts[0], item(format!("{long}a")).part());
        let other = DownloadItem { url: "hdfs://other/in".into(), ..item(format!("{long}a")) };
        assert_ne!(other.part(), parts[0]);
    }

    #[test]
    fn no_name_leads_out_of_its_directory() {
        let root = Path::new("/dest");
        assert_eq!(below(root, "a/b.c"), Some("/dest/a/b.c".into()));
        assert_eq!(below(root, "..."), Some("/dest/...".into()));
        for name in ["", "..", "../a", "a/../../b", "a/..", "./a", "a//b", "/a", "a/"] {
            assert_eq!(below(root, name), None, "{name}");
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_and_what_came_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let (part, theirs) = (dir.path().join("part"), dir.path().join("theirs"));
        fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, &part).unwrap();
        assert!(open_part(&part).is_err());
        fs::remove_file(&part).unwrap();
        fs::write(&part, "half").unwrap();
        assert_eq!(open_part(&part).unwrap().metadata().unwrap().len(), 4);
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    }

    #[test]
    fn after_ten_minutes_without_a_byte_nothing_is_waited_for() {
        let moved = Instant::now();
        assert!(!is_stalled(moved, moved + Duration::from_secs(599)));
        assert!(is_stalled(moved, moved + Duration::from_secs(601)));
    }

    #[test]
    fn pieces_beyond_what_memory_allows_wait_for_those_that_are_written() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let bring = Downloader::new(None, LocalMode::Copy, Arc::default(), Instant::now());
            let mut held = Vec::new();
            while let Some(turn) = bring.turn(false).await {
                held.push(turn);
            }
            assert_eq!(held.len(), CHUNKS_MAX);
            held.pop();
            assert!(bring.turn(true).await.is_some());
        });
    }
}
