//! Local bytes into HDFS, read ahead while they are sent.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
    whole::beside,
};
use crate::os::reason;
use bytes::{Bytes, BytesMut};
use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    time::Duration,
};
use tokio::{sync::mpsc, task::spawn_blocking, time::Instant};

/// Read and sent at once.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces read ahead.
const PIECES_AHEAD: usize = 4;
/// One piece takes no longer than this, or the connection is as good as dead.
const PIECE_MAX: Duration = Duration::from_secs(120);

/// Deeper than any sensible directory.
const DEPTH_MAX: usize = 100;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Hdfs {
    /// Sends everything that `source` gives to a new file, which is there whole or not at all; one that exists already is
    /// replaced. `progress` hears of every piece.
    pub async fn put(
        &self,
        source: impl Read + Send + 'static,
        place: &str,
        permission: u32,
        progress: &(dyn Fn(u64) + Sync),
        deadline: Instant,
    ) -> Result<u64, HdfsError> {
        let aside = beside(place)?;
        let sent = async {
            let bytes = self
                .send(source, &aside, permission, progress, deadline)
                .await?;
            self.replace(&aside, place, deadline).await?;
            Ok(bytes)
        };
        let result = sent.await;
        if result.is_err() {
            // The first failure is the one to tell; whoever cleans finds what is left.
            let _ = self.delete(&aside, deadline).await;
        }
        result
    }

    /// Sends a local file.
    pub async fn put_file(
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

    /// Sends what a local directory holds into the directory `place`, file by file; what is there of the same name is
    /// replaced. Links are followed to files, and left out where they lead to directories or nowhere.
    pub async fn put_directory(
        &self,
        dir: &Path,
        place: &str,
        progress: &(dyn Fn(u64) + Sync),
        deadline: Instant,
    ) -> Result<Sent, HdfsError> {
        let mut sent = Sent::default();
        let mut waiting = vec![(dir.to_path_buf(), place.trim_end_matches('/').to_owned(), 0)];
        while let Some((dir, place, depth)) = waiting.pop() {
            if depth > DEPTH_MAX {
                let what = format!("cannot send `{}`: it is nested too deep", dir.display());
                return Err(HdfsError::new(Kind::BadInput, what));
            }
            self.mkdirs(&place, 0o755, deadline).await?;
            for entry in fs::read_dir(&dir).map_err(|error| local(&dir, &error))? {
                let entry = entry.map_err(|error| local(&dir, &error))?;
                let path = entry.path();
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    let what = format!("cannot send `{}`: its name is not UTF-8", path.display());
                    return Err(HdfsError::new(Kind::BadInput, what));
                };
                let to = format!("{place}/{name}");
                let kind = entry.file_type().map_err(|error| local(&path, &error))?;
                if kind.is_dir() {
                    waiting.push((path, to, depth + 1));
                } else if path.is_file() {
                    sent.bytes += self.put_file(&path, &to, 0o644, progress, deadline).await?;
                    sent.files += 1;
                }
            }
        }
        Ok(sent)
    }

    /// Sends everything that `source` gives to a file of that very name, which must not exist. An error leaves a part
    /// of it behind.
    pub async fn send(
        &self,
        source: impl Read + Send + 'static,
        place: &str,
        permission: u32,
        progress: &(dyn Fn(u64) + Sync),
        deadline: Instant,
    ) -> Result<u64, HdfsError> {
        let mut writer = self.create(place, permission, deadline).await?;
        let (pieces, mut ready) = mpsc::channel(PIECES_AHEAD);
        let reading = spawn_blocking(move || read_ahead(source, &pieces));
        while let Some(piece) = ready.recv().await {
            let piece: Bytes = piece.map_err(|error: io::Error| {
                self.about("send", place)
                    .failed(Kind::Other, reason(&error))
            })?;
            let length = piece.len() as u64;
            writer
                .write(piece, deadline.min(Instant::now() + PIECE_MAX))
                .await?;
            progress(length);
        }
        if reading.await.is_err() {
            return Err(self
                .about("send", place)
                .failed(Kind::Other, "its source failed"));
        }
        let bytes = writer.written();
        writer
            .close(deadline.min(Instant::now() + PIECE_MAX))
            .await?;
        Ok(bytes)
    }
}

fn read_ahead(mut source: impl Read, pieces: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut piece = BytesMut::zeroed(PIECE_BYTES);
        let mut filled = 0;
        let result = loop {
            match source.read(&mut piece[filled..]) {
                Ok(0) => break Ok(()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if filled == PIECE_BYTES {
                break Ok(());
            }
        };
        if let Err(error) = result {
            // Nobody listens when the sending has failed already.
            let _ = pieces.blocking_send(Err(error));
            return;
        }
        let last = filled < PIECE_BYTES;
        piece.truncate(filled);
        if filled > 0 && pieces.blocking_send(Ok(piece.freeze())).is_err() || last {
            return;
        }
    }
}

fn local(path: &Path, error: &io::Error) -> HdfsError {
    HdfsError::new(
        Kind::BadInput,
        format!("cannot read `{}`: {}", path.display(), reason(error)),
    )
}
