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

/// Buffer size while hashing.
const READ_BYTES: usize = 1 << 20;

/// Local file or directory to upload.
#[derive(Debug)]
pub(super) enum Source {
    File {
        path: PathBuf,
        stamp: FileStamp,
        /// Hash, if known without reading the file.
        hash: Option<ContentHash>,
    },
    Directory(Plan),
}

/// Hash of a content in hexadecimal, and the content's length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentHash {
    pub hash: String,
    pub bytes: u64,
}

impl Source {
    /// Opens the source at that path. Files that a pattern matches are left out of a directory.
    pub(crate) fn of(path: &Path, ignore: &[String]) -> Result<Source, Report> {
        let read_error = |error: &io::Error| {
            let what = format!("cannot read `{}`: {}", path.display(), reason(error));
            Report::bad_input(what)
        };
        let metadata = fs::metadata(path).map_err(|error| read_error(&error))?;
        if metadata.is_dir() {
            return Plan::without(path, ignore).map(Source::Directory);
        }
        if !metadata.is_file() {
            let what = format!("`{}` is neither a file nor a directory", path.display());
            return Err(Report::bad_input(what));
        }
        let stamp = FileStamp::of(&metadata);
        let path = path.to_path_buf();
        Ok(Source::File { path, stamp, hash: None })
    }

    /// Opens a layer of an environment, whose hash is known.
    pub(crate) fn of_layer(layer: &Layer) -> Result<Source, Report> {
        let mut source = Source::of(&layer.file, &[])?;
        if let Source::File { hash, .. } = &mut source {
            *hash = Some(ContentHash { hash: layer.info.hash.clone(), bytes: layer.info.bytes });
        }
        Ok(source)
    }

    /// Returns the length, if known without reading the source.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Source::File { stamp, .. } => Some(stamp.bytes),
            Source::Directory(_) => None,
        }
    }

    /// Returns the hash of the content, reading it unless the hash is known.
    pub(crate) fn hash(&self) -> io::Result<ContentHash> {
        let mut hasher = Hasher::new(io::sink());
        match self {
            Source::Directory(plan) => plan.write(&mut hasher)?,
            Source::File { hash: Some(hash), .. } => return Ok(hash.clone()),
            Source::File { path, stamp, .. } => {
                let hashes = hashes();
                let cached = hashes.as_ref().and_then(|dir| lookup(dir, path, *stamp));
                if let Some(cached) = cached {
                    return Ok(cached);
                }
                let mut file = StableFile::open(path, *stamp)?;
                let mut buffer = vec![0; READ_BYTES];
                loop {
                    match file.read(&mut buffer)? {
                        0 => break,
                        read => hasher.update(&buffer[..read]),
                    }
                }
                let hash = hasher.finish();
                if let Some(dir) = &hashes {
                    store(dir, path, *stamp, &hash);
                }
                return Ok(hash);
            }
        }
        Ok(hasher.finish())
    }

    /// Writes the content to `out`, and returns its hash.
    pub(crate) fn send(&self, out: &mut UploadBuffer) -> io::Result<ContentHash> {
        match self {
            Source::Directory(plan) => {
                let mut hasher = Hasher::new(out);
                plan.write(&mut hasher)?;
                Ok(hasher.finish())
            }
            Source::File { path, stamp, .. } => {
                let mut hasher = Hasher::new(io::sink());
                let file = StableFile::open(path, *stamp)?;
                out.fill_from(file, |part| hasher.update(part))?;
                Ok(hasher.finish())
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

    fn update(&mut self, part: &[u8]) {
        self.context.update(part);
        self.bytes += part.len() as u64;
    }

    fn finish(self) -> ContentHash {
        let digest = self.context.finish();
        ContentHash { hash: hex::encode(digest.as_ref()), bytes: self.bytes }
    }
}

impl<W: Write> Write for Hasher<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
