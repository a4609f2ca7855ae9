//! Names and lengths in a tar, however they are said: in its headers, or in entries of their own before them.

use super::{Seen, inside, leads_out, path, wrong};
use std::{
    io::{self, Read},
    path::PathBuf,
};
use tar::{EntryType, Header};

/// Of everything in a tar.
const BLOCK_BYTES: usize = 512;
/// Longer than any name, and than what is said of any.
const NAME_BYTES_MAX: u64 = 1 << 20;
/// More pieces than any file with holes has: each block tells of 21.
const HOLES_MAX: usize = 1 << 16;

impl Seen {
    pub(super) fn tar(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut longer = Longer::default();
        let mut block = Header::new_old();
        let mut first = true;
        // Two empty blocks are the end, and one is taken for it, too; some leave them out.
        while read(&mut from, block.as_mut_bytes(), first)? {
            if block.as_bytes().iter().all(|byte| *byte == 0) {
                break;
            }
            check(&block)?;
            first = false;
            let kind = block.entry_type();
            let mut stored = block.entry_size()?;
            if longer.take(kind, &mut from, stored)? {
                continue;
            }
            let Longer { name, to, bytes, real } = std::mem::take(&mut longer);
            stored = bytes.unwrap_or(stored);
            let name = name.unwrap_or_else(|| path(&block.path_bytes()));
            let to = to.or_else(|| Some(path(&block.link_name_bytes()?)));
            match kind {
                EntryType::Symlink => self.see(&name, 0, true)?,
                EntryType::Link => {
                    let to = inside(&to.unwrap_or_default()).ok_or_else(|| leads_out(&name))?;
                    self.before_links(&to, &name)?;
                    self.see(&name, 0, false)?;
                }
                EntryType::Char | EntryType::Block | EntryType::Fifo => {
                    let what = format!("`{}` in it is a device", name.display());
                    return Err(wrong(what));
                }
                EntryType::GNUSparse => {
                    self.see(&name, holes(&block, &mut from)?.max(stored), false)?;
                }
                // Many know no other, as people find out who unpack it.
                _ => self.see(&name, real.unwrap_or(stored).max(stored), false)?,
            }
            skip(&mut from, stored)?;
        }
        match first {
            true => Err(wrong("it is no tar archive, or empty")),
            false => Ok(()),
        }
    }
}

/// Reads one block. Nothing if there is no more.
fn read(from: &mut impl Read, block: &mut [u8; BLOCK_BYTES], first: bool) -> io::Result<bool> {
    let mut at = 0;
    while at < BLOCK_BYTES {
        match from.read(&mut block[at..]) {
            Ok(0) if at == 0 => return Ok(false),
            Ok(0) => return Err(cut(io::ErrorKind::UnexpectedEof.into())),
            Ok(some) => at += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Of what is no archive at all the end is not missed.
            Err(error) if first => return Err(error),
            Err(error) => return Err(cut(error)),
        }
    }
    Ok(true)
}

fn cut(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong("it is cut off"),
        _ => error,
    }
}

/// Whether that is a header: the sum of its bytes is in it, counted as if blanks were there.
fn check(block: &Header) -> io::Result<()> {
    let bytes = block.as_bytes();
    let own = bytes[148..156].iter().map(|byte| u32::from(*byte));
    let all = bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    match block.cksum() {
        Ok(said) if said == all - own.sum::<u32>() + 8 * u32::from(b' ') => Ok(()),
        _ => Err(wrong("it is no tar archive, or broken")),
    }
}

/// Goes on behind what an entry holds, which fills whole blocks.
fn skip(from: &mut impl Read, bytes: u64) -> io::Result<()> {
    let whole = bytes
        .checked_next_multiple_of(BLOCK_BYTES as u64)
        .ok_or_else(|| wrong("it is no tar archive, or broken"))?;
    match io::copy(&mut from.take(whole), &mut io::sink()).map_err(cut)? {
        some if some == whole => Ok(()),
        _ => Err(cut(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Goes on behind the list of a sparse file's pieces, and says how long the file becomes.
fn holes(block: &Header, from: &mut impl Read) -> io::Result<u64> {
    let gnu = block.as_gnu().ok_or_else(|| wrong("it is no tar archive, or broken"))?;
    let mut more = gnu.is_extended();
    let mut count = 0;
    while more {
        let mut next = [0; BLOCK_BYTES];
        if !read(from, &mut next, false)? || count > HOLES_MAX {
            return Err(wrong("it is cut off"));
        }
        count += 1;
        more = next[504] != 0;
    }
    gnu.real_size()
}

/// What entries of their own say of the one that follows them.
#[derive(Default)]
struct Longer {
    name: Option<PathBuf>,
    to: Option<PathBuf>,
    /// How long it is, where a header cannot say it.
    bytes: Option<u64>,
    /// How long it becomes, if it has holes.
    real: Option<u64>,
}

impl Longer {
    /// Whether that is such an entry.
    fn take(&mut self, kind: EntryType, from: &mut impl Read, bytes: u64) -> io::Result<bool> {
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
            return Err(wrong(format!("a name in it is longer than {NAME_BYTES_MAX} bytes")));
        }
        let mut said = vec![0; (bytes as usize).next_multiple_of(BLOCK_BYTES)];
        from.read_exact(&mut said).map_err(cut)?;
        said.truncate(bytes as usize);
        match kind {
            EntryType::GNULongName => self.name = Some(path(&said)),
            EntryType::GNULongLink => self.to = Some(path(&said)),
            EntryType::XHeader => self.records(&said)?,
            // What is said of all that follows is when it was made and by whom.
            _ => {}
        }
        Ok(true)
    }

    /// Each is its own length, a blank, a word, `=`, a value, and a line's end, which may be in the value, too.
    fn records(&mut self, said: &[u8]) -> io::Result<()> {
        let broken = || wrong("it is no tar archive, or broken");
        let mut rest = said;
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
