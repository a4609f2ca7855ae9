//! Valid and invalid archives.

use super::*;
use flate2::{Compression, write::GzEncoder};
use std::io::{Read, Write};
use tar::EntryType;

struct Archives {
    dir: tempfile::TempDir,
}

impl Archives {
    fn new() -> Archives {
        let dir = tempfile::tempdir().expect("a directory");
        Archives { dir }
    }

    fn check(&self, name: &str) -> Result<(), String> {
        let cache = Cache::at(self.dir.path().join("cache/packed"));
        validate(&self.dir.path().join(name), ExpectedContent::Environment, &cache).map_err(
            |report| {
                assert!(report.hint.is_some());
                report.what
            },
        )
    }

    fn assert_rejected(&self, name: &str, why: &str) {
        let error = self.check(name).expect_err("an error");
        assert!(error.contains(why), "{error}");
    }

    /// Writes a tar archive, compressed according to its name.
    fn tar(&self, name: &str, fill: impl FnOnce(&mut tar::Builder<Box<dyn Write>>)) {
        let file = fs::File::create(self.dir.path().join(name)).expect("a file");
        let out: Box<dyn Write> = match name.ends_with("gz") {
            true => Box::new(GzEncoder::new(file, Compression::fast())),
            false => Box::new(file),
        };
        let mut builder = tar::Builder::new(out);
        fill(&mut builder);
        builder.into_inner().expect("a tar").flush().expect("written");
    }
}

fn add(
    builder: &mut tar::Builder<Box<dyn Write>>,
    name: &str,
    kind: EntryType,
    to: &str,
    bytes: u64,
) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(bytes);
    // Written by hand: the crate rejects names that escape the directory.
    let as_gnu = header.as_gnu_mut().expect("a header");
    as_gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    as_gnu.linkname[..to.len()].copy_from_slice(to.as_bytes());
    header.set_cksum();
    builder.append(&header, io::repeat(0).take(bytes)).expect("an entry");
}

fn file(builder: &mut tar::Builder<Box<dyn Write>>, name: &str) {
    add(builder, name, EntryType::Regular, "", 3);
}

#[test]
fn archives_of_venv_pack_and_tar_are_valid_and_scanned_once() {
    let archives = Archives::new();
    archives.tar("fine.tar.gz", |tar| {
        file(tar, "./bin/tool");
        add(tar, "bin/python", EntryType::Symlink, "/usr/bin/python3", 0);
        let mut long = tar::Header::new_gnu();
        long.set_size(0);
        let name = format!("lib/{}/ü b", "x".repeat(150));
        tar.append_data(&mut long, name, io::empty()).expect("an entry");
    });
    assert_eq!(archives.check("fine.tar.gz"), Ok(()));
    let marks = || fs::read_dir(archives.dir.path().join("cache/checked")).expect("a list").count();
    assert_eq!(marks(), 1);
    assert_eq!(archives.check("fine.tar.gz"), Ok(()));
    assert_eq!(marks(), 1);
    archives.tar("one.tar", |tar| file(tar, "env/bin/python"));
    assert_eq!(archives.check("one.tar"), Ok(()));
    assert_eq!(marks(), 2);
}

#[test]
fn entries_outside_the_directory_are_rejected() {
    let archives = Archives::new();
    archives.tar("up.tar.gz", |tar| file(tar, "bin/../../up"));
    archives.assert_rejected("up.tar.gz", "its entry `bin/../../up` escapes the directory");
    archives.tar("root.tar", |tar| file(tar, "/etc/cron.d/x"));
    archives.assert_rejected("root.tar", "its entry `/etc/cron.d/x` escapes the directory");
    archives.tar("hard.tar", |tar| {
        file(tar, "bin/tool");
        add(tar, "hard", EntryType::Link, "../../etc/passwd", 0);
    });
    archives.assert_rejected("hard.tar", "its entry `hard` escapes the directory");
    archives.tar("through.tar", |tar| {
        add(tar, "bin", EntryType::Symlink, "/etc", 0);
        file(tar, "bin/passwd");
    });
    archives
        .assert_rejected("through.tar", "a parent directory of its entry `bin/passwd` is a link");
    archives.tar("behind.tar", |tar| {
        add(tar, "bin", EntryType::Symlink, "/etc", 0);
        add(tar, "hard", EntryType::Link, "bin/passwd", 0);
    });
    archives.assert_rejected("behind.tar", "a parent directory of its entry `hard` is a link");
    archives.tar("device.tar", |tar| add(tar, "bin/null", EntryType::Char, "", 0));
    archives.assert_rejected("device.tar", "its entry `bin/null` is a device");
}

