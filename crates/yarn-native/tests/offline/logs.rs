//! Aggregated logs as NodeManagers of Hadoop 3.5.0 wrote them, and damaged ones.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use expect_test::{Expect, expect};
use yarn_native::logs::{Checksum, LogError, LogFile, LogFormat, Source, is_archive};

const TFILE: &[u8] = include_bytes!("logs/tfile");
const TFILE_GZ: &[u8] = include_bytes!("logs/tfile-gz");
const TFILE_ROLLED: &[u8] = include_bytes!("logs/tfile-rolled");
const INDEXED: &[u8] = include_bytes!("logs/indexed");
const INDEXED_GZ: &[u8] = include_bytes!("logs/indexed-gz");
const INDEXED_GZ_ROLLED: &[u8] = include_bytes!("logs/indexed-gz-rolled");

const ALL: [&[u8]; 6] = [TFILE, TFILE_GZ, TFILE_ROLLED, INDEXED, INDEXED_GZ, INDEXED_GZ_ROLLED];

/// Runs a future that never waits: all bytes are in memory.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future is pending"),
    }
}

async fn content<S: Source>(file: &mut LogFile<S>) -> Result<Vec<u8>, LogError> {
    let mut bytes = Vec::new();
    while let Some(piece) = file.piece().await? {
        bytes.extend(piece);
    }
    Ok(bytes)
}

/// Lists every log with its container (the end of the id), name, length and content.
fn show(bytes: &[u8]) -> String {
    now(async {
        let mut file = LogFile::open(bytes).await.unwrap();
        let mut lines = Vec::new();
        while let Some(entry) = file.next().await.unwrap() {
            let content = content(&mut file).await.unwrap();
            assert_eq!(content.len() as u64, entry.length);
            let text = String::from_utf8(content).unwrap().replace('\n', "|");
            let text = match text.len() {
                0..=60 => text,
                length => format!("{}…{}", &text[..20], &text[length - 20..]),
            };
            let container = entry.container.split_once("_0001_").unwrap().1;
            lines.push(format!("{container} {} {} {text}", entry.file, entry.length));
        }
        lines.push(format!("{:?} of {}", file.format(), file.owner().unwrap_or("?")));
        lines.join("\n")
    })
}

fn check(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&show(bytes));
}

