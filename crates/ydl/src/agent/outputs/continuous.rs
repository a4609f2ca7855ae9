//! Uploads outputs while their program runs: checkpoints must survive the loss of a container.
//!
//! Uploads complete files only: not open for writing and unchanged between two scans, or renamed after their last
//! change, as checkpoints are that are rewritten each second. A file that changes during its upload is not renamed into
//! place. A file that is replaced meanwhile was complete, and its successor is uploaded next. After the program has
//! ended the rest is uploaded; files that may be half-written never replace others.

use super::{
    Reservations, TakenNames,
    atomic_write::copy_atomic,
    collect::{OutputFile, gather},
    failure_of,
    reservations::{content, theirs},
    suspect::{FileStamp, OpenFiles, UploadLog},
    target::{UploadError, UploadTarget},
};
use crate::agent::{shipping::HdfsClients, task_env::Destination};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use ydl_core::spec::ExistingPolicy;
use ydl_os::reason;
use ydl_storage::data::{self, remove_abandoned};

/// Interval of the two scans that a complete file must pass unchanged.
const SETTLE: Duration = Duration::from_secs(2);
/// Timeout of the upload of one file.
const FILE_MAX: Duration = Duration::from_secs(3600);
/// Timeout of the removal of one file.
const REMOVE_MAX: Duration = Duration::from_secs(60);
/// Pause between retries of the final upload.
const RETRY: Duration = Duration::from_secs(1);

/// One output that is uploaded continuously.
#[derive(Debug)]
pub(in crate::agent) struct ContinuousUpload {
    /// Identifier, unique among all outputs of all tasks.
    pub(in crate::agent) whose: String,
    pub(in crate::agent) work: PathBuf,
    pub(in crate::agent) from: String,
    pub(in crate::agent) to: Destination,
    pub(in crate::agent) existing: ExistingPolicy,
    /// Set if other tasks of the job upload to the same destination.
    pub(in crate::agent) shared: bool,
    /// Makes the destination equal to the source: removes files that were removed here, and never uploads a file that
    /// may be torn.
    pub(in crate::agent) mirror: bool,
    pub(in crate::agent) claims: Reservations,
    pub(in crate::agent) every: Duration,
    pub(in crate::agent) sent: UploadLog,
    /// Phase of the program. A closed channel cancels the upload.
    pub(in crate::agent) phase: watch::Receiver<ProgramPhase>,
}

/// Phase of a program.
#[derive(Clone, Debug)]
pub(in crate::agent) enum ProgramPhase {
    Running,
    /// The program has ended: all files are complete, except those that may be torn.
    Ended,
    /// The final upload of all outputs takes over.
    HandedOver,
}

/// Result of a scan of an output.
#[derive(Debug, Default)]
struct OutputScan {
    files: ScannedFiles,
    /// Set for a single file.
    single: bool,
    /// Set if no file was skipped.
    whole: bool,
}

/// Path, mode and stamp of each file, by its name relative to the destination.
type ScannedFiles = BTreeMap<String, (PathBuf, u32, FileStamp)>;