#[test]
fn archives_that_would_fill_a_disk_are_rejected_before_they_are_read() {
    let archives = Archives::new();
    // The header declares a length without content.
    let declare = |name: &str, bytes: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_path("bin/large").expect("a name");
        header.set_size(bytes);
        header.set_cksum();
        fs::write(archives.dir.path().join(name), header.as_bytes()).expect("a file");
    };
    declare("large.tar", 300_000_000_000);
    archives.assert_rejected("large.tar", "more than 300 GB");
    declare("dense.tar", 2_000_000_000);
    archives.assert_rejected("dense.tar", "more than 2 GB, from 1 KB");
    let mut name = tar::Header::new_gnu();
    name.set_entry_type(EntryType::GNULongName);
    name.set_size(3 << 20);
    name.set_cksum();
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(4 << 20, b'x');
    fs::write(archives.dir.path().join("name.tar"), bytes).expect("a file");
    archives.assert_rejected("name.tar", "a name in it is longer");
}

/// Adds a file with an extended header and an empty header of its own.
fn extended(builder: &mut tar::Builder<Box<dyn Write>>, field: &str, bytes: u64) {
    let record = |length: usize| format!("{length} {field}\n");
    let length = record(10).len();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(EntryType::XHeader);
    header.set_size(length as u64);
    header.set_cksum();
    let record = record(length);
    builder.append(&header, record.as_bytes()).expect("an entry");
    let mut header = tar::Header::new_ustar();
    header.set_path("bin/tool").expect("a name");
    header.set_size(0);
    header.set_cksum();
    let mut body = header.as_bytes().to_vec();
    body.resize(512 + bytes.next_multiple_of(512) as usize, b'x');
    builder.get_mut().write_all(&body).expect("an entry");
}

#[test]
fn lengths_in_extended_headers_are_parsed() {
    let archives = Archives::new();
    let with = |name: &str, field: &'static str, next: &'static str| {
        archives.tar(name, |tar| {
            extended(tar, field, 1000);
            file(tar, next);
        });
    };
    with("fine.tar", "size=1000", "bin/other");
    assert_eq!(archives.check("fine.tar"), Ok(()));
    with("up.tar", "size=1000", "../up");
    archives.assert_rejected("up.tar", "its entry `../up` escapes the directory");
    archives.tar("large.tar", |tar| extended(tar, "size=300000000000", 0));
    archives.assert_rejected("large.tar", "more than 300 GB");
    archives.tar("sparse.tar", |tar| extended(tar, "GNU.sparse.realsize=300000000000", 0));
    archives.assert_rejected("sparse.tar", "more than 300 GB");
    archives.tar("broken.tar", |tar| extended(tar, "size=many", 0));
    archives.assert_rejected("broken.tar", "corrupt");
    archives.tar("holes.tar", |tar| {
        let mut header = tar::Header::new_gnu();
        header.set_path("bin/holes").expect("a name");
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(0);
        let gnu = header.as_gnu_mut().expect("a header");
        gnu.set_real_size(300_000_000_000);
        header.set_cksum();
        tar.append(&header, io::empty()).expect("an entry");
    });
    archives.assert_rejected("holes.tar", "more than 300 GB");
}

