//! Writes a plan as a `.tar.gz`, compressed on all cores.
//!
//! The archive is split into chunks of fixed size, each compressed as a gzip member of its own; `gzip -dc` reads consecutive
//! members as one stream. The split does not depend on the number of cores, so neither do the bytes.

use super::plan::Plan;
use flate2::{Compression, GzBuilder};
use ring::digest::{Context, SHA256};
use std::{
    io::{self, Write},
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

/// Uncompressed size of one gzip member.
const CHUNK_BYTES: usize = 1 << 20;
/// Fast compression: an environment is uploaded once while the user waits. With MXNet the next level saves a sixth of the
/// size for 60 % more time.
const LEVEL: u32 = 1;

/// Finished archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArchiveInfo {
    /// SHA-256 of the archive in hexadecimal.
    pub hash: String,
    pub bytes: u64,
}

struct Chunk {
    bytes: Vec<u8>,
    to: SyncSender<io::Result<Vec<u8>>>,
}

/// Writes the archive.
pub(super) fn write(plan: &Plan, out: &mut dyn Write) -> io::Result<ArchiveInfo> {
    let cores = cores();
    let (chunks, chunk_queue) = sync_channel::<Chunk>(cores);
    let (members, member_queue) = sync_channel(2 * cores);
    let chunk_queue = Mutex::new(chunk_queue);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut writer =
                ChunkWriter { bytes: Vec::with_capacity(CHUNK_BYTES), chunks, members };
            plan.write(&mut writer)?;
            writer.flush_chunk()
        });
        for _ in 0..cores {
            scope.spawn(|| compress_chunks(&chunk_queue));
        }
        let written = write_members(&member_queue, out);
        // Senders must not block on the full queue after a failure.
        drop(member_queue);
        let read =
            reader.join().unwrap_or_else(|_| Err(io::Error::other("writing an archive failed")));
        // Report the write error rather than the closed queue that follows from it.
        match (read, written) {
            (Err(read), Err(error)) if read.kind() == io::ErrorKind::BrokenPipe => Err(error),
            (Err(error), Err(_)) | (Err(error), Ok(_)) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(written)) => Ok(written),
        }
    })
}

/// Returns the number of compression threads.
pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn compress_chunks(queue: &Mutex<Receiver<Chunk>>) {
    loop {
        let chunk = {
            let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.recv()
        };
        let Ok(chunk) = chunk else {
            return;
        };
        // The receiver is gone after a failure.
        let _ = chunk.to.send(compress(&chunk.bytes));
    }
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let packed = Vec::with_capacity(bytes.len() / 2);
    let mut encoder = GzBuilder::new().write(packed, Compression::new(LEVEL));
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Writes the compressed chunks in their original order.
fn write_members(
    members: &Receiver<Receiver<io::Result<Vec<u8>>>>,
    out: &mut dyn Write,
) -> io::Result<ArchiveInfo> {
    let mut context = Context::new(&SHA256);
    let mut bytes = 0;
    for member in members {
        let member = member
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("compressing an archive failed")))?;
        context.update(&member);
        bytes += member.len() as u64;
        out.write_all(&member)?;
    }
    out.flush()?;
    let hash = hex::encode(context.finish().as_ref());
    Ok(ArchiveInfo { hash, bytes })
}

/// Writer that splits its input into chunks.
struct ChunkWriter {
    bytes: Vec<u8>,
    chunks: SyncSender<Chunk>,
    /// Receivers of the compressed chunks, in order.
    members: SyncSender<Receiver<io::Result<Vec<u8>>>>,
}

impl ChunkWriter {
    fn flush_chunk(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(CHUNK_BYTES));
        let (to, member) = sync_channel(1);
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.members.send(member).map_err(|_| closed())?;
        self.chunks.send(Chunk { bytes, to }).map_err(|_| closed())
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(CHUNK_BYTES - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..length]);
        if self.bytes.len() == CHUNK_BYTES {
            self.flush_chunk()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Read};

    #[test]
    fn consecutive_members_form_one_archive() {
        let dir = tempfile::tempdir().expect("a directory");
        let from = dir.path().join("in");
        fs::create_dir(&from).expect("a directory");
        let large: Vec<u8> = (0..5 << 20).map(|n: u32| (n ^ (n >> 9)) as u8).collect();
        fs::write(from.join("large"), &large).expect("a file");
        fs::write(from.join("ü b"), "small").expect("a file");
        let plan = Plan::of(&from).expect("a plan");
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let written = write(&plan, &mut one).expect("an archive");
        assert_eq!(write(&plan, &mut two).expect("an archive"), written);
        assert_eq!(one, two);
        assert_eq!(written.bytes, one.len() as u64);
        let mut bytes = Vec::new();
        flate2::read::MultiGzDecoder::new(one.as_slice()).read_to_end(&mut bytes).expect("gzip");
        let out = dir.path().join("out");
        tar::Archive::new(bytes.as_slice()).unpack(&out).expect("unpacked");
        assert_eq!(fs::read(out.join("large")).expect("a file"), large);
        assert_eq!(fs::read(out.join("ü b")).expect("a file"), b"small");
    }

    #[test]
    fn a_full_disk_and_a_changing_file_are_errors() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("large"), vec![7; 64 << 20]).expect("a file");
        let plan = Plan::of(dir.path()).expect("a plan");
        let error = write(&plan, &mut Full).expect_err("a write error");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        fs::write(dir.path().join("large"), "changed").expect("a file");
        let error = write(&plan, &mut io::sink()).expect_err("a changed file");
        assert!(error.to_string().contains("changed while it was read"), "{error}");
    }
}