impl ContinuousUpload {
    /// Uploads new, complete files repeatedly until the program has ended and all files have arrived.
    pub(in crate::agent) async fn run(mut self, ways: Arc<HdfsClients>) {
        let mut spot = None;
        let mut done = BTreeMap::new();
        let mut told = BTreeMap::new();
        while !self.ends_within(self.every).await {
            let Some(first) = self.look().await else {
                return;
            };
            if self.ends_within(SETTLE.min(self.every)).await {
                break;
            }
            let Some(second) = self.look().await else {
                return;
            };
            let sent = self.sent.clone();
            let Ok(open) = spawn_blocking(move || sent.look()).await else {
                return;
            };
            let mut names = finished(&first.files, &second.files, &done, &open);
            if self.mirror {
                in_order(&mut names, &second.files);
            }
            let OutputScan { files: second, single, whole } = second;
            let taken = match self.taken(&ways, &mut told, &names, &second).await {
                Ok(taken) => taken,
                Err(trouble) => {
                    tracing::warn!("cannot upload yet: {}", trouble.what);
                    continue;
                }
            };
            for name in names {
                let one = &second[&name];
                if let Some(who) = taken.get(&name) {
                    tracing::warn!("skipping `{name}`: {}", theirs(who));
                    done.insert(name, one.2);
                    continue;
                }
                match self.send(&ways, &mut spot, &name, one, single).await {
                    Ok(()) => drop(done.insert(name, one.2)),
                    Err(trouble) => tracing::warn!("cannot upload `{name}` yet: {}", trouble.why),
                }
                // The remaining files are scanned again.
                if !matches!(*self.phase.borrow(), ProgramPhase::Running) {
                    break;
                }
            }
            if whole {
                self.remove_gone(&ways, &second).await;
            }
        }
        while self.is_ours() {
            if self.send_last(&ways, &mut spot).await {
                return;
            }
            // The phase may change meanwhile.
            let _ = timeout(RETRY, self.phase.changed()).await;
        }
    }

    /// Announces these names to other tasks. Returns the names that others have uploaded to the same destination.
    async fn taken(
        &self,
        ways: &HdfsClients,
        told: &mut BTreeMap<String, Option<String>>,
        names: &[String],
        look: &ScannedFiles,
    ) -> Result<TakenNames, data::DataError> {
        if !self.shared || names.is_empty() {
            return Ok(TakenNames::new());
        }
        for name in names {
            told.insert(name.clone(), content(&look[name].0));
        }
        let deadline = Instant::now() + FILE_MAX;
        let (ways, to) = match &self.to {
            Destination::Hdfs(url) => (Some(ways), url.clone()),
            Destination::Local(path) => (None, path.to_string_lossy().into_owned()),
        };
        let (from, to) = (&self.from, to.trim_end_matches('/'));
        let names = self.claims.names(ways, from, to, told.clone(), deadline);
        names.await
    }

    /// Waits up to the limit; returns true if the program has ended or the upload was cancelled.
    async fn ends_within(&mut self, limit: Duration) -> bool {
        let ended = self.phase.wait_for(|phase| !matches!(phase, ProgramPhase::Running));
        timeout(limit, ended).await.is_ok()
    }

    /// Returns true if the files of the ended program are still this upload's to send.
    fn is_ours(&self) -> bool {
        matches!(*self.phase.borrow(), ProgramPhase::Ended) && self.phase.has_changed().is_ok()
    }

    /// Uploads the remaining files; returns true if a retry would change nothing.
    async fn send_last(&self, ways: &HdfsClients, spot: &mut Option<UploadTarget>) -> bool {
        let Some(OutputScan { files: look, single, whole }) = self.look().await else {
            return true;
        };
        let mut is_all = true;
        let names = look.keys().filter(|name| !is_hidden(name));
        let mut names: Vec<String> = names.cloned().collect();
        if self.mirror {
            in_order(&mut names, &look);
        }
        let taken = match self.taken(ways, &mut BTreeMap::new(), &names, &look).await {
            Ok(taken) => taken,
            Err(trouble) => {
                tracing::warn!("cannot upload yet: {}", trouble.what);
                return !trouble.is_transient();
            }
        };
        for (name, one) in names.iter().map(|name| (name, &look[name])) {
            if !self.is_ours() {
                return true;
            }
            if let Some(who) = taken.get(name) {
                tracing::warn!("skipping `{name}`: {}", theirs(who));
                continue;
            }
            if let Err(trouble) = self.send(ways, spot, name, one, single).await {
                tracing::warn!("cannot upload `{name}` yet: {}", trouble.why);
                is_all &= !trouble.is_transient;
            }
        }
        if whole {
            is_all &= self.remove_gone(ways, &look).await;
        }
        is_all
    }

