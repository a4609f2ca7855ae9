//! A directory of one's own, only for this user: a cluster's configuration, data, logs and keys.

use crate::failure::{Failure, Kind};
use std::{
    env,
    fs::{self, DirBuilder, File},
    io::Read,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Removed with all it holds when it is dropped, unless somebody else has been told to.
#[derive(Debug)]
pub(crate) struct Scratch {
    id: String,
    path: PathBuf,
    remove: bool,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, Failure> {
        let id = random_id()?;
        let path = env::temp_dir().join(format!("testbed-{id}"));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(Failure::at("make the directory", &path))?;
        Ok(Scratch { id, path, remove: true })
    }

    /// Sixteen hexadecimal digits that no other directory has.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Somebody else removes it from now on.
    pub(crate) fn leave(&mut self) {
        self.remove = false;
    }

    /// A directory below, with those above it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.path.join(name);
        fs::create_dir_all(&folder).map_err(Failure::at("make the directory", &folder))?;
        Ok(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.remove {
            // Nothing depends on it any more: what cannot be removed stays in the temporary place.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) fn random_id() -> Result<String, Failure> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Failure::new(Kind::Trouble, format!("no random numbers: {error}")))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
