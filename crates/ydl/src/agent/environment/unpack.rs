//! Unpacks layers next to their archives in the node's cache.
//!
//! A NodeManager downloads a layer into a directory of its own in the user's cache, and removes the whole directory
//! once the file is unused. It could unpack the layer, too, but sets the permissions of every file one by one, without
//! Hadoop's native library with one process per file. For an environment with thousands of files this dominates the
//! start on a cold node. Instead, the first container that needs a layer unpacks it next to the archive; all others,
//! including those of later jobs, reuse it.

use flate2::read::MultiGzDecoder;
use rustix::fs::{FlockOperation, flock};
use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    path::{Component, Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant, SystemTime},
};
use tar::{Archive, EntryType};
use ydl_os::reason;

/// Timeout of the wait for another container that unpacks the same layer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Poll interval of that wait.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Size and maximum number of buffered blocks. The memory of a container may be small.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS_MAX: usize = 4;
/// Maximum number of entries of a layer.
const ENTRIES_MAX: usize = 2_000_000;

/// Returns the directory of an unpacked layer, and unpacks it first if needed. Falls back to `own`, for this container
/// alone, if the cache is not writable.
pub(super) fn unpacked(layer: &Path, own: &Path) -> Result<PathBuf, String> {
    let failed = |path: &Path, error: &io::Error| {
        let why = reason(error);
        format!("cannot unpack `{}`: {why}", path.display())
    };
    let archive = layer
        .canonicalize()
        .map_err(|e| format!("the environment has no layer `{}`: {e}", layer.display()))?;
    if archive.is_dir() {
        return Ok(archive);
    }
    let cache = archive.parent().unwrap_or(Path::new("/"));
    let unpacked = match unpack_below(&archive, cache) {
        Err(error) if cannot_be_written(&error) => {
            fs::create_dir_all(own).and_then(|()| unpack_below(&archive, own))
        }
        other => other,
    };
    unpacked.map_err(|error| failed(&archive, &error))
}

/// Returns true if another directory may work: the container's own may be on another disk.
fn cannot_be_written(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
    )
}

