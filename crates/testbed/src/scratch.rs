//! Private temporary directories for a cluster's configuration, data, logs and keys.

use crate::error::{Error, ErrorKind};
use std::{
    env,
    fs::{self, DirBuilder, File},
    io::Read,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// A temporary directory with mode 0700. Drop removes it, unless [`Scratch::keep`] was called.
#[derive(Debug)]
pub(crate) struct Scratch {
    id: String,
    path: PathBuf,
    remove: bool,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, Error> {
        let id = random_id()?;
        let path = env::temp_dir().join(format!("testbed-{id}"));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(Error::at("make the directory", &path))?;
        Ok(Scratch { id, path, remove: true })
    }

    /// Returns its unique id: sixteen hexadecimal digits.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves removing the directory to the watcher.
    pub(crate) fn keep(&mut self) {
        self.remove = false;
    }

    /// Creates a subdirectory, including its parents.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.path.join(name);
        fs::create_dir_all(&folder).map_err(Error::at("make the directory", &folder))?;
        Ok(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.remove {
            // Nothing uses the directory any more; files that cannot be removed stay behind.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) fn random_id() -> Result<String, Error> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).map_err(
        |error| Error::new(ErrorKind::System, format!("cannot read `/dev/urandom`: {error}")),
    )?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