#[test]
fn zip64_archives_are_read_from_their_directory() {
    let archives = Archives::new();
    let zip = |name: &str, entry_name: &str, length: u64| {
        let mut bytes = b"whatever is packed".to_vec();
        let table = bytes.len() as u64;
        let mut entry = [0; 46];
        entry[..4].copy_from_slice(b"PK\x01\x02");
        entry[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        entry[28..30].copy_from_slice(&(entry_name.len() as u16).to_le_bytes());
        entry[30..32].copy_from_slice(&16u16.to_le_bytes());
        bytes.extend(entry);
        bytes.extend(entry_name.as_bytes());
        // Another extra field comes first.
        bytes.extend([9, 0, 0, 0, 1, 0, 8, 0]);
        bytes.extend(length.to_le_bytes());
        let (record, size) = (bytes.len() as u64, bytes.len() as u64 - table);
        bytes.extend(b"PK\x06\x06");
        bytes.extend([0; 36]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(table.to_le_bytes());
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(record.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff");
        bytes.extend([0xff; 8]);
        bytes.extend([0; 2]);
        fs::write(archives.dir.path().join(name), bytes).expect("a file");
    };
    zip("fine.zip", "bin/tool", 10);
    assert_eq!(archives.check("fine.zip"), Ok(()));
    zip("up.zip", "../up", 10);
    archives.assert_rejected("up.zip", "its entry `../up` escapes the directory");
    zip("large.zip", "bin/tool", 300_000_000_000);
    archives.assert_rejected("large.zip", "more than 300 GB");
    let whole = fs::read(archives.dir.path().join("fine.zip")).expect("bytes");
    let ending = &whole[whole.len() - 22..];
    fs::write(archives.dir.path().join("lost.zip"), ending).expect("a file");
    archives.assert_rejected("lost.zip", "not a zip file");
}

#[test]
fn archives_without_an_environment_are_rejected() {
    let archives = Archives::new();
    archives.tar("other.tar.gz", |tar| file(tar, "data/x"));
    archives.assert_rejected("other.tar.gz", "it has no `bin` at the top");
    let cache = Cache::at(archives.dir.path().join("cache/packed"));
    let data = archives.dir.path().join("other.tar.gz");
    validate(&data, ExpectedContent::Anything, &cache).expect("data is fine");
    let whole = fs::read(archives.dir.path().join("other.tar.gz")).expect("bytes");
    fs::write(archives.dir.path().join("half.tgz"), &whole[..whole.len() / 2]).expect("a file");
    archives.assert_rejected("half.tgz", "invalid archive");
    fs::write(archives.dir.path().join("text.tar.gz"), "no archive").expect("a file");
    archives.assert_rejected("text.tar.gz", "invalid archive");
    fs::write(archives.dir.path().join("text.zip"), "no archive").expect("a file");
    archives.assert_rejected("text.zip", "not a zip file");
}

#[test]
fn zip_archives_are_read_from_their_directory() {
    let archives = Archives::new();
    let zip = |name: &str, entries: &[(&str, u32)]| {
        let mut bytes = b"whatever is packed".to_vec();
        let table = bytes.len() as u32;
        for (name, length) in entries {
            let mut entry = [0; 46];
            entry[..4].copy_from_slice(b"PK\x01\x02");
            entry[24..28].copy_from_slice(&length.to_le_bytes());
            entry[28..30].copy_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend(entry);
            bytes.extend(name.as_bytes());
        }
        let length = bytes.len() as u32 - table;
        bytes.extend(b"PK\x05\x06\0\0\0\0\0\0\0\0");
        bytes.extend(length.to_le_bytes());
        bytes.extend(table.to_le_bytes());
        bytes.extend([0; 2]);
        fs::write(archives.dir.path().join(name), bytes).expect("a file");
    };
    zip("fine.zip", &[("env/", 0), ("env/bin/python", 10)]);
    assert_eq!(archives.check("fine.zip"), Ok(()));
    zip("up.zip", &[("bin/x", 1), ("../up", 1)]);
    archives.assert_rejected("up.zip", "its entry `../up` escapes the directory");
    zip("bomb.zip", &[("bin/x", u32::MAX - 1)]);
    archives.assert_rejected("bomb.zip", "more than 4 GB, from 1 KB");
}
