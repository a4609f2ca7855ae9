//! Small files, read and written whole.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
    layout::TEMPORARY_PREFIX,
};
use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use std::time::Duration;
use tokio::time::Instant;

/// Timeout for removing a partial file, even after the deadline of the file.
pub(super) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

impl Hdfs {
    /// The content of a file of at most so many bytes.
    pub async fn read_file(
        &self,
        place: &str,
        bytes_max: u64,
        deadline: Instant,
    ) -> Result<Bytes, HdfsError> {
        let reader = self.open(place, deadline).await?;
        if reader.length() > bytes_max {
            let why =
                format!("it has {} bytes, and {bytes_max} are expected at most", reader.length());
            return Err(self.about("read", place).failed(Kind::Other, why));
        }
        reader.read_at(0, reader.length() as usize, deadline).await
    }

    /// The same; `None` if there is no such file.
    pub async fn read_if_exists(
        &self,
        place: &str,
        bytes_max: u64,
        deadline: Instant,
    ) -> Result<Option<Bytes>, HdfsError> {
        match self.read_file(place, bytes_max, deadline).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file that others read while we may die: it is there whole or not at all, and the one before it stays
    /// until then.
    pub async fn write_atomic(
        &self,
        place: &str,
        bytes: impl Into<Bytes>,
        permission: u32,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let aside = temporary_path(place)?;
        let written = async {
            self.write_temporary(&aside, bytes.into(), permission, deadline).await?;
            self.replace(&aside, place, deadline).await
        };
        let result = written.await;
        if result.is_err() {
            // The first failure is the one to tell.
            let _ = self.delete(&aside, Instant::now() + CLEANUP_TIMEOUT).await;
        }
        result
    }

    /// The same for a file of which the first one counts: one that is there stays. Whether this one was written.
    pub async fn write_if_absent(
        &self,
        place: &str,
        bytes: impl Into<Bytes>,
        permission: u32,
        deadline: Instant,
    ) -> Result<bool, HdfsError> {
        let aside = temporary_path(place)?;
        let written = async {
            self.write_temporary(&aside, bytes.into(), permission, deadline).await?;
            self.rename(&aside, place, deadline).await
        };
        let result = written.await;
        if result.is_err() {
            let _ = self.delete(&aside, Instant::now() + CLEANUP_TIMEOUT).await;
        }
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind == Kind::Exists => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn write_temporary(
        &self,
        aside: &str,
        bytes: Bytes,
        permission: u32,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let mut writer = self.create(aside, permission, deadline).await?;
        writer.write(bytes, deadline).await?;
        writer.close(deadline).await?;
        // The mask of files may have taken from it; it never adds, and takes nothing from the owner.
        if permission & 0o077 != 0 {
            self.set_permission(aside, permission, deadline).await?;
        }
        Ok(())
    }
}

/// Returns a unique temporary name in the directory of a file.
pub(super) fn temporary_path(place: &str) -> Result<String, HdfsError> {
    let (dir, name) = place.rsplit_once('/').unwrap_or(("", place));
    Ok(format!("{dir}/{TEMPORARY_PREFIX}{name}-{}", random()?))
}

/// Returns sixteen random hexadecimal digits.
pub(crate) fn random() -> Result<String, HdfsError> {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| HdfsError::new(Kind::Other, "the system gives no random bytes"))?;
    Ok(hex::encode(bytes))
}
