//! Upload source: a file, or a directory packed as an archive.

use super::hash_cache::{hashes, lookup, store};
use ring::digest::{Context, SHA256};
use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};
use ydl_os::{reason, report::Report};
use ydl_pack::{FileStamp, Layer, Plan, StableFile};
use ydl_storage::hdfs::UploadBuffer;

/// Read at once while hashing.
const READ_BYTES: usize = 1 << 20;

/// Something on this machine that goes to the cluster.
#[derive(Debug)]
pub(super) enum Source {
    File {
        path: PathBuf,
        was: FileStamp,
        /// Its hash, where known without reading it.
        hashed: Option<Hashed>,
    },
    Directory(Plan),
}

/// A hash in hexadecimal, and how many bytes it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    pub hash: String,
    pub bytes: u64,
}

impl Source {
    /// Opens the source at that path.
    pub fn of(path: &Path) -> Result<Source, Report> {
        let unread = |error: &io::Error| {
            let what = format!("cannot read `{}`: {}", path.display(), reason(error));
            Report::bad_input(what)
        };
        let about = fs::metadata(path).map_err(|error| unread(&error))?;
        if about.is_dir() {
            return Plan::of(path).map(Source::Directory);
        }
        if !about.is_file() {
            let what = format!("`{}` is neither a file nor a directory", path.display());
            return Err(Report::bad_input(what));
        }
        let was = FileStamp::of(&about);
        let path = path.to_path_buf();
        Ok(Source::File { path, was, hashed: None })
    }

    /// A layer of an environment, whose content is known.
    pub fn packed(layer: &Layer) -> Result<Source, Report> {
        let mut source = Source::of(&layer.file)?;
        if let Source::File { hashed, .. } = &mut source {
            *hashed = Some(Hashed { hash: layer.known.hash.clone(), bytes: layer.known.bytes });
        }
        Ok(source)
    }

    /// Returns its length, where known without reading it.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Source::File { was, .. } => Some(was.bytes),
            Source::Directory(_) => None,
        }
    }

    /// Reads all of it, to know what is in it.
    pub fn hash(&self) -> io::Result<Hashed> {
        let mut hasher = Hasher::new(io::sink());
        match self {
            Source::Directory(plan) => plan.write(&mut hasher)?,
            Source::File { hashed: Some(hashed), .. } => return Ok(hashed.clone()),
            Source::File { path, was, .. } => {
                let hashes = hashes();
                let known = hashes.as_ref().and_then(|dir| lookup(dir, path, *was));
                if let Some(known) = known {
                    return Ok(known);
                }
                let mut file = StableFile::open(path, *was)?;
                let mut buffer = vec![0; READ_BYTES];
                loop {
                    match file.read(&mut buffer)? {
                        0 => break,
                        read => hasher.see(&buffer[..read]),
                    }
                }
                let hashed = hasher.hashed();
                if let Some(dir) = &hashes {
                    store(dir, path, *was, &hashed);
                }
                return Ok(hashed);
            }
        }
        Ok(hasher.hashed())
    }

    /// Sends all of it, and says what it was.
    pub fn send(&self, out: &mut UploadBuffer) -> io::Result<Hashed> {
        match self {
            Source::Directory(plan) => {
                let mut hasher = Hasher::new(out);
                plan.write(&mut hasher)?;
                Ok(hasher.hashed())
            }
            Source::File { path, was, .. } => {
                let mut hasher = Hasher::new(io::sink());
                let file = StableFile::open(path, *was)?;
                out.fill_from(file, |part| hasher.see(part))?;
                Ok(hasher.hashed())
            }
        }
    }
}

struct Hasher<W> {
    out: W,
    context: Context,
    bytes: u64,
}

impl<W> Hasher<W> {
    fn new(out: W) -> Hasher<W> {
        let context = Context::new(&SHA256);
        Hasher { out, context, bytes: 0 }
    }

    fn see(&mut self, part: &[u8]) {
        self.context.update(part);
        self.bytes += part.len() as u64;
    }

    fn hashed(self) -> Hashed {
        let digest = self.context.finish();
        Hashed { hash: hex::encode(digest.as_ref()), bytes: self.bytes }
    }
}

impl<W: Write> Write for Hasher<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.see(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
