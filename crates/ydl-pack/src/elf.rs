//! Requirements of a program or shared library on its machine, read from its ELF tables.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Maximum size of a table; limits memory for corrupt files.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of entries read from a table.
const ENTRIES_MAX: usize = 4096;
/// Maximum length of a library or version name.
const NAME_BYTES_MAX: usize = 4096;

/// Parsed requirements of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// Machine type as printed by `uname -m`.
    pub machine: String,
    /// Needed libraries.
    pub needs: Vec<String>,
    /// Library search paths (`DT_RPATH`, `DT_RUNPATH`).
    pub paths: Vec<String>,
    /// Highest required version of the C library, such as 2.17.
    pub glibc: Option<(u32, u32)>,
}

/// Reads a file. Returns `None` if it is not a valid ELF file.
pub(super) fn read(path: &Path) -> Option<Elf> {
    let file = File::open(path).ok()?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if &head[..4] != b"\x7fELF" || head[5] != 1 {
        return None;
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let mut elf = Elf { machine: machine_name(machine), ..Elf::default() };
    // For a 32-bit file only the machine matters: no environment has such an interpreter.
    if head[4] == 2 {
        let _ = ElfTables::of(&file, &head).and_then(|tables| tables.fill(&mut elf));
    }
    Some(elf)
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "i386".into(),
        21 => "ppc64le".into(),
        22 => "s390x".into(),
        40 => "arm".into(),
        62 => "x86_64".into(),
        183 => "aarch64".into(),
        243 => "riscv64".into(),
        other => format!("machine {other}"),
    }
}

struct ElfTables<'a> {
    file: &'a File,
    /// Address, file offset, length.
    loaded: Vec<(u64, u64, u64)>,
    dynamic: Vec<(u64, u64)>,
}

impl ElfTables<'_> {
    fn of<'a>(file: &'a File, head: &[u8; 64]) -> io::Result<ElfTables<'a>> {
        let at = long(head, 32);
        let size = u64::from(short(head, 54));
        let count = u64::from(short(head, 56));
        let bytes = read_at(file, at, size * count)?;
        let mut tables = ElfTables { file, loaded: Vec::new(), dynamic: Vec::new() };
        for entry in bytes.chunks_exact(size.max(56) as usize) {
            let (kind, offset) = (word(entry, 0), long(entry, 8));
            let (address, length) = (long(entry, 16), long(entry, 32));
            match kind {
                1 => tables.loaded.push((address, offset, length)),
                2 => {
                    let bytes = read_at(file, offset, length)?;
                    let pairs = bytes.chunks_exact(16);
                    tables.dynamic = pairs.map(|pair| (long(pair, 0), long(pair, 8))).collect();
                }
                _ => {}
            }
        }
        Ok(tables)
    }

    fn fill(&self, elf: &mut Elf) -> io::Result<()> {
        let find = |tag| self.dynamic.iter().find(|(one, _)| *one == tag).map(|(_, value)| *value);
        let Some(names) = find(5).and_then(|address| self.file_offset(address)) else {
            return Ok(());
        };
        for (tag, value) in self.dynamic.iter().take(ENTRIES_MAX) {
            match tag {
                0 => break,
                1 => elf.needs.push(self.name(names, *value)?),
                15 | 29 => {
                    let paths = self.name(names, *value)?;
                    elf.paths.extend(paths.split(':').map(str::to_owned));
                }
                _ => {}
            }
        }
        if let Some(needs) = find(0x6fff_fffe).and_then(|address| self.file_offset(address)) {
            elf.glibc = self.newest(names, needs)?;
        }
        Ok(())
    }

    /// Highest `GLIBC_x.y` in the table of needed versions.
    fn newest(&self, names: u64, mut at: u64) -> io::Result<Option<(u32, u32)>> {
        let mut newest = None;
        for _ in 0..ENTRIES_MAX {
            let need = read_at(self.file, at, 16)?;
            let mut one = at + u64::from(word(&need, 8));
            for _ in 0..usize::from(short(&need, 2)).min(ENTRIES_MAX) {
                let version = read_at(self.file, one, 16)?;
                let name = self.name(names, u64::from(word(&version, 8)))?;
                newest = newest.max(name.strip_prefix("GLIBC_").and_then(version_of));
                match word(&version, 12) {
                    0 => break,
                    next => one += u64::from(next),
                }
            }
            match word(&need, 12) {
                0 => break,
                next => at += u64::from(next),
            }
        }
        Ok(newest)
    }

    /// Converts an address to a file offset.
    fn file_offset(&self, address: u64) -> Option<u64> {
        let holds = |(from, _, length): &&(u64, u64, u64)| {
            address.checked_sub(*from).is_some_and(|inside| inside < *length)
        };
        let (from, offset, _) = self.loaded.iter().find(holds)?;
        offset.checked_add(address - from)
    }

    fn name(&self, names: u64, at: u64) -> io::Result<String> {
        let mut bytes = vec![0; NAME_BYTES_MAX];
        let from = names.checked_add(at).ok_or(io::ErrorKind::InvalidData)?;
        let read = self.file.read_at(&mut bytes, from)?;
        let text = bytes[..read].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// Parses `2.17` or `2.2.5`; words such as `PRIVATE` are no version.
pub(super) fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn read_at(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > TABLE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut all = vec![0; bytes as usize];
    file.read_exact_at(&mut all, at)?;
    Ok(all)
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        part.copy_from_slice(found);
    }
    part
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_requirements_of_this_test_binary_are_read() {
        let own = std::env::current_exe().expect("a path");
        let elf = read(&own).expect("a program");
        assert_eq!(elf.machine, std::env::consts::ARCH);
        assert!(elf.needs.iter().any(|name| name == "libc.so.6"), "{elf:?}");
        assert!(elf.glibc >= Some((2, 2)), "{elf:?}");
    }

    #[test]
    fn invalid_files_are_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("broken");
        assert_eq!(read(&path), None);
        fs::write(&path, "#!/bin/sh\n").expect("a file");
        assert_eq!(read(&path), None);
        let whole = fs::read(std::env::current_exe().expect("a path")).expect("a program");
        // Corrupt headers and tables must not cause a panic.
        for at in (4..1024).step_by(7) {
            let mut bytes = whole[..64 << 10].to_vec();
            bytes[at] = 0xff;
            fs::write(&path, bytes).expect("a file");
            let _ = read(&path);
        }
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!(version_of("2.17"), Some((2, 17)));
        assert_eq!(version_of("2.2.5"), Some((2, 2)));
        assert_eq!(version_of("PRIVATE"), None);
        assert!(Some((2, 9)) < Some((2, 17)));
    }
}
