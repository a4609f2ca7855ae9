//! Local bytes into HDFS, read ahead while they are sent.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
    small_files::{CLEANUP_TIMEOUT, temporary_path},
};
use bytes::{Bytes, BytesMut};
use std::{
    fs::File,
    io::{self, Read, Write},
    mem,
    path::Path,
    time::Duration,
};
use tokio::{sync::mpsc, task::spawn_blocking, time::Instant};
use ydl_os::reason;

/// Read and sent at once.
const CHUNK_BYTES: usize = 4 << 20;
/// Chunks read ahead.
const CHUNKS_AHEAD: usize = 4;
/// One chunk takes no longer than this, or the connection is as good as dead.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(120);

/// Totals of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadTotals {
    /// Files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Hdfs {
    /// Sends everything that `source` gives to a new file, which is there whole or not at all; one that exists already is
    /// replaced. `progress` hears of every chunk.
    pub async fn put(
        &self,
        source: impl Read + Send + 'static,
        place: &str,
        permission: u32,
        progress: &(dyn Fn(u64) + Sync),
        deadline: Instant,
    ) -> Result<u64, HdfsError> {
        let aside = temporary_path(place)?;
        let sent = async {
            let produce = |out: &mut UploadBuffer| out.fill_from(source, |_| {});
            let (bytes, _) = self.send(produce, &aside, permission, progress, deadline).await?;
            self.replace(&aside, place, deadline).await?;
            Ok(bytes)
        };
        let result = sent.await;
        if result.is_err() {
            // Report the first failure; the cleanup removes what is left.
            let _ = self.delete(&aside, Instant::now() + CLEANUP_TIMEOUT).await;
        }
        result
    }

    /// Sends a local file.
    pub async fn upload_file(
        &self,
        path: &Path,
        place: &str,
        permission: u32,
        progress: &(dyn Fn(u64) + Sync),
        deadline: Instant,
    ) -> Result<u64, HdfsError> {
        let file = File::open(path).map_err(|error| local(path, &error))?;
        self.put(file, place, permission, progress, deadline).await
    }

    /// Sends everything that `produce` writes to a file of that very name, which must not exist. An error leaves a part
    /// of it behind. `produce` runs on a blocking thread.
    pub async fn send<T: Send + 'static>(
        &self,
        produce: impl FnOnce(&mut UploadBuffer) -> io::Result<T> + Send + 'static,
        place: &str,
        permission: u32,
        progress: &(dyn Fn(u64) + Sync),
        deadline: Instant,
    ) -> Result<(u64, T), HdfsError> {
        let mut writer = self.create(place, permission, deadline).await?;
        let (out, mut ready) = mpsc::channel(CHUNKS_AHEAD);
        let producing = spawn_blocking(move || {
            let mut chunks = UploadBuffer::new(out);
            let made = produce(&mut chunks)?;
            chunks.flush()?;
            Ok(made)
        });
        while let Some(chunk) = ready.recv().await {
            let length = chunk.len() as u64;
            let until = deadline.min(Instant::now() + CHUNK_TIMEOUT);
            writer.write(chunk, until).await?;
            progress(length);
        }
        let about = self.about("send", place);
        let made = match producing.await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(about.failed(Kind::BadInput, reason(&error))),
            Err(_) => return Err(about.failed(Kind::Other, "its source failed")),
        };
        let bytes = writer.written();
        let until = deadline.min(Instant::now() + CHUNK_TIMEOUT);
        writer.close(until).await?;
        Ok((bytes, made))
    }
}

/// Buffer of an upload: sends bytes in large chunks and blocks while the network is slower than the disk.
#[derive(Debug)]
pub struct UploadBuffer {
    out: mpsc::Sender<Bytes>,
    chunk: BytesMut,
    filled: usize,
}

impl UploadBuffer {
    fn new(out: mpsc::Sender<Bytes>) -> UploadBuffer {
        UploadBuffer { out, chunk: BytesMut::new(), filled: 0 }
    }

    /// Takes in all that a source gives; `seen` is shown every part of it.
    pub fn fill_from(
        &mut self,
        mut source: impl Read,
        mut seen: impl FnMut(&[u8]),
    ) -> io::Result<u64> {
        let mut taken = 0;
        loop {
            let room = self.room();
            match source.read(room) {
                Ok(0) => return Ok(taken),
                Ok(more) => {
                    seen(&room[..more]);
                    taken += more as u64;
                    self.filled += more;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.pass_on_full()?;
        }
    }

    fn room(&mut self) -> &mut [u8] {
        if self.chunk.is_empty() {
            self.chunk = BytesMut::zeroed(CHUNK_BYTES);
        }
        &mut self.chunk[self.filled..]
    }

    fn pass_on_full(&mut self) -> io::Result<()> {
        match self.filled == CHUNK_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }
}

impl Write for UploadBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.room();
        let length = room.len().min(bytes.len());
        room[..length].copy_from_slice(&bytes[..length]);
        self.filled += length;
        self.pass_on_full()?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut chunk = mem::take(&mut self.chunk);
        chunk.truncate(mem::take(&mut self.filled));
        if chunk.is_empty() {
            return Ok(());
        }
        let gone = |_| io::Error::other("the sending was given up");
        self.out.blocking_send(chunk.freeze()).map_err(gone)
    }
}

fn local(path: &Path, error: &io::Error) -> HdfsError {
    HdfsError::new(Kind::BadInput, format!("cannot read `{}`: {}", path.display(), reason(error)))
}
