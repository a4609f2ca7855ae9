//! A plan as a `.tar.gz`, compressed on all cores.
//!
//! The archive is cut into pieces of one size, each becomes a gzip member of its own, and members stand one after the other: `gzip -dc`
//! reads them as one. Where it is cut does not depend on how many cores there are, so the bytes do not either.

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

/// What becomes one gzip member.
const PIECE_BYTES: usize = 1 << 20;
/// Quick: what is sent to a cluster is sent once, and waited for. Of an environment with MXNet the next level makes a sixth
/// less in 60 % more time.
const LEVEL: u32 = 1;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Of all of it, SHA-256 in hexadecimal.
    pub hash: String,
    pub bytes: u64,
}

struct Piece {
    bytes: Vec<u8>,
    to: SyncSender<io::Result<Vec<u8>>>,
}

/// Writes the archive.
pub(super) fn write(plan: &Plan, out: &mut dyn Write) -> io::Result<Written> {
    let cores = cores();
    let (pieces, waiting) = sync_channel::<Piece>(cores);
    let (turns, order) = sync_channel(2 * cores);
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        let cutting = scope.spawn(move || {
            let mut cutter = Cutter { bytes: Vec::with_capacity(PIECE_BYTES), pieces, turns };
            plan.write(&mut cutter)?;
            cutter.cut()
        });
        for _ in 0..cores {
            scope.spawn(|| work(&waiting));
        }
        let collected = collect(&order, out);
        // Whoever waits for a place in the queue must not wait for ever after a failure.
        drop(order);
        let cut = cutting
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("an archive could not be made")));
        // A file that could not be read is the reason for everything after it; that nobody takes what was read is none.
        match (cut, collected) {
            (Err(cut), Err(error)) if cut.kind() == io::ErrorKind::BrokenPipe => Err(error),
            (Err(error), Err(_)) | (Err(error), Ok(_)) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(written)) => Ok(written),
        }
    })
}

/// How many threads may be busy.
pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn work(waiting: &Mutex<Receiver<Piece>>) {
    loop {
        let piece = {
            let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.recv()
        };
        let Ok(piece) = piece else {
            return;
        };
        // Nobody waits for it after a failure.
        let _ = piece.to.send(compress(&piece.bytes));
    }
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let packed = Vec::with_capacity(bytes.len() / 2);
    let mut encoder = GzBuilder::new().write(packed, Compression::new(LEVEL));
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn collect(
    order: &Receiver<Receiver<io::Result<Vec<u8>>>>,
    out: &mut dyn Write,
) -> io::Result<Written> {
    let mut context = Context::new(&SHA256);
    let mut bytes = 0;
    for turn in order {
        let member = turn
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("an archive could not be compressed")))?;
        context.update(&member);
        bytes += member.len() as u64;
        out.write_all(&member)?;
    }
    out.flush()?;
    let hash = hex::encode(context.finish().as_ref());
    Ok(Written { hash, bytes })
}

/// Cuts what is written to it into pieces.
struct Cutter {
    bytes: Vec<u8>,
    pieces: SyncSender<Piece>,
    turns: SyncSender<Receiver<io::Result<Vec<u8>>>>,
}

impl Cutter {
    fn cut(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(PIECE_BYTES));
        let (to, turn) = sync_channel(1);
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.turns.send(turn).map_err(|_| gone())?;
        self.pieces.send(Piece { bytes, to }).map_err(|_| gone())
    }
}

impl Write for Cutter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(PIECE_BYTES - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..some]);
        if self.bytes.len() == PIECE_BYTES {
            self.cut()?;
        }
        Ok(some)
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
    fn members_one_after_the_other_are_one_archive() {
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
    fn a_disk_that_is_full_and_a_file_that_changes_end_it() {
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
        let error = write(&plan, &mut Full).expect_err("no place");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        fs::write(dir.path().join("large"), "changed").expect("a file");
        let error = write(&plan, &mut io::sink()).expect_err("refused");
        assert!(error.to_string().contains("changed while it was read"), "{error}");
    }
}
