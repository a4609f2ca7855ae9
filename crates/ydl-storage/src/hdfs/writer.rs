//! A file that grows.

use super::{
    close_file::close_file,
    connect::Hdfs,
    error::{HdfsError, Kind},
};
use bytes::{Buf, Bytes};
use hdfs_native::{WriteOptions, file::FileWriter};
use std::{fmt, future::Future};
use tokio::time::Instant;

/// Maximum number of resumes per write.
const RESUMES_MAX: usize = 16;

/// A file that grows. Until it is closed, readers see its full blocks alone, whatever was synced; [`Hdfs::recover`] closes
/// one whose writer has died. After an error nothing more can be written to it: what was synced stays, the rest may be lost.
pub struct Writer {
    hdfs: Hdfs,
    place: String,
    file: Option<FileWriter>,
    /// Length acknowledged by the DataNodes.
    length: u64,
    written: u64,
    resumed: bool,
    /// True if the file was synced, so that the NameNode knows a length.
    synced: bool,
}

impl Hdfs {
    /// A new file; one that exists already is an error. The directory must be there.
    pub async fn create(
        &self,
        place: &str,
        permission: u32,
        deadline: Instant,
    ) -> Result<Writer, HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let options = WriteOptions::default().permission(permission).create_parent(false);
        let call = async move { client.create(&path, &options).await };
        let file = self.call(self.about("create", place), deadline, call).await?;
        Ok(Writer {
            hdfs: self.clone(),
            place: place.to_owned(),
            file: Some(file),
            length: 0,
            written: 0,
            resumed: false,
            synced: false,
        })
    }

    /// A file that exists and is closed, to be written on.
    pub async fn append(&self, place: &str, deadline: Instant) -> Result<Writer, HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let before = self.stat(place, deadline).await?;
        let call = async move { client.append(&path).await };
        let file = self.call(self.about("write to", place), deadline, call).await?;
        Ok(Writer {
            hdfs: self.clone(),
            place: place.to_owned(),
            file: Some(file),
            length: before.map_or(0, |entry| entry.bytes),
            written: 0,
            resumed: false,
            synced: true,
        })
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({})", self.place)
    }
}

impl Writer {
    /// Adds bytes. They survive this process with the next [`Writer::sync`].
    pub async fn write(
        &mut self,
        bytes: impl Into<Bytes>,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let mut rest = bytes.into();
        let length = rest.len() as u64;
        for _ in 0..RESUMES_MAX {
            let some = rest.clone();
            let step = self.step(deadline, |mut file| async move {
                let done = file.write_bytes(some).await.map(|_| ());
                (file, done)
            });
            match step.await {
                Ok(()) => {
                    self.length += rest.len() as u64;
                    self.written += length;
                    return Ok(());
                }
                Err(error) if error.kind == Kind::NotReplicated => {
                    self.resume(&mut rest, deadline).await?;
                }
                Err(error) => return Err(error),
            }
        }
        let about = self.hdfs.about("write", &self.place);
        Err(about.failed(Kind::NotReplicated, "the DataNodes stay behind"))
    }

    /// Goes on where a new block was refused because the NameNode had not yet heard of the one before. Hadoop's own client
    /// asks again; the library below forgets what it needs for that, so that the file is closed as far as it is and
    /// written on. `rest` becomes what is still to be written.
    async fn resume(&mut self, rest: &mut Bytes, deadline: Instant) -> Result<(), HdfsError> {
        let about = self.hdfs.about("write", &self.place);
        if !self.holds_lease(deadline).await {
            return Err(about.failed(Kind::LeaseLost, "another process has taken over its lease"));
        }
        self.hdfs.recover(&self.place, deadline).await?;
        let again = self.hdfs.append(&self.place, deadline).await?;
        let taken = again.length.checked_sub(self.length);
        match taken.and_then(|taken| usize::try_from(taken).ok()) {
            Some(taken) if taken <= rest.len() => rest.advance(taken),
            _ => return Err(about.failed(Kind::Other, "a part of it was lost")),
        }
        self.length = again.length;
        self.file = again.file;
        self.resumed = true;
        self.synced = true;
        Ok(())
    }

    /// Returns when everything written is on the disks of the DataNodes.
    pub async fn sync(&mut self, deadline: Instant) -> Result<(), HdfsError> {
        self.synced = true;
        self.step(deadline, |mut file| async move {
            let done = file.hsync().await;
            (file, done)
        })
        .await
    }

    /// Ends the file.
    pub async fn close(mut self, deadline: Instant) -> Result<(), HdfsError> {
        let (client, length) = (self.hdfs.client.clone(), self.length);
        let (path, synced) = (self.hdfs.path(&self.place)?, self.synced);
        self.step(deadline, |mut file| async move {
            let done = match synced {
                true => file.close().await,
                false => close_file(&mut file, &client, &path, length).await,
            };
            (file, done)
        })
        .await
    }

    /// Returns the number of bytes written by this writer.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns true if the file was closed and reopened since the last call. In between another process may have taken
    /// it over, and read it as if it were whole.
    pub fn was_resumed(&mut self) -> bool {
        std::mem::take(&mut self.resumed)
    }

    /// The file's place, as it was given.
    pub fn place(&self) -> &str {
        &self.place
    }

    async fn step<F: Future<Output = (FileWriter, hdfs_native::Result<()>)> + Send + 'static>(
        &mut self,
        deadline: Instant,
        step: impl FnOnce(FileWriter) -> F,
    ) -> Result<(), HdfsError> {
        let about = self.hdfs.about("write", &self.place);
        let Some(file) = self.file.take() else {
            return Err(about.failed(Kind::Other, "an earlier write to it has failed"));
        };
        let (file, done) = self.hdfs.isolated(&about, deadline, step(file)).await?;
        if let Err(error) = done {
            let error = about.translate(error);
            return Err(match error.kind {
                Kind::Unreachable if !self.holds_lease(deadline).await => {
                    about.failed(Kind::LeaseLost, "another process has taken over its lease")
                }
                _ => error,
            });
        }
        self.file = Some(file);
        Ok(())
    }

    /// Returns true if this process still holds the lease of a file that failed. DataNodes do not say why they let a
    /// writer go, but the NameNode refuses to create a file anew in different words to the current writer.
    async fn holds_lease(&self, deadline: Instant) -> bool {
        let Ok(path) = self.hdfs.path(&self.place) else {
            return true;
        };
        let client = self.hdfs.client.clone();
        let options = WriteOptions::default().create_parent(false);
        let call = async move {
            let answer = client.create(&path, &options).await;
            if answer.is_ok() {
                // It was deleted meanwhile, and is now there again, empty.
                let _ = client.delete(&path, false).await;
            }
            answer.map(|_| ())
        };
        let about = self.hdfs.about("write", &self.place);
        match self.hdfs.isolated(&about, deadline, call).await {
            Ok(Ok(())) => false,
            Ok(Err(hdfs_native::HdfsError::AlreadyExists(words))) => {
                words.contains("current lease")
            }
            // Unknown: keep the first failure.
            _ => true,
        }
    }
}
