//! Files that must not change while they are packed.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};
use ydl_os::reason;

/// Metadata that identifies the state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Length.
    pub bytes: u64,
    /// Modification time in seconds, which byte code records of its source.
    pub modified: i64,
    modified_ns: i64,
    /// Time of the last change of status.
    changed: (i64, i64),
    /// The file has several hard links.
    shared: bool,
    inode: (u64, u64),
}

impl FileStamp {
    /// Creates a stamp from file metadata.
    pub fn of(metadata: &Metadata) -> FileStamp {
        FileStamp {
            bytes: metadata.len(),
            modified: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            shared: metadata.nlink() > 1,
            inode: (metadata.dev(), metadata.ino()),
        }
    }

    /// Returns the time of the last change of status since 1970, which no program can set.
    pub fn changed_at(self) -> Duration {
        let (seconds, nanos) = self.changed;
        Duration::new(seconds.max(0) as u64, nanos as u32)
    }

    /// Returns whether the content is the same. Ignores the status time, which a new hard link changes too.
    fn has_same_content(&self, now: &FileStamp) -> bool {
        let fields =
            |stamp: &FileStamp| (stamp.bytes, stamp.modified, stamp.modified_ns, stamp.inode);
        fields(self) == fields(now)
    }

    /// Returns the fields that identify the content in a cache. For a file with several links the status time is left out: it
    /// changes with each new link, and installers link files from a cache into every environment.
    pub(super) fn fingerprint(mut self) -> [u8; 56] {
        if self.shared {
            self.changed = (0, 0);
        }
        self.to_bytes()
    }

    /// Returns all fields as bytes.
    pub fn to_bytes(self) -> [u8; 56] {
        let parts = [
            self.bytes,
            self.modified as u64,
            self.modified_ns as u64,
            self.changed.0 as u64,
            self.changed.1 as u64,
            self.inode.0,
            self.inode.1,
        ];
        let mut bytes = [0; 56];
        for (to, part) in bytes.chunks_exact_mut(8).zip(parts) {
            to.copy_from_slice(&part.to_le_bytes());
        }
        bytes
    }
}

/// File that must be unchanged from its first byte to its last.
#[derive(Debug)]
pub struct StableFile {
    file: File,
    path: PathBuf,
    stamp: FileStamp,
    left: u64,
}

impl StableFile {
    /// Opens the file if it is unchanged.
    pub fn open(path: &Path, stamp: FileStamp) -> io::Result<StableFile> {
        let file = File::open(path).map_err(|error| {
            let what = format!("cannot read `{}`: {}", path.display(), reason(&error));
            io::Error::new(error.kind(), what)
        })?;
        let stable = StableFile { file, path: path.to_path_buf(), stamp, left: stamp.bytes };
        stable.check()?;
        Ok(stable)
    }

    fn check(&self) -> io::Result<()> {
        match self.stamp.has_same_content(&FileStamp::of(&self.file.metadata()?)) {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn changed(&self) -> io::Error {
        io::Error::other(format!("`{}` changed while it was read", self.path.display()))
    }
}

impl Read for StableFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.left.min(usize::MAX as u64) as usize);
        if length == 0 {
            return self.check().map(|()| 0);
        }
        let read = self.file.read(&mut buffer[..length])?;
        if read == 0 {
            return Err(self.changed());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_new_hard_link_is_no_change_and_new_content_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        fs::write(&path, "one").expect("a file");
        let stamp = || FileStamp::of(&fs::metadata(&path).expect("a file"));
        let before = stamp();
        fs::hard_link(&path, dir.path().join("b")).expect("a link");
        let shared = stamp().fingerprint();
        StableFile::open(&path, before).expect("an unchanged file");
        fs::hard_link(&path, dir.path().join("c")).expect("a link");
        assert_eq!(stamp().fingerprint(), shared, "a third link changes nothing");
        fs::write(&path, "two").expect("a file");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        let file = File::options().write(true).open(&path).expect("a file");
        file.set_modified(later).expect("a time");
        StableFile::open(&path, before).expect_err("a changed file");
    }
}
