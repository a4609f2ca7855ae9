//! Files that only their owner may read: secrets, tokens, keys.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

/// Writes `bytes` to `path` atomically, replacing an existing file. The file is never readable by other users. It is not
/// synced to disk: a secret need not survive a power loss, because the process that it authorizes does not either.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), PrivateError> {
    let failed = |source| PrivateError::Io { doing: "write", path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
    let mut random = [0; 8];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| failed(io::Error::other("no random bytes available")))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", hex::encode(random)));
    let beside = path.with_file_name(beside);

    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed)?;
    let moved = file.write_all(bytes).and_then(|()| std::fs::rename(&beside, path));
    moved.map_err(|source| {
        // Report the failed write, not a failed clean-up.
        let _ = std::fs::remove_file(&beside);
        failed(source)
    })
}

/// Removes the permissions of group and others from a file that another process wrote. A file of another owner stays as it
/// is.
pub fn close(path: &Path) {
    let closed = std::fs::metadata(path).and_then(|about| {
        let mode = about.mode() & 0o700;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    });
    if let Err(error) = closed {
        tracing::warn!("others may read `{}`: {error}", path.display());
    }
}

/// Reads a file of at most `limit` bytes that belongs to this user and that no other user may read.
pub fn read(path: &Path, limit: usize) -> Result<Vec<u8>, PrivateError> {
    let failed = |source| PrivateError::Io { doing: "read", path: path.to_owned(), source };
    // Without this flag, opening a pipe would block.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
    check(path, &file)?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > limit {
        return Err(PrivateError::TooLong { path: path.to_owned(), limit });
    }
    Ok(bytes)
}

/// Checks the open file rather than the path, which may lead to another file by now.
fn check(path: &Path, file: &File) -> Result<(), PrivateError> {
    let about = file.metadata().map_err(|source| PrivateError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    let path = path.to_owned();
    if !about.is_file() {
        return Err(PrivateError::NotAFile { path });
    }
    if about.mode() & 0o077 != 0 {
        return Err(PrivateError::Open { path, mode: about.mode() & 0o777 });
    }
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(PrivateError::NotOurs { path, owner: about.uid() });
    }
    Ok(())
}

/// Error of reading or writing a private file.
#[derive(Debug)]
pub enum PrivateError {
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    NotAFile { path: PathBuf },
    Open { path: PathBuf, mode: u32 },
    NotOurs { path: PathBuf, owner: u32 },
    TooLong { path: PathBuf, limit: usize },
    Malformed { path: PathBuf, what: &'static str },
}

impl PrivateError {
    /// Returns a remedy, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open { path, .. } => Some(format!("run `chmod 600 {}`", path.display())),
            _ => None,
        }
    }
}

impl fmt::Display for PrivateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => {
                write!(f, "cannot {doing} `{}`: {source}", path.display())
            }
            Self::NotAFile { path } => {
                write!(f, "cannot read `{}`: it is not a file", path.display())
            }
            Self::Open { path, mode } => write!(
                f,
                "will not use the secret in `{}`: others may read it (mode `{mode:03o}`)",
                path.display()
            ),
            Self::NotOurs { path, owner } => write!(
                f,
                "will not use the secret in `{}`: it belongs to user `{owner}`",
                path.display()
            ),
            Self::TooLong { path, limit } => {
                write!(f, "cannot read `{}`: it is longer than {limit} bytes", path.display())
            }
            Self::Malformed { path, what } => {
                write!(f, "cannot read `{}`: it does not hold {what}", path.display())
            }
        }
    }
}

impl std::error::Error for PrivateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_written_file_is_private_complete_and_replaceable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"two");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write(&path, b"one").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o666] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = read(&path, 10).unwrap_err();
            assert!(matches!(error, PrivateError::Open { .. }), "{error}");
            assert!(error.hint().unwrap().starts_with("run `chmod 600 "));
        }
    }

    #[test]
    fn directories_and_long_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(folder.path(), 10).unwrap_err();
        assert!(matches!(error, PrivateError::NotAFile { .. }), "{error}");
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = read(&pipe, 10).unwrap_err();
        assert!(matches!(error, PrivateError::NotAFile { .. }), "{error}");
        let path = folder.path().join("secret");
        write(&path, b"12345").unwrap();
        assert!(matches!(read(&path, 4).unwrap_err(), PrivateError::TooLong { .. }));
        assert!(matches!(
            write(&folder.path().join("none/secret"), b"x").unwrap_err(),
            PrivateError::Io { doing: "write", .. }
        ));
    }
}
