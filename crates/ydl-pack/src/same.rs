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
    /// FileStamp of file metadata.
    pub fn of(about: &Metadata) -> FileStamp {
        FileStamp {
            bytes: about.len(),
            modified: about.mtime(),
            modified_ns: about.mtime_nsec(),
            changed: (about.ctime(), about.ctime_nsec()),
            shared: about.nlink() > 1,
            inode: (about.dev(), about.ino()),
        }
    }

    /// Time of the last change of status since 1970, which no program can set.
    pub fn changed_at(self) -> Duration {
        let (seconds, nanos) = self.changed;
        Duration::new(seconds.max(0) as u64, nanos as u32)
    }

    /// Returns whether the content is unchanged; the file may have got another hard link meanwhile.
    fn is_unwritten(&self, now: &FileStamp) -> bool {
        let written = |it: &FileStamp| (it.bytes, it.modified, it.modified_ns, it.inode);
        written(self) == written(now)
    }

    /// Fields that are hashed. A new hard link changes the status time, and installers that link files from a cache add one with
    /// every environment: a file with several links is identified without that time.
    pub(super) fn known_by(mut self) -> [u8; 56] {
        if self.shared {
            self.changed = (0, 0);
        }
        self.to_bytes()
    }

    /// All fields as bytes.
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
    was: FileStamp,
    left: u64,
}

impl StableFile {
    /// Opens the file if it is unchanged.
    pub fn open(path: &Path, was: FileStamp) -> io::Result<StableFile> {
        let file = File::open(path).map_err(|error| {
            let what = format!("cannot read `{}`: {}", path.display(), reason(&error));
            io::Error::new(error.kind(), what)
        })?;
        let same = StableFile { file, path: path.to_path_buf(), was, left: was.bytes };
        same.check()?;
        Ok(same)
    }

    fn check(&self) -> io::Result<()> {
        match self.was.is_unwritten(&FileStamp::of(&self.file.metadata()?)) {
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
        let most = buffer.len().min(self.left.min(usize::MAX as u64) as usize);
        if most == 0 {
            return self.check().map(|()| 0);
        }
        let read = self.file.read(&mut buffer[..most])?;
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
    fn another_name_is_no_change_and_another_content_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        fs::write(&path, "one").expect("a file");
        let stamp = || FileStamp::of(&fs::metadata(&path).expect("a file"));
        let before = stamp();
        fs::hard_link(&path, dir.path().join("b")).expect("a name");
        let shared = stamp().known_by();
        StableFile::open(&path, before).expect("it is the same");
        fs::hard_link(&path, dir.path().join("c")).expect("a name");
        assert_eq!(stamp().known_by(), shared, "a third name changes nothing");
        fs::write(&path, "two").expect("a file");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        let file = File::options().write(true).open(&path).expect("a file");
        file.set_modified(later).expect("a time");
        StableFile::open(&path, before).expect_err("it is another");
    }
}