/// Unpacks an archive below that directory: into a temporary directory that is renamed when complete.
fn unpack_below(archive: &Path, dir: &Path) -> io::Result<PathBuf> {
    let name = archive.file_name().unwrap_or_default().to_os_string();
    let named = |ending: &str| {
        let mut name = name.clone();
        name.push(ending);
        dir.join(name)
    };
    let (ready, temporary) = (named(".unpacked"), named(".tmp"));
    if ready.is_dir() {
        return Ok(ready);
    }
    let mut file = File::open(archive)?;
    // The lock is released when its owner exits.
    lock(&file, Instant::now() + LOCK_TIMEOUT)?;
    if ready.is_dir() {
        return Ok(ready);
    }
    match fs::remove_dir_all(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    directory(&temporary)?;
    let done = extract(&mut file, &temporary).and_then(|()| fs::rename(&temporary, &ready));
    if done.is_err() {
        // A partial result is of no use. If it cannot be removed, the next attempt removes it.
        let _ = fs::remove_dir_all(&temporary);
    }
    done.map(|()| ready)
}

/// Waits for the lock.
fn lock(file: &File, until: Instant) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                thread::sleep(POLL_INTERVAL)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other(format!(
                    "another container has been unpacking it for {} minutes",
                    LOCK_TIMEOUT.as_secs() / 60
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Inflates in one thread and writes in another.
fn extract(file: &mut File, to: &Path) -> io::Result<()> {
    let (blocks, receiver) = sync_channel(BLOCKS_MAX);
    thread::scope(|scope| {
        let inflating = scope.spawn(move || inflate(file, &blocks));
        let mut read = BlockReader { receiver, block: Vec::new(), at: 0 };
        let mut written = entries(&mut read, to);
        if written.is_ok() {
            // Data after the last entry is verified, too.
            written = io::copy(&mut read, &mut io::sink()).map(drop);
        }
        drop(read);
        let inflated =
            inflating.join().unwrap_or_else(|_| Err(io::Error::other("cannot inflate it")));
        // A corrupt archive explains a corrupt entry.
        match (inflated, written) {
            (Err(error), _) => Err(error),
            (Ok(()), written) => written,
        }
    })
}

fn inflate(file: &mut File, blocks: &SyncSender<Vec<u8>>) -> io::Result<()> {
    let mut from = MultiGzDecoder::new(io::BufReader::with_capacity(BLOCK_BYTES, file));
    loop {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        from.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        // The receiver is gone if an entry was rejected, and reports that itself.
        if block.is_empty() || blocks.send(block).is_err() {
            return Ok(());
        }
    }
}

/// Reader of the inflated blocks.
struct BlockReader {
    receiver: Receiver<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl Read for BlockReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            let Ok(block) = self.receiver.recv() else {
                return Ok(0);
            };
            (self.block, self.at) = (block, 0);
        }
        let left = self.block.get(self.at..).unwrap_or_default();
        let length = left.len().min(to.len());
        to[..length].copy_from_slice(&left[..length]);
        self.at += length;
        Ok(length)
    }
}

/// Writes the entries of an archive, readable by their owner only.
fn entries(from: &mut impl Read, to: &Path) -> io::Result<()> {
    let mut links = BTreeSet::new();
    let mut archive = Archive::new(from);
    for (count, entry) in archive.entries()?.enumerate() {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let invalid = |why: &str| io::Error::other(format!("`{}` in it {why}", name.display()));
        let is_below = name.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_below || name.ancestors().skip(1).any(|dir| links.contains(dir)) {
            return Err(invalid("leads out of it"));
        }
        if count >= ENTRIES_MAX {
            return Err(io::Error::other("it has too many entries"));
        }
        let path = to.join(&name);
        match entry.header().entry_type() {
            EntryType::Directory => directory(&path)?,
            EntryType::Symlink => {
                let target = entry.link_name()?.ok_or_else(|| invalid("leads nowhere"))?;
                symlink(target, &path)?;
                links.insert(name);
            }
            EntryType::Regular => {
                let mode = entry.header().mode()? & 0o100 | 0o400;
                let mut file =
                    File::options().write(true).create_new(true).mode(mode).open(&path)?;
                io::copy(&mut entry, &mut file)?;
                // Python checks byte code against the modification time of its source.
                let written = Duration::from_secs(entry.header().mtime()?);
                file.set_modified(SystemTime::UNIX_EPOCH + written)?;
            }
            _ => return Err(invalid("is neither file, directory nor link")),
        }
    }
    Ok(())
}

fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::{io::Write, os::unix::fs::PermissionsExt};
    use tar::{Builder, Header};

    /// Creates an archive of entries: type, name, content or target.
    fn archive(path: &Path, entries: &[(EntryType, &str, &str)]) {
        let gzip = GzEncoder::new(File::create(path).expect("a file"), Compression::fast());
        let mut tar = Builder::new(gzip);
        for (kind, name, text) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_mtime(315_532_800);
            // Written raw, to allow invalid names.
            header.as_gnu_mut().expect("gnu").name[..name.len()].copy_from_slice(name.as_bytes());
            let body = match kind {
                EntryType::Symlink => {
                    header.set_link_name(text).expect("a target");
                    ""
                }
                _ => text,
            };
            header.set_size(body.len() as u64);
            header.set_cksum();
            tar.append(&header, body.as_bytes()).expect("an entry");
        }
        let gzip = tar.into_inner().expect("an archive");
        gzip.finish().expect("gzip").flush().expect("a file");
    }

    const FILES: [(EntryType, &str, &str); 3] = [
        (EntryType::Directory, "lib", ""),
        (EntryType::Regular, "lib/a.py", "a = 1\n"),
        (EntryType::Symlink, "lib/b.py", "a.py"),
    ];

    #[test]
    fn a_layer_is_unpacked_once_beside_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("layer.tar.gz");
        archive(&file, &FILES);
        let own = dir.path().join("own");
        // Left by a killed process.
        fs::create_dir_all(dir.path().join("layer.tar.gz.tmp/lib")).expect("a directory");
        let unpacked_dir = unpacked(&file, &own).expect("unpacked");
        assert_eq!(
            unpacked_dir,
            dir.path().canonicalize().expect("a path").join("layer.tar.gz.unpacked")
        );
        assert_eq!(fs::read(unpacked_dir.join("lib/b.py")).expect("a link"), b"a = 1\n");
        let metadata = fs::metadata(unpacked_dir.join("lib/a.py")).expect("a file");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o500);
        let written = metadata.modified().expect("a time");
        let since = written.duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(since.expect("after 1970").as_secs(), 315_532_800);
        fs::write(unpacked_dir.join("mark"), "").expect("a file");
        assert_eq!(unpacked(&file, &own), Ok(unpacked_dir.clone()));
        assert!(unpacked_dir.join("mark").exists(), "unpacked again");
        assert_eq!(unpacked(&unpacked_dir, &own), Ok(unpacked_dir), "a directory was copied");
    }

    #[test]
    fn concurrent_unpackers_share_one_result() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("layer.tar.gz");
        archive(&file, &FILES);
        let own = dir.path().join("own");
        let all: BTreeSet<_> = thread::scope(|scope| {
            let each = || scope.spawn(|| unpacked(&file, &own).expect("unpacked"));
            let all: Vec<_> = (0..8).map(|_| each()).collect();
            all.into_iter().map(|one| one.join().expect("it ends")).collect()
        });
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_read_only_cache_falls_back_to_the_containers_directory() {
        assert!(cannot_be_written(&rustix::io::Errno::ROFS.into()));
        assert!(cannot_be_written(&rustix::io::Errno::ACCESS.into()));
        assert!(cannot_be_written(&rustix::io::Errno::NOSPC.into()));
        assert!(!cannot_be_written(&rustix::io::Errno::IO.into()));
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("layer.tar.gz");
        archive(&file, &FILES);
        let own = dir.path().join("own");
        fs::create_dir(&own).expect("a directory");
        let unpacked_dir = unpack_below(&file, &own).expect("unpacked");
        assert_eq!(unpacked_dir, own.join("layer.tar.gz.unpacked"));
        assert_eq!(fs::read(unpacked_dir.join("lib/a.py")).expect("a file"), b"a = 1\n");
    }

    #[test]
    fn truncated_and_escaping_archives_are_rejected_and_leave_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("layer.tar.gz");
        let check_rejected = |why: &str| {
            let error = unpacked(&file, dir.path()).expect_err("refused");
            assert!(error.starts_with("cannot unpack `") && error.contains(why), "{error}");
            assert_eq!(fs::read_dir(dir.path()).expect("a list").count(), 1);
        };
        for name in ["../out", "/out", "lib/b.py/out"] {
            let mut entries = FILES.to_vec();
            entries.push((EntryType::Regular, name, "x"));
            archive(&file, &entries);
            check_rejected("leads out of it");
        }
        archive(&file, &[(EntryType::Fifo, "pipe", "")]);
        check_rejected("is neither file");
        archive(&file, &FILES);
        let bytes = fs::read(&file).expect("a file");
        // A wrong checksum leaves nothing behind.
        let mut other = bytes.clone();
        let checksum = other.len() - 8;
        other[checksum] ^= 1;
        fs::write(&file, other).expect("a file");
        check_rejected("corrupt");
        fs::write(&file, &bytes[..bytes.len() / 2]).expect("a file");
        check_rejected("");
        let absent = unpacked(&dir.path().join("none"), dir.path()).expect_err("nothing");
        assert!(absent.starts_with("the environment has no layer `"), "{absent}");
    }
}
