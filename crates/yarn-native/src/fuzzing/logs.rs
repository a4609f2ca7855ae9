//! Aggregated logs: whole files, and files around parts that a fuzzer would hardly reach.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::split_selector;
use crate::logs::{Checksum, LogError, LogFile};

/// Magic number of a TFile.
const MAGIC: [u8; 16] = [
    0xd1, 0x11, 0xd3, 0x68, 0x91, 0xb5, 0xd7, 0xb6, 0x39, 0xdf, 0x41, 0x40, 0x92, 0xba, 0xe1, 0x50,
];
const ID: [u8; 32] = [7; 32];
/// Limit on the pieces read: compressed logs may be a thousand times their file, and only the size
/// of each piece is checked.
const PIECES_MAX: usize = 64;

/// Reads a TFile; bytes without its magic become its block, compressed or not, or its index.
pub fn tfile(bytes: &[u8]) {
    if bytes.starts_with(&MAGIC) {
        return read(bytes);
    }
    let Some((pick, part)) = split_selector(bytes) else {
        return;
    };
    let (compression, length) = match pick % 4 {
        0 => ("none", part.len()),
        1 => ("gz", part.len() * 1100),
        2 => ("gz", part.len()),
        _ => return read(&with_index(&[], part)),
    };
    let mut index = text(compression);
    index.extend(number(1));
    index.extend(run(MAGIC.len(), part.len(), length));
    read(&with_index(part, &index));
}

/// Returns a TFile with one block and an index.
fn with_index(block: &[u8], index: &[u8]) -> Vec<u8> {
    let mut file = [&MAGIC[..], block].concat();
    let mut meta = number(1);
    meta.extend(text("data:BCFile.index"));
    meta.extend(text("none"));
    meta.extend(run(file.len(), index.len(), index.len()));
    file.extend_from_slice(index);
    let meta_at = file.len() as u64;
    file.extend(meta);
    file.extend(meta_at.to_be_bytes());
    file.extend([0, 1, 0, 0]);
    file.extend(MAGIC);
    file
}

/// Encodes a number in the form with four bytes; a fuzzer finds the others.
fn number(value: usize) -> Vec<u8> {
    let value = u32::try_from(value).expect("a fuzzer's files are short");
    [&[0x83], &value.to_be_bytes()[..]].concat()
}

fn text(text: &str) -> Vec<u8> {
    [number(text.len()), text.as_bytes().to_vec()].concat()
}

fn run(offset: usize, stored: usize, length: usize) -> Vec<u8> {
    [number(offset), number(stored), number(length)].concat()
}

/// Reads an indexed file; bytes with different ends become its serialised index.
pub fn indexed(bytes: &[u8]) {
    if bytes.len() >= 2 * ID.len() && bytes[..ID.len()] == bytes[bytes.len() - ID.len()..] {
        return read(bytes);
    }
    if let Some(checksum) = Checksum::from_bytes(bytes) {
        let _ = ready(LogFile::open_until(bytes, checksum.end)).map(|_| ());
    }
    let length = u32::try_from(bytes.len()).expect("a fuzzer's files are short");
    let content = [b'x'; 4096];
    read(&[&ID, &content[..], bytes, &length.to_be_bytes(), &ID].concat());
}

fn read(bytes: &[u8]) {
    if let Err(error) = ready(read_all(bytes)) {
        let _ = error.to_string();
    }
}

async fn read_all(bytes: &[u8]) -> Result<(), LogError> {
    let mut file = LogFile::open(bytes).await?;
    let mut pieces = 0;
    while let Some(entry) = file.next().await? {
        // Skip half of every second log, to cover both cases.
        if entry.length % 2 == 0 {
            file.skip(entry.length / 2).await?;
        }
        while let Some(piece) = file.piece().await? {
            assert!(piece.len() <= 64 << 10);
            pieces += 1;
            if pieces > PIECES_MAX {
                return Ok(());
            }
        }
    }
    let _ = (file.owner(), file.format());
    Ok(())
}

/// Polls a future that never waits, since its bytes are in memory.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future is pending"),
    }
}
