//! Files that must not change while they are packed.

use crate::os::reason;
use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// By which a file is known to be the same still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// How long it is.
    pub bytes: u64,
    /// When it was written, in seconds: what byte code remembers of its source.
    pub modified: i64,
    changed: (i64, i64),
    inode: (u64, u64),
}

impl Stamp {
    /// Of what was looked at.
    pub fn of(about: &Metadata) -> Stamp {
        Stamp {
            bytes: about.len(),
            modified: about.mtime(),
            changed: (about.ctime(), about.ctime_nsec()),
            inode: (about.dev(), about.ino()),
        }
    }

    /// When anything of it was last changed, since 1970. Nobody can set that.
    pub fn changed_at(self) -> Duration {
        let (seconds, nanos) = self.changed;
        Duration::new(seconds.max(0) as u64, nanos as u32)
    }

    /// All of it as bytes, to be hashed or compared.
    pub fn to_bytes(self) -> [u8; 48] {
        let parts = [
            self.bytes,
            self.modified as u64,
            self.changed.0 as u64,
            self.changed.1 as u64,
            self.inode.0,
            self.inode.1,
        ];
        let mut bytes = [0; 48];
        for (to, part) in bytes.chunks_exact_mut(8).zip(parts) {
            to.copy_from_slice(&part.to_le_bytes());
        }
        bytes
    }
}

/// A file that must be what it was, from its first byte to its last.
#[derive(Debug)]
pub struct Same {
    file: File,
    path: PathBuf,
    was: Stamp,
    left: u64,
}

impl Same {
    /// Opens it, if it is still what it was.
    pub fn open(path: &Path, was: Stamp) -> io::Result<Same> {
        let file = File::open(path).map_err(|error| {
            let what = format!("cannot read `{}`: {}", path.display(), reason(&error));
            io::Error::other(what)
        })?;
        let same = Same {
            file,
            path: path.to_path_buf(),
            was,
            left: was.bytes,
        };
        same.check()?;
        Ok(same)
    }

    fn check(&self) -> io::Result<()> {
        match Stamp::of(&self.file.metadata()?) == self.was {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn changed(&self) -> io::Error {
        io::Error::other(format!(
            "`{}` changed while it was read",
            self.path.display()
        ))
    }
}

impl Read for Same {
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
