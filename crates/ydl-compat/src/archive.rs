//! Detection of archives by their first bytes, regardless of their names.

use std::{fs::File, io::Read, path::Path};

/// Length of the header of a tar's first file.
const HEADER_LEN: usize = 512;
/// Range of the checksum, whose bytes count as spaces.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Magic bytes of formats that tar decompresses: gzip, bzip2, xz, zstd, lzma, lzip and compress.
const COMPRESSED: [&[u8]; 7] =
    [b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x5d\0\0", b"LZIP", b"\x1f\x9d"];
/// Magic bytes of a zip, and of an empty one.
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Returns true if the content of a file fits its name. Missing and unreadable files are reported elsewhere.
pub(crate) fn is_valid(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return true;
    };
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return true;
    }
    let mut header = Vec::new();
    if file.take(HEADER_LEN as u64).read_to_end(&mut header).is_err() {
        return true;
    }
    let begins = |with: &[&[u8]]| with.iter().any(|with| header.starts_with(with));
    match path.extension().is_some_and(|it| it == "zip") {
        true => begins(&ZIP),
        false => begins(&COMPRESSED) || is_tar(&header),
    }
}

/// Returns true for a header with a valid checksum, or for zeros, which begin an empty tar.
fn is_tar(header: &[u8]) -> bool {
    if header.iter().all(|byte| *byte == 0) {
        return true;
    }
    let Some(field) = header.get(CHECKSUM) else {
        return false;
    };
    let sum = header.iter().enumerate().map(|(at, byte)| match CHECKSUM.contains(&at) {
        true => u32::from(b' '),
        false => u32::from(*byte),
    });
    let field = String::from_utf8_lossy(field);
    let field = field.trim_matches(|c: char| c == '\0' || c == ' ');
    header.len() == HEADER_LEN && u32::from_str_radix(field, 8) == Ok(sum.sum())
}
