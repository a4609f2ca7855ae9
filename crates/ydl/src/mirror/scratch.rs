//! A directory of this process alone, gone with it.

use crate::{os::reason, report::Report};
use ring::rand::{SecureRandom, SystemRandom};
use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// A private directory below the system's place for temporary files; removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(id: &str) -> Result<Scratch, Report> {
        let mut random = [0; 8];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Report::trouble("the system gives no random bytes"))?;
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // The last part is the job's id, as it is of every job's directory.
        let above = std::env::temp_dir().join(format!("ydl-{random}"));
        let path = above.join(id);
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        make(&above).and_then(|()| make(&path)).map_err(|error| {
            let what = format!("cannot make `{}`: {}", path.display(), reason(&error));
            Report::trouble(what).hint("set `TMPDIR` to a directory that can be written")
        })?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean, as everything there.
        let _ = fs::remove_dir_all(self.0.parent().unwrap_or(&self.0));
    }
}
