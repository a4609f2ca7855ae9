//! Destinations that must not belong to anybody else, looked at again when something first goes there: hours may have
//! passed since submit.
//!
//! What a job has taken is written down in its own directory, for its other tasks and attempts: what they find there is
//! their own. Whoever writes it down first has decided for all.

use super::{
    existing::{NUMBERS_MAX, numbered},
    trouble::Trouble,
};
use crate::{
    hdfs::{Hdfs, path_of},
    os::reason,
    wire::text::hex,
};
use ring::digest::{SHA256, digest};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tokio::time::Instant;
use ydl_core::spec::Existing;

/// The longest name of a destination that is read.
const BYTES_MAX: u64 = 64 << 10;

/// Where a job writes down what it has taken.
#[derive(Clone, Debug)]
pub enum Book {
    /// A directory of this machine.
    Here(PathBuf),
    /// One in HDFS.
    Afar(Hdfs, String),
}

/// The destination that an output gets: `to`, if nothing is there or the job has put it there itself. `ground` is the
/// file system that it is in, if it is not on this machine.
pub async fn claim(
    book: &Book,
    ground: Option<&Hdfs>,
    existing: Existing,
    to: &str,
    deadline: Instant,
) -> Result<String, Trouble> {
    if existing == Existing::Replace {
        return Ok(to.to_owned());
    }
    if let Some(taken) = book.read(to, deadline).await? {
        return Ok(taken);
    }
    let mut free = to.to_owned();
    let mut number = 1;
    while is_there(ground, &free, deadline).await? {
        number += 1;
        // Another task of this job may have taken it, and put something there, since that was asked.
        if let Some(taken) = book.read(to, deadline).await? {
            return Ok(taken);
        }
        if existing == Existing::Refuse || number > NUMBERS_MAX {
            let what = format!("`{to}` was made by somebody else after the job was submitted");
            let hint = "name another place, move it away, or say `existing: replace`";
            return Err(Trouble::lasting(what).hint(hint));
        }
        free = numbered(to, number);
    }
    book.write(to, free, deadline).await
}

async fn is_there(ground: Option<&Hdfs>, to: &str, deadline: Instant) -> Result<bool, Trouble> {
    match ground {
        Some(hdfs) => {
            let place = hdfs.url(path_of(to.trim_end_matches('/')));
            Ok(hdfs.stat(&place, deadline).await?.is_some())
        }
        None => Ok(Path::new(to.trim_end_matches('/'))
            .symlink_metadata()
            .is_ok()),
    }
}

impl Book {
    /// What the job has taken for a destination, if it has.
    pub async fn read(&self, to: &str, deadline: Instant) -> Result<Option<String>, Trouble> {
        let name = name(to);
        let bytes = match self {
            Book::Here(dir) => match fs::read(dir.join(&name)) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(unread(dir, &error)),
            },
            Book::Afar(hdfs, dir) => {
                let place = format!("{dir}/{name}");
                match hdfs.read_if_there(&place, BYTES_MAX, deadline).await? {
                    Some(bytes) => bytes.to_vec(),
                    None => return Ok(None),
                }
            }
        };
        let text = String::from_utf8(bytes);
        let odd = |_| Trouble::lasting(format!("what was taken for `{to}` is not text"));
        text.map(Some).map_err(odd)
    }

    /// Writes down what is taken, unless another task was quicker; what counts.
    async fn write(&self, to: &str, taken: String, deadline: Instant) -> Result<String, Trouble> {
        let name = name(to);
        let written = match self {
            Book::Here(dir) => write(dir, &name, &taken).map_err(|error| unread(dir, &error))?,
            Book::Afar(hdfs, dir) => {
                hdfs.mkdirs(dir, 0o755, deadline).await?;
                let (place, bytes) = (format!("{dir}/{name}"), taken.clone().into_bytes());
                hdfs.write_new(&place, bytes, 0o644, deadline).await?
            }
        };
        if written {
            return Ok(taken);
        }
        let gone = || Trouble::lasting(format!("what was taken for `{to}` is gone"));
        self.read(to, deadline).await?.ok_or_else(gone)
    }
}

/// Whether it was written; a file of that name that is there stays.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<bool> {
    fs::create_dir_all(dir)?;
    let mut aside = tempfile_in(dir)?;
    io::Write::write_all(&mut aside.1, text.as_bytes())?;
    let linked = fs::hard_link(&aside.0, dir.join(name));
    // It has its name, or is not needed.
    let _ = fs::remove_file(&aside.0);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// A name that no other process and no other thread has.
fn tempfile_in(dir: &Path) -> io::Result<(PathBuf, fs::File)> {
    let pid = std::process::id();
    for number in 0..1000 {
        let path = dir.join(format!(".{pid}-{number}"));
        match fs::File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn name(to: &str) -> String {
    hex(&digest(&SHA256, to.as_bytes()).as_ref()[..16])
}

fn unread(dir: &Path, error: &io::Error) -> Trouble {
    let what = format!(
        "cannot write down in `{}` where outputs go: {}",
        dir.display(),
        reason(error)
    );
    Trouble::lasting(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_somebody_else_made_is_refused_or_avoided_and_ones_own_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::Here(dir.path().join("claims"));
        let to = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let take = |existing, to: &str| {
            let deadline = Instant::now() + Duration::from_secs(10);
            runtime.block_on(claim(&book, None, existing, to, deadline))
        };
        assert_eq!(take(Existing::Refuse, &to("free")), Ok(to("free")));
        for name in ["free", "theirs", "theirs-2"] {
            fs::write(to(name), "").unwrap();
        }
        assert_eq!(take(Existing::Refuse, &to("free")), Ok(to("free")));
        let refused = take(Existing::Refuse, &to("theirs")).unwrap_err();
        let sentence = "theirs` was made by somebody else after the job was submitted";
        assert!(refused.what.ends_with(sentence), "{refused:?}");
        assert_eq!(take(Existing::Replace, &to("theirs")), Ok(to("theirs")));
        assert_eq!(take(Existing::Number, &to("theirs")), Ok(to("theirs-3")));
        fs::write(to("theirs-3"), "").unwrap();
        assert_eq!(take(Existing::Number, &to("theirs")), Ok(to("theirs-3")));
        // Of two that write at once the first decides.
        assert!(!write(&dir.path().join("claims"), &name(&to("theirs")), "x").unwrap());
        let left = fs::read_dir(dir.path().join("claims")).unwrap();
        assert_eq!(left.count(), 2);
    }
}
