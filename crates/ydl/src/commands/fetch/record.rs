//! Record of fetched files in the destination, so that a later fetch replaces only these.

use super::FetchItem;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};
use ydl_os::{reason, report::Report};

/// States of one file that are remembered: a log that grows has one for each time that it was fetched.
const STATES_MAX: usize = 4;

/// Record of the files fetched to a directory. A later fetch replaces only these.
pub(super) struct FetchRecord {
    file: PathBuf,
    /// Lengths and times of change, by name.
    fetched: BTreeMap<String, Vec<(u64, u64)>>,
}

impl FetchRecord {
    /// Reads the record. Without a readable one, nothing is replaced.
    pub(super) fn read(dest: &Path, id: &str) -> FetchRecord {
        let file = dest.join(format!(".ydl-fetched-{id}"));
        let fetched = fs::read(&file).unwrap_or_default();
        let fetched = serde_json::from_slice(&fetched).unwrap_or_default();
        FetchRecord { file, fetched }
    }

    /// Returns whether the existing file is the one to fetch, or an earlier state of it.
    fn is_known_state(&self, item: &FetchItem, there: &fs::Metadata) -> bool {
        let modified = there.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let now = (there.len(), modified.map_or(0, |since| since.as_millis() as u64));
        let before = self.fetched.get(&item.name);
        there.is_file()
            && (now == (item.item.bytes, item.item.modified_ms)
                || before.is_some_and(|before| before.contains(&now)))
    }

    /// Fails if a file of another origin is in the way.
    pub(super) fn check(&self, items: &[FetchItem]) -> Result<(), Report> {
        let unknown = |item: &&FetchItem| {
            let there = fs::symlink_metadata(&item.item.to);
            there.is_ok_and(|there| !self.is_known_state(item, &there))
        };
        let mut unknown = items.iter().filter(unknown);
        let Some(first) = unknown.next() else {
            return Ok(());
        };
        let more = match unknown.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let what = format!(
            "`{}`{more} is there, and this job's `fetch` has not brought it",
            first.item.to.display()
        );
        Err(Report::bad_input(what).hint("name another directory, or move it away"))
    }

    /// Records the files before they are downloaded.
    pub(super) fn plan(mut self, items: &[FetchItem]) -> Result<(), Report> {
        for item in items {
            let new = (item.item.bytes, item.item.modified_ms);
            let states = self.fetched.entry(item.name.clone()).or_default();
            states.retain(|state| *state != new);
            states.push(new);
            if states.len() > STATES_MAX {
                states.remove(0);
            }
        }
        let write = || {
            if let Some(dir) = self.file.parent() {
                fs::create_dir_all(dir)?;
            }
            let aside = self.file.with_extension("part");
            fs::write(&aside, serde_json::to_vec(&self.fetched)?)?;
            fs::rename(aside, &self.file)
        };
        write().map_err(|error: io::Error| {
            let what = match self.file.parent().filter(|dir| dir.is_file()) {
                Some(file) => format!("`{}` is a file, not a directory", file.display()),
                None => format!("cannot write `{}`: {}", self.file.display(), reason(&error)),
            };
            Report::internal(what).hint("name a directory that you may write to")
        })
    }
}