    /// Removes uploaded files that no longer exist here; returns false if a retry may help. Runs only after all current
    /// files have arrived: a checkpoint is removed when its successor is written, and until the upload of that it is
    /// the last one.
    async fn remove_gone(&self, ways: &HdfsClients, look: &ScannedFiles) -> bool {
        let Destination::Hdfs(url) = &self.to else {
            return true;
        };
        if !self.mirror {
            return true;
        }
        let base = url.trim_end_matches('/');
        let mut here = look.iter().filter(|(name, _)| !is_hidden(name));
        if !here.all(|(name, (_, _, stamp))| self.sent.has(&format!("{base}/{name}"), stamp)) {
            return true;
        }
        let mut is_all = true;
        for name in self.sent.names_below(base) {
            if look.contains_key(&name) {
                continue;
            }
            let target = format!("{base}/{name}");
            let deadline = Instant::now() + REMOVE_MAX;
            let removed = async {
                let hdfs = ways.to(&target, deadline).await?;
                match hdfs.stat(&target, deadline).await? {
                    Some(entry) if self.sent.knows(&target, entry.bytes, entry.modified_ms) => {
                        hdfs.delete(&target, deadline).await
                    }
                    // Downloaded from there, and replaced by another task since.
                    _ => Ok(false),
                }
            };
            match removed.await {
                Ok(_) => self.sent.forget(&target),
                Err(error) => {
                    tracing::warn!("cannot remove `{name}` yet: {error}");
                    is_all &= !error.is_transient();
                }
            }
        }
        is_all
    }

    /// Scans the output.
    async fn look(&self) -> Option<OutputScan> {
        let (work, from) = (self.work.clone(), self.from.clone());
        let looked = spawn_blocking(move || {
            let Ok(work) = work.canonicalize() else {
                return OutputScan::default();
            };
            // Errors are reported by the final upload.
            let Ok(Some(found)) = gather(&work, &from) else {
                return OutputScan::default();
            };
            let mut looked = OutputScan {
                single: found.single,
                whole: found.failures.is_empty(),
                ..OutputScan::default()
            };
            for item in found.files {
                if let Ok(stamp) = FileStamp::found(&item.from) {
                    let one = (item.from, item.mode, stamp);
                    looked.files.insert(item.name, one);
                }
            }
            looked
        });
        looked.await.ok()
    }

    /// Uploads one file unless it is known there. A file that may be torn never replaces another.
    async fn send(
        &self,
        ways: &HdfsClients,
        spot: &mut Option<UploadTarget>,
        name: &str,
        (path, mode, stamp): &(PathBuf, u32, FileStamp),
        single: bool,
    ) -> Result<(), UploadError> {
        let item = OutputFile { from: path.clone(), name: name.to_owned(), mode: *mode };
        let in_doubt = self.sent.may_be_torn(stamp);
        if self.mirror && in_doubt {
            tracing::warn!("skipping `{name}`: it may be half-written");
            return Ok(());
        }
        let (target, placed) = match &self.to {
            Destination::Hdfs(url) => {
                let deadline = Instant::now() + FILE_MAX;
                let mut known = match spot.take() {
                    Some(known) => known,
                    None => {
                        let url = self.claims.afar(ways, self.existing, url, deadline).await?;
                        UploadTarget::find(ways, &url, single, deadline).await?
                    }
                };
                let target = known.target(&item);
                if self.sent.has(&target, stamp) {
                    *spot = Some(known);
                    return Ok(());
                }
                let whose = &self.whose;
                let placed = known.put(whose, &item, stamp, !in_doubt, deadline).await?;
                self.claims.placed_afar(ways, self.existing, known.base(), deadline).await;
                // Reset on an error, to be determined again.
                *spot = Some(known);
                (target, placed)
            }
            Destination::Local(to) => {
                let to = self.claims.here(self.existing, to).await;
                let to = to.map_err(UploadError::lasting)?;
                let slash = to.as_os_str().as_encoded_bytes().ends_with(b"/");
                let target = match single && !slash && !to.is_dir() {
                    true => to.clone(),
                    false => to.join(name),
                };
                let text = target.to_string_lossy().into_owned();
                if self.sent.has(&text, stamp) {
                    return Ok(());
                }
                let placed = !in_doubt || target.symlink_metadata().is_err();
                if placed {
                    let stamp = *stamp;
                    let copying = spawn_blocking(move || {
                        if let Some(dir) = target.parent() {
                            fs::create_dir_all(dir)?;
                            remove_abandoned(dir);
                        }
                        let source = stamp.open(&item.from)?;
                        copy_atomic(source, item.mode, &target, |source| stamp.is_of(source))
                    });
                    match copying.await {
                        Ok(copied) => {
                            copied.map_err(|error| UploadError::lasting(reason(&error)))?
                        }
                        Err(_) => {
                            return Err(UploadError::lasting(failure_of(
                                path,
                                "copying it failed",
                            )));
                        }
                    };
                    self.claims.placed_here(self.existing, &to).await;
                }
                (text, placed)
            }
        };
        match placed {
            true => self.sent.note(target, *stamp),
            false => {
                tracing::warn!("`{name}` may be half-written; keeping the existing `{target}`")
            }
        }
        Ok(())
    }
}

