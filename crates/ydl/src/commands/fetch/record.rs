//! Record of fetched files in the destination, so that a later fetch replaces only these.

use super::FetchItem;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};
use ydl_os::{reason, report::Report};

/// Maximum number of recorded states of one file. A growing log has a new state at each fetch.
const STATES_MAX: usize = 4;

/// Record of the files fetched to a directory. A later fetch replaces only these.
pub(super) struct FetchRecord {
    file: PathBuf,
    /// Lengths and modification times, by name.
    states: BTreeMap<String, Vec<(u64, u64)>>,
}

impl FetchRecord {
    /// Reads the record. Without a readable one, nothing is replaced.
    pub(super) fn read(dest: &Path, id: &str) -> FetchRecord {
        let file = dest.join(format!(".ydl-fetched-{id}"));
        let states = fs::read(&file).unwrap_or_default();
        let states = serde_json::from_slice(&states).unwrap_or_default();
        FetchRecord { file, states }
    }

    /// Returns whether the existing file is the one to fetch, or an earlier state of it.
    fn is_fetched(&self, item: &FetchItem, existing: &fs::Metadata) -> bool {
        let modified = existing.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let state = (existing.len(), modified.map_or(0, |since| since.as_millis() as u64));
        let recorded = self.states.get(&item.name);
        existing.is_file()
            && (state == (item.item.bytes, item.item.modified_ms)
                || recorded.is_some_and(|recorded| recorded.contains(&state)))
    }

    /// Fails if a file of another origin would be replaced.
    pub(super) fn check(&self, items: &[FetchItem]) -> Result<(), Report> {
        let is_foreign = |item: &&FetchItem| {
            let existing = fs::symlink_metadata(&item.item.to);
            existing.is_ok_and(|existing| !self.is_fetched(item, &existing))
        };
        let mut foreign = items.iter().filter(is_foreign);
        let Some(first) = foreign.next() else {
            return Ok(());
        };
        let more = match foreign.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let what =
            format!("`{}`{more} exists and was not fetched from this job", first.item.to.display());
        Err(Report::bad_input(what).hint("name another directory, or move it away"))
    }

    /// Records the files before they are downloaded.
    pub(super) fn plan(mut self, items: &[FetchItem]) -> Result<(), Report> {
        for item in items {
            let new = (item.item.bytes, item.item.modified_ms);
            let states = self.states.entry(item.name.clone()).or_default();
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
            let temporary = self.file.with_extension("part");
            fs::write(&temporary, serde_json::to_vec(&self.states)?)?;
            fs::rename(temporary, &self.file)
        };
        write().map_err(|error: io::Error| {
            if let Some(file) = self.file.parent().filter(|dir| dir.is_file()) {
                let what = format!("`{}` is a file, not a directory", file.display());
                return Report::bad_input(what).hint("name a directory");
            }
            let what = format!("cannot write `{}`: {}", self.file.display(), reason(&error));
            Report::internal(what).hint("name a directory that you may write to")
        })
    }
}
