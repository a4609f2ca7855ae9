//! Names and lengths of a tar archive, from its headers or from extended headers before them.

use super::{ArchiveScan, escape_error, invalid, normalize, path};
use std::{
    io::{self, Read},
    path::PathBuf,
};
use tar::{EntryType, Header};

/// Block size of a tar archive.
const BLOCK_BYTES: usize = 512;
/// Maximum length of a name or an extended header.
const NAME_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of blocks of a sparse map, with 21 chunks each.
const HOLES_MAX: usize = 1 << 16;

impl ArchiveScan {
    pub(super) fn tar(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut extended = ExtendedHeader::default();
        let mut block = Header::new_old();
        let mut first = true;
        // Two zero blocks end the archive; readers accept one, and some writers omit them.
        while read(&mut from, block.as_mut_bytes(), first)? {
            if block.as_bytes().iter().all(|byte| *byte == 0) {
                break;
            }
            check(&block)?;
            first = false;
            let kind = block.entry_type();
            let mut stored = block.entry_size()?;
            if extended.read(kind, &mut from, stored)? {
                continue;
            }
            let ExtendedHeader { name, to, bytes, real } = std::mem::take(&mut extended);
            stored = bytes.unwrap_or(stored);
            let name = name.unwrap_or_else(|| path(&block.path_bytes()));
            let to = to.or_else(|| Some(path(&block.link_name_bytes()?)));
            match kind {
                EntryType::Symlink => self.add(&name, 0, true)?,
                EntryType::Link => {
                    let to =
                        normalize(&to.unwrap_or_default()).ok_or_else(|| escape_error(&name))?;
                    self.check_links(&to, &name)?;
                    self.add(&name, 0, false)?;
                }
                EntryType::Char | EntryType::Block | EntryType::Fifo => {
                    let what = format!("its entry `{}` is a device", name.display());
                    return Err(invalid(what));
                }
                EntryType::GNUSparse => {
                    self.add(&name, sparse_length(&block, &mut from)?.max(stored), false)?;
                }
                // Unknown entry types are skipped by many tools.
                _ => self.add(&name, real.unwrap_or(stored).max(stored), false)?,
            }
            skip(&mut from, stored)?;
        }
        match first {
            true => Err(invalid("not a tar archive, or empty")),
            false => Ok(()),
        }
    }
}

/// Reads one block. Returns false at the end of the archive.
fn read(from: &mut impl Read, block: &mut [u8; BLOCK_BYTES], first: bool) -> io::Result<bool> {
    let mut at = 0;
    while at < BLOCK_BYTES {
        match from.read(&mut block[at..]) {
            Ok(0) if at == 0 => return Ok(false),
            Ok(0) => return Err(truncation_error(io::ErrorKind::UnexpectedEof.into())),
            Ok(some) => at += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An error in the first block means that the file is not an archive.
            Err(error) if first => return Err(error),
            Err(error) => return Err(truncation_error(error)),
        }
    }
    Ok(true)
}

fn truncation_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid("it is truncated"),
        _ => error,
    }
}

/// Verifies the checksum of a header, computed with blanks in its place.
fn check(block: &Header) -> io::Result<()> {
    let bytes = block.as_bytes();
    let field = bytes[148..156].iter().map(|byte| u32::from(*byte));
    let all = bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    match block.cksum() {
        Ok(recorded) if recorded == all - field.sum::<u32>() + 8 * u32::from(b' ') => Ok(()),
        _ => Err(invalid("not a tar archive, or corrupt")),
    }
}

/// Skips the content of an entry, padded to whole blocks.
fn skip(from: &mut impl Read, bytes: u64) -> io::Result<()> {
    let whole = bytes
        .checked_next_multiple_of(BLOCK_BYTES as u64)
        .ok_or_else(|| invalid("not a tar archive, or corrupt"))?;
    match io::copy(&mut from.take(whole), &mut io::sink()).map_err(truncation_error)? {
        some if some == whole => Ok(()),
        _ => Err(truncation_error(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Skips the map of a sparse file and returns its unpacked length.
fn sparse_length(block: &Header, from: &mut impl Read) -> io::Result<u64> {
    let gnu = block.as_gnu().ok_or_else(|| invalid("not a tar archive, or corrupt"))?;
    let mut more = gnu.is_extended();
    let mut count = 0;
    while more {
        let mut next = [0; BLOCK_BYTES];
        if !read(from, &mut next, false)? || count > HOLES_MAX {
            return Err(invalid("it is truncated"));
        }
        count += 1;
        more = next[504] != 0;
    }
    gnu.real_size()
}

/// Values of extended headers for the next entry.
#[derive(Default)]
struct ExtendedHeader {
    name: Option<PathBuf>,
    to: Option<PathBuf>,
    /// Length, if too large for a header.
    bytes: Option<u64>,
    /// Unpacked length of a sparse file.
    real: Option<u64>,
}

impl ExtendedHeader {
    /// Reads an extended header. Returns whether the entry is one.
    fn read(&mut self, kind: EntryType, from: &mut impl Read, bytes: u64) -> io::Result<bool> {
        if !matches!(
            kind,
            EntryType::GNULongName
                | EntryType::GNULongLink
                | EntryType::XHeader
                | EntryType::XGlobalHeader
        ) {
            return Ok(false);
        }
        if bytes > NAME_BYTES_MAX {
            return Err(invalid(format!("a name in it is longer than {NAME_BYTES_MAX} bytes")));
        }
        let mut content = vec![0; (bytes as usize).next_multiple_of(BLOCK_BYTES)];
        from.read_exact(&mut content).map_err(truncation_error)?;
        content.truncate(bytes as usize);
        match kind {
            EntryType::GNULongName => self.name = Some(path(&content)),
            EntryType::GNULongLink => self.to = Some(path(&content)),
            EntryType::XHeader => self.records(&content)?,
            // Global headers carry only metadata such as times and comments.
            _ => {}
        }
        Ok(true)
    }

    /// Parses pax records: length, blank, keyword, `=`, value, newline. The value may contain newlines.
    fn records(&mut self, content: &[u8]) -> io::Result<()> {
        let broken = || invalid("not a tar archive, or corrupt");
        let mut rest = content;
        while !rest.is_empty() && rest[0] != 0 {
            let blank = rest.iter().position(|byte| *byte == b' ');
            let blank = blank.ok_or_else(broken)?;
            let length = number(&rest[..blank]).ok_or_else(broken)? as usize;
            let record = rest.get(blank + 1..length).ok_or_else(broken)?;
            let record = record.strip_suffix(b"\n").ok_or_else(broken)?;
            let equals = record.iter().position(|byte| *byte == b'=');
            let (word, value) = record.split_at(equals.ok_or_else(broken)?);
            let value = &value[1..];
            match word {
                b"path" | b"GNU.sparse.name" => self.name = Some(path(value)),
                b"linkpath" => self.to = Some(path(value)),
                b"size" => self.bytes = Some(number(value).ok_or_else(broken)?),
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                    self.real = Some(number(value).ok_or_else(broken)?);
                }
                _ => {}
            }
            rest = rest.get(length..).ok_or_else(broken)?;
        }
        Ok(())
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
