//! Files in HDFS.

use super::{FileEntry, FileStore, Pending, temporary::ABANDONED_AGE};
use crate::{
    data::{DataError, is_temporary},
    hdfs::{
        Entry, Hdfs, Kind,
        layout::{self, TEMPORARY_PREFIX},
        random,
    },
};
use bytes::Bytes;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use ydl_os::reason;

/// Size of one read and write.
const PIECE_BYTES: usize = 256 << 10;
/// Timeout of one call or block.
const STEP_MAX: Duration = Duration::from_secs(60);

fn soon(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + STEP_MAX)
}

impl From<Entry> for FileEntry {
    fn from(entry: Entry) -> FileEntry {
        FileEntry {
            path: entry.url,
            directory: entry.directory,
            link: false,
            bytes: entry.bytes,
            modified_ms: entry.modified_ms,
        }
    }
}

impl FileStore for Hdfs {
    fn stat<'a>(&'a self, path: &'a str, deadline: Instant) -> Pending<'a, Option<FileEntry>> {
        Box::pin(async move {
            let entry = Hdfs::stat(self, path, soon(deadline)).await?;
            Ok(entry.map(FileEntry::from))
        })
    }

    fn list<'a>(&'a self, dir: &'a str, deadline: Instant) -> Pending<'a, Vec<FileEntry>> {
        Box::pin(async move {
            let entries = Hdfs::list(self, dir, soon(deadline)).await?;
            Ok(entries.into_iter().map(FileEntry::from).collect())
        })
    }

    fn make_dirs<'a>(
        &'a self,
        dir: &'a str,
        mode: Option<u32>,
        deadline: Instant,
    ) -> Pending<'a, ()> {
        let mode = mode.unwrap_or(layout::DIRECTORY);
        Box::pin(async move { Ok(self.mkdirs(dir, mode, soon(deadline)).await?) })
    }

    fn upload<'a>(
        &'a self,
        source: Arc<File>,
        temporary: &'a str,
        mode: u32,
        deadline: Instant,
    ) -> Pending<'a, u64> {
        Box::pin(async move {
            let unreadable = |error: io::Error| DataError::permanent(reason(&error));
            let mut writer = self.create(temporary, mode, soon(deadline)).await?;
            loop {
                // A small local read: faster than a switch to another thread.
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                let read = (&*source).take(PIECE_BYTES as u64).read_to_end(&mut piece);
                if read.map_err(unreadable)? == 0 {
                    break;
                }
                writer.write(piece, soon(deadline)).await?;
            }
            let bytes = writer.written();
            writer.close(soon(deadline)).await?;
            Ok(bytes)
        })
    }

    fn link<'a>(&'a self, _: &'a Path, _: &'a str) -> Pending<'a, ()> {
        Box::pin(async { Err(DataError::permanent("HDFS has no links")) })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str, deadline: Instant) -> Pending<'a, bool> {
        Box::pin(async move {
            match Hdfs::rename(self, from, to, soon(deadline)).await {
                Ok(()) => Ok(true),
                Err(error) if error.kind == Kind::Exists => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn replace<'a>(&'a self, from: &'a str, to: &'a str, deadline: Instant) -> Pending<'a, ()> {
        Box::pin(async move { Ok(Hdfs::replace(self, from, to, soon(deadline)).await?) })
    }

    fn delete<'a>(&'a self, path: &'a str, deadline: Instant) -> Pending<'a, bool> {
        Box::pin(async move { Ok(Hdfs::delete(self, path, soon(deadline)).await?) })
    }

    fn read<'a>(
        &'a self,
        path: &'a str,
        bytes_max: u64,
        deadline: Instant,
    ) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move { Ok(self.read_if_exists(path, bytes_max, soon(deadline)).await?) })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: Bytes, deadline: Instant) -> Pending<'a, ()> {
        Box::pin(
            async move { Ok(self.write_atomic(path, bytes, layout::FILE, soon(deadline)).await?) },
        )
    }

    fn write_if_absent<'a>(
        &'a self,
        path: &'a str,
        bytes: Bytes,
        deadline: Instant,
    ) -> Pending<'a, bool> {
        Box::pin(async move {
            let written = Hdfs::write_if_absent(self, path, bytes, layout::FILE, soon(deadline));
            Ok(written.await?)
        })
    }

    /// The owner is part of the name: its next attempt may be on another node.
    fn temporary(&self, path: &str, owner: &str) -> Result<String, DataError> {
        let (dir, _) = path.rsplit_once('/').unwrap_or((path, ""));
        Ok(format!("{dir}/{}", temporary_of(owner) + &random()?))
    }

    fn is_abandoned(&self, entry: &FileEntry, owner: &str) -> bool {
        let name = entry.name();
        name.starts_with(&temporary_of(owner))
            || (is_temporary(name) && entry.is_older_than(ABANDONED_AGE))
    }
}

fn temporary_of(owner: &str) -> String {
    format!("{TEMPORARY_PREFIX}{owner}-")
}