#[test]
fn a_tfile_is_read() {
    check(
        TFILE,
        expect![[r#"
        02_000001 empty 0 
        02_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        02_000001 prelaunch.err 0 
        02_000001 prelaunch.out 70 Setting up env varia…Launching container|
        02_000001 stderr 23 no model named grüße|
        02_000001 stdout 30 step of 3|step of 3|step of 3|
        01_000001 empty 0 
        01_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        01_000001 prelaunch.err 0 
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 stderr 23 no model named grüße|
        01_000001 stdout 30 step of 3|step of 3|step of 3|
        TFile of alice"#]],
    );
}

#[test]
fn a_compressed_tfile_is_read() {
    check(
        TFILE_GZ,
        expect![[r#"
        01_000001 empty 0 
        01_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        01_000001 prelaunch.err 0 
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 stderr 23 no model named grüße|
        01_000001 stdout 30 step of 3|step of 3|step of 3|
        02_000001 empty 0 
        02_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        02_000001 prelaunch.err 0 
        02_000001 prelaunch.out 70 Setting up env varia…Launching container|
        02_000001 stderr 23 no model named grüße|
        02_000001 stdout 30 step of 3|step of 3|step of 3|
        TFile of alice"#]],
    );
}

#[test]
fn a_tfile_of_a_running_application_is_read() {
    check(
        TFILE_ROLLED,
        expect![[r#"
        01_000001 part.log 5 part|
        01_000001 prelaunch.err 0 
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 stdout 15 roll|roll|roll|
        TFile of alice"#]],
    );
}

#[test]
fn an_indexed_file_is_read() {
    check(
        INDEXED,
        expect![[r#"
        01_000001 stdout 30 step of 3|step of 3|step of 3|
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 empty 0 
        01_000001 stderr 23 no model named grüße|
        01_000001 prelaunch.err 0 
        01_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        02_000001 stderr 23 no model named grüße|
        02_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        02_000001 empty 0 
        02_000001 prelaunch.out 70 Setting up env varia…Launching container|
        02_000001 stdout 30 step of 3|step of 3|step of 3|
        02_000001 prelaunch.err 0 
        Indexed of alice"#]],
    );
}

#[test]
fn a_compressed_indexed_file_is_read() {
    check(
        INDEXED_GZ,
        expect![[r#"
        01_000001 stderr 23 no model named grüße|
        01_000001 prelaunch.err 0 
        01_000001 stdout 30 step of 3|step of 3|step of 3|
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 empty 0 
        01_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        02_000001 empty 0 
        02_000001 stdout 30 step of 3|step of 3|step of 3|
        02_000001 prelaunch.out 70 Setting up env varia…Launching container|
        02_000001 stderr 23 no model named grüße|
        02_000001 metrics.txt 1492 1|2|3|4|5|6|7|8|9|10…396|397|398|399|400|
        02_000001 prelaunch.err 0 
        Indexed of alice"#]],
    );
}

#[test]
fn an_indexed_file_that_was_appended_to_is_read() {
    check(
        INDEXED_GZ_ROLLED,
        expect![[r#"
        01_000001 stdout 20 roll|roll|roll|roll|
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 part.log 5 part|
        01_000001 prelaunch.err 0 
        01_000001 stdout 40 roll|roll|roll|roll|roll|roll|roll|roll|
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 part.log 5 part|
        01_000001 prelaunch.err 0 
        01_000001 stdout 55 roll|roll|roll|roll|roll|roll|roll|roll|roll|roll|roll|
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 part.log 5 part|
        01_000001 prelaunch.err 0 
        01_000001 stdout 60 roll|roll|roll|roll|roll|roll|roll|roll|roll|roll|roll|roll|
        01_000001 prelaunch.out 70 Setting up env varia…Launching container|
        01_000001 part.log 5 part|
        01_000001 prelaunch.err 0 
        Indexed of alice"#]],
    );
}

#[test]
fn long_logs_are_complete() {
    let numbers: String = (1..=400).map(|number| format!("{number}\n")).collect();
    for bytes in [TFILE, TFILE_GZ, INDEXED, INDEXED_GZ] {
        now(async {
            let mut file = LogFile::open(bytes).await.unwrap();
            let mut found = 0;
            while let Some(entry) = file.next().await.unwrap() {
                if entry.file == "metrics.txt" {
                    assert_eq!(content(&mut file).await.unwrap(), numbers.as_bytes());
                    found += 1;
                }
            }
            assert_eq!(found, 2);
        });
    }
}

#[test]
fn the_tail_of_a_log_can_be_read_alone() {
    for bytes in [TFILE, TFILE_GZ, INDEXED, INDEXED_GZ] {
        now(async {
            let mut file = LogFile::open(bytes).await.unwrap();
            while let Some(entry) = file.next().await.unwrap() {
                file.skip(entry.length.saturating_sub(8)).await.unwrap();
                let tail = content(&mut file).await.unwrap();
                assert_eq!(tail.len() as u64, entry.length.min(8));
                if entry.file == "metrics.txt" {
                    assert_eq!(tail, b"399\n400\n");
                }
                file.skip(u64::MAX).await.unwrap();
                assert_eq!(file.piece().await.unwrap(), None);
            }
        });
    }
}

#[test]
fn indexed_logs_have_timestamps() {
    now(async {
        let mut file = LogFile::open(INDEXED_GZ_ROLLED).await.unwrap();
        assert_eq!(file.format(), LogFormat::Indexed);
        let mut uploads = Vec::new();
        while let Some(entry) = file.next().await.unwrap() {
            let (modified, uploaded) = (entry.modified_ms.unwrap(), entry.uploaded_ms.unwrap());
            assert!(modified > 1_700_000_000_000 && uploaded > 1_700_000_000_000);
            uploads.push(uploaded);
        }
        uploads.dedup();
        assert!(uploads.len() > 1, "collected more than once");
    });
}

/// Source that counts the bytes read.
struct Counted<'a> {
    bytes: &'a [u8],
    read: &'a AtomicU64,
}

impl Source for Counted<'_> {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, length: usize) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        self.bytes.read(offset, length)
    }
}

/// Returns an uncompressed TFile with one block, one container and one log.
fn large_tfile(log: &[u8]) -> Vec<u8> {
    // The longest form of a number: eight bytes follow.
    let signed = |number: i64| {
        let mut bytes = vec![0x87];
        bytes.extend(number.to_be_bytes());
        bytes
    };
    let vint = |number: usize| signed(number as i64);
    let utf = |text: &str| {
        let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
        bytes.extend(text.bytes());
        bytes
    };
    let string = |text: &str| {
        let mut bytes = vint(text.len());
        bytes.extend(text.bytes());
        bytes
    };
    let mut file = log_magic();
    let start = file.len();
    let key = utf("container_1_0001_01_000001");
    file.extend(vint(key.len()));
    file.extend(key);
    let mut value = utf("stdout");
    value.extend(utf(&log.len().to_string()));
    value.extend(log);
    // Two chunks; the first announces the second.
    let (first, second) = value.split_at(value.len() / 2);
    file.extend(signed(-(first.len() as i64)));
    file.extend(first);
    file.extend(vint(second.len()));
    file.extend(second);
    let block = (start, file.len() - start);
    let index_at = file.len();
    file.extend(string("none"));
    file.extend(vint(1));
    for number in [block.0, block.1, block.1] {
        file.extend(vint(number));
    }
    let index = file.len() - index_at;
    let meta_at = file.len() as u64;
    file.extend(vint(1));
    file.extend(string("data:BCFile.index"));
    file.extend(string("none"));
    for number in [index_at, index, index] {
        file.extend(vint(number));
    }
    file.extend(meta_at.to_be_bytes());
    file.extend([0, 1, 0, 0]);
    file.extend(log_magic());
    file
}

fn log_magic() -> Vec<u8> {
    TFILE[..16].to_vec()
}

#[test]
fn skipped_bytes_are_not_read() {
    let log: Vec<u8> = (0..5_000_000u32).map(|number| number as u8).collect();
    let bytes = large_tfile(&log);
    let read = AtomicU64::new(0);
    let source = Counted { bytes: &bytes, read: &read };
    now(async {
        let mut file = LogFile::open(&bytes[..]).await.unwrap();
        file.next().await.unwrap().unwrap();
        assert!(content(&mut file).await.unwrap() == log, "complete, across chunks");
        let mut file = LogFile::open(source).await.unwrap();
        let entry = file.next().await.unwrap().unwrap();
        file.skip(entry.length - 10).await.unwrap();
        assert_eq!(content(&mut file).await.unwrap(), log[log.len() - 10..]);
        assert!(file.next().await.unwrap().is_none());
    });
    let read = read.into_inner();
    assert!(read < 300_000, "{read} bytes read");
}

fn open_error(bytes: &[u8]) -> String {
    match now(LogFile::open(bytes)) {
        Ok(file) => format!("{file:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn files_that_are_no_logs_are_rejected() {
    assert_eq!(open_error(b""), "the file is empty");
    assert_eq!(open_error(b"hello"), "not an aggregated log, neither TFile nor indexed");
    assert_eq!(open_error(&[0; 200]), "corrupt file at byte 164: truncated index");
    assert_eq!(open_error(&TFILE[..16]), "corrupt file at byte 0: truncated");
    assert_eq!(open_error(&TFILE[..1000]), "corrupt file at byte 972: missing trailer");
    assert_eq!(open_error(&INDEXED[..1000]), "not an aggregated log, neither TFile nor indexed");
}

#[test]
fn hadoop_archives_are_recognised() {
    let index = b"%2Fnode1_1234 file part-0 0 2071 1700000000000+416+alice+hadoop \n";
    let refused = open_error(index);
    assert!(refused.contains("a Hadoop archive (`.har`)"), "{refused}");
    assert!(is_archive("application_1700000000000_0007.har"));
    assert!(is_archive("application_1700000000000_0007.har/"));
    assert!(!is_archive("node1_1234"));
}

#[test]
fn unsupported_compression_is_reported_by_name() {
    let replace = |bytes: &[u8], from: &[u8], to: &[u8]| {
        let mut bytes = bytes.to_vec();
        for at in 0..bytes.len() - from.len() {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        bytes
    };
    let expected = "unsupported compression `lzo1`: expected `gz` or `none`";
    for bytes in [TFILE, INDEXED] {
        assert_eq!(open_error(&replace(bytes, b"\x04none", b"\x04lzo1")), expected);
    }
}

#[test]
fn checksum_gives_the_complete_length() {
    let mut bytes = 4u32.to_be_bytes().to_vec();
    bytes.extend(b"node");
    bytes.extend((INDEXED.len() as u64).to_be_bytes());
    let checksum = Checksum::from_bytes(&bytes).unwrap();
    assert_eq!(checksum.file, "node");
    let mut growing = INDEXED.to_vec();
    growing.extend([7; 500]);
    assert!(now(LogFile::open(&growing[..])).is_err(), "an incomplete upload follows");
    assert!(now(LogFile::open_until(&growing[..], checksum.end)).is_ok());
    // A file that was truncated since is read up to its end, whatever its checksum file says.
    assert!(now(LogFile::open_until(INDEXED, u64::MAX)).is_ok());
    for end in 0..bytes.len() {
        assert_eq!(Checksum::from_bytes(&bytes[..end]), None);
    }
    assert_eq!(Checksum::from_bytes(&[0xff; 40]), None);
}

/// Source that fails, or returns fewer bytes than requested.
struct Failing {
    short: bool,
}

impl Source for Failing {
    fn length(&self) -> u64 {
        1000
    }

    fn read(&self, _: u64, length: usize) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        std::future::ready(match self.short {
            true => Ok(vec![0; length / 2]),
            false => Err(io::Error::other("the DataNode is gone")),
        })
    }
}

#[test]
fn source_errors_are_reported() {
    let error = now(LogFile::open(Failing { short: false })).unwrap_err().to_string();
    assert_eq!(error, "cannot read at byte 0: the DataNode is gone");
    assert!(now(LogFile::open(Failing { short: true })).is_err());
}

/// Reads everything, at most `most` bytes.
fn read_all(bytes: &[u8], most: usize) -> Result<usize, LogError> {
    now(async {
        let mut file = LogFile::open(bytes).await?;
        let mut total = 0;
        while file.next().await?.is_some() {
            while let Some(piece) = file.piece().await? {
                assert!(piece.len() <= 64 << 10);
                total += piece.len();
                if total > most {
                    return Ok(total);
                }
            }
        }
        Ok(total)
    })
}

#[test]
fn every_truncation_is_detected() {
    for bytes in ALL {
        for end in 0..bytes.len() {
            // An appended indexed file is also complete at the end of each upload.
            let complete = now(LogFile::open(&bytes[..end])).is_ok();
            assert!(!complete || bytes == INDEXED_GZ_ROLLED, "{end} of {}", bytes.len());
        }
    }
}

#[test]
fn damaged_files_do_not_panic() {
    for seed in 0..4000 {
        let mut random = crate::random::Random::new(seed);
        let bytes = *random.pick(&ALL);
        let _ = read_all(&random.mutate(bytes), 50 << 20);
    }
}

#[test]
fn files_with_damaged_indexes_do_not_panic() {
    for seed in 0..4000 {
        let mut random = crate::random::Random::new(seed);
        // The beginning and the end stay, so that the index between them is parsed.
        let bytes = *random.pick(&[TFILE, INDEXED, INDEXED_GZ, TFILE_GZ]);
        let tail = bytes.len() - 36;
        let stated = &bytes[tail..tail + 4];
        let indexed = !bytes.starts_with(&TFILE[..16]);
        let split = match indexed {
            true => tail - u32::from_be_bytes(stated.try_into().unwrap()) as usize,
            false => bytes.len() - 350,
        };
        let index = random.mutate(&bytes[split..tail]);
        let mut damaged = bytes[..split].to_vec();
        damaged.extend(&index);
        match indexed {
            true => damaged.extend((index.len() as u32).to_be_bytes()),
            false => damaged.extend(stated),
        }
        damaged.extend(&bytes[tail + 4..]);
        let _ = read_all(&damaged, 50 << 20);
    }
}
