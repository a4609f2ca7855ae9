//! Detection of archives by their first bytes, regardless of their names.

use std::{fs::File, io::Read, path::Path};

/// The header of a tar's first file.
const HEADER: usize = 512;
/// Range of the checksum, whose bytes count as spaces.
const SUM: std::ops::Range<usize> = 148..156;

/// Magic bytes of formats that tar decompresses: gzip, bzip2, xz, zstd, lzma, lzip and compress.
const PACKED: [&[u8]; 7] =
    [b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x5d\0\0", b"LZIP", b"\x1f\x9d"];
/// Magic bytes of a zip, and of an empty one.
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Returns true if the file is an archive of the kind that its name says. Missing and unreadable files are reported
/// elsewhere.
pub fn is_one(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return true;
    };
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return true;
    }
    let mut begin = Vec::new();
    if file.take(HEADER as u64).read_to_end(&mut begin).is_err() {
        return true;
    }
    let begins = |with: &[&[u8]]| with.iter().any(|with| begin.starts_with(with));
    match path.extension().is_some_and(|it| it == "zip") {
        true => begins(&ZIP),
        false => begins(&PACKED) || is_tar(&begin),
    }
}

/// A tar begins with a header whose sum is right, or with nothing but zeros where it holds nothing.
fn is_tar(begin: &[u8]) -> bool {
    if begin.iter().all(|byte| *byte == 0) {
        return true;
    }
    let Some(said) = begin.get(SUM) else {
        return false;
    };
    let sum = begin.iter().enumerate().map(|(at, byte)| match SUM.contains(&at) {
        true => u32::from(b' '),
        false => u32::from(*byte),
    });
    let said = String::from_utf8_lossy(said);
    let said = said.trim_matches(|c: char| c == '\0' || c == ' ');
    begin.len() == HEADER && u32::from_str_radix(said, 8) == Ok(sum.sum())
}