/// Returns true for a name reserved for the program: one with a leading dot.
pub(super) fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('.'))
}

/// Sorts by modification time: the newest file may refer to the others.
fn in_order(names: &mut [String], look: &ScannedFiles) {
    names.sort_by_key(|name| look.get(name).map(|(_, _, stamp)| stamp.changed_ns));
}

/// Returns the names of files that are new and complete.
fn finished(
    first: &ScannedFiles,
    second: &ScannedFiles,
    done: &BTreeMap<String, FileStamp>,
    open: &OpenFiles,
) -> Vec<String> {
    let is_finished = |name: &&String| {
        let (_, _, stamp) = &second[*name];
        let before = first.get(*name).map(|(_, _, stamp)| stamp);
        !is_hidden(name)
            && (stamp.placed || before.is_some_and(|before| before.is_same(stamp)))
            && !done.get(*name).is_some_and(|sent| sent.is_same(stamp))
            && !open.may_hold(stamp)
    };
    second.keys().filter(is_finished).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn look(files: &[(&str, u64, i128)]) -> ScannedFiles {
        let one = |(name, inode, changed_ns): &(&str, u64, i128)| {
            let stamp = FileStamp {
                number: (1, *inode),
                bytes: 10,
                changed_ns: *changed_ns,
                named: false,
                placed: false,
            };
            (name.to_string(), (PathBuf::from(name), 0o644, stamp))
        };
        files.iter().map(one).collect()
    }

    #[test]
    fn only_new_unchanged_files_are_finished() {
        let first = look(&[("a", 1, 5), ("b", 2, 5), ("c", 3, 5), (".tmp", 5, 5)]);
        let second = look(&[("a", 1, 5), ("b", 2, 6), ("c", 3, 5), ("d", 4, 5), (".tmp", 5, 5)]);
        let none = OpenFiles::default();
        let sent = BTreeMap::new();
        assert_eq!(finished(&first, &second, &sent, &none), ["a", "c"]);
        let open = OpenFiles { files: BTreeSet::from([(1, 3)]), ..OpenFiles::default() };
        assert_eq!(finished(&first, &second, &sent, &open), ["a"]);
        let sent = BTreeMap::from([("a".to_owned(), second["a"].2)]);
        assert_eq!(finished(&first, &second, &sent, &none), ["c"]);
        let later = look(&[("a", 1, 9)]);
        assert_eq!(finished(&later, &later, &sent, &none), ["a"]);
        // A file renamed into place is complete, however often that happens.
        let mut renamed = look(&[("b", 9, 9)]);
        renamed.get_mut("b").expect("it is there").2.placed = true;
        assert_eq!(finished(&first, &renamed, &sent, &none), ["b"]);
    }
}
