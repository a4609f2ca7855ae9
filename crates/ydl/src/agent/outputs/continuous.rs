//! Uploads outputs while their program runs: checkpoints must survive the loss of a container.
//!
//! Uploads complete files only: not open for writing and unchanged between two scans, or renamed after their last
//! change, as checkpoints are that are rewritten each second. A file that changes during its upload is not renamed into
//! place. A file that is replaced meanwhile was complete, and its successor is uploaded next. After the program has
//! ended the rest is uploaded; files that may be half-written never replace others.

use super::{
    Reservations,
    collect::{OutputFile, gather, is_hidden},
    reservations::{TakenNames, contents, taken_error},
    target::{FileUpload, UploadError, UploadTarget},
    upload_log::{FileStamp, OpenFiles, UploadLog},
};
use crate::agent::shipping::HdfsClients;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use ydl_core::spec::ExistingPolicy;
use ydl_storage::data::DataError;

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
    pub(in crate::agent) owner: String,
    pub(in crate::agent) work: PathBuf,
    pub(in crate::agent) from: String,
    /// Path on this node, or URL in HDFS.
    pub(in crate::agent) to: String,
    pub(in crate::agent) existing: ExistingPolicy,
    /// Set if other tasks of the job upload to the same destination.
    pub(in crate::agent) shared: bool,
    /// Makes the destination equal to the source: removes files that were removed here, and never uploads a file that
    /// may be torn.
    pub(in crate::agent) mirror: bool,
    pub(in crate::agent) reservations: Reservations,
    pub(in crate::agent) every: Duration,
    pub(in crate::agent) upload_log: UploadLog,
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

/// Each file, by its name relative to the destination.
type ScannedFiles = BTreeMap<String, OutputFile>;

impl ContinuousUpload {
    /// Uploads new, complete files repeatedly until the program has ended and all files have arrived.
    pub(in crate::agent) async fn run(mut self, stores: Arc<HdfsClients>) {
        let mut target_cache = None;
        let mut done = BTreeMap::new();
        let mut announced = BTreeMap::new();
        while !self.ends_within(self.every).await {
            let Some(first) = self.scan().await else {
                return;
            };
            if self.ends_within(SETTLE.min(self.every)).await {
                break;
            }
            let Some(second) = self.scan().await else {
                return;
            };
            let log = self.upload_log.clone();
            let Ok(open) = spawn_blocking(move || log.scan_open_files()).await else {
                return;
            };
            let mut names = complete_files(&first.files, &second.files, &done, &open);
            if self.mirror {
                sort_by_change(&mut names, &second.files);
            }
            let OutputScan { files: second, single, whole } = second;
            let taken = match self.taken(&stores, &mut announced, &names, &second).await {
                Ok(taken) => taken,
                Err(error) => {
                    tracing::warn!("cannot upload yet: {}", error.what);
                    continue;
                }
            };
            for name in names {
                let one = &second[&name];
                if let Some(who) = taken.get(&name) {
                    tracing::warn!("skipping `{name}`: {}", taken_error(who));
                    done.insert(name, one.stamp);
                    continue;
                }
                match self.upload_file(&stores, &mut target_cache, one, single).await {
                    Ok(()) => drop(done.insert(name, one.stamp)),
                    Err(error) => tracing::warn!("cannot upload `{name}` yet: {}", error.why),
                }
                // The remaining files are scanned again.
                if !matches!(*self.phase.borrow(), ProgramPhase::Running) {
                    break;
                }
            }
            if whole {
                self.remove_gone(&stores, &second).await;
            }
        }
        while self.is_ours() {
            if self.upload_rest(&stores, &mut target_cache).await {
                return;
            }
            // The phase may change meanwhile.
            let _ = timeout(RETRY, self.phase.changed()).await;
        }
    }

    /// Announces these names to other tasks. Returns the names that others have uploaded to the same destination.
    async fn taken(
        &self,
        stores: &HdfsClients,
        announced: &mut BTreeMap<String, Option<String>>,
        names: &[String],
        files: &ScannedFiles,
    ) -> Result<TakenNames, DataError> {
        if !self.shared || names.is_empty() {
            return Ok(TakenNames::new());
        }
        let files: Vec<_> = names.iter().map(|name| files[name].clone()).collect();
        let contents = spawn_blocking(move || contents(files.iter())).await;
        announced.extend(contents.unwrap_or_default());
        let deadline = Instant::now() + FILE_MAX;
        self.reservations.announce(stores, &self.from, &self.to, announced.clone(), deadline).await
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
    async fn upload_rest(
        &self,
        stores: &HdfsClients,
        target_cache: &mut Option<UploadTarget>,
    ) -> bool {
        let Some(OutputScan { files, single, whole }) = self.scan().await else {
            return true;
        };
        let mut is_all = true;
        let names = files.keys().filter(|name| !is_hidden(name));
        let mut names: Vec<String> = names.cloned().collect();
        if self.mirror {
            sort_by_change(&mut names, &files);
        }
        let taken = match self.taken(stores, &mut BTreeMap::new(), &names, &files).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!("cannot upload yet: {}", error.what);
                return !error.is_transient();
            }
        };
        for (name, one) in names.iter().map(|name| (name, &files[name])) {
            if !self.is_ours() {
                return true;
            }
            if let Some(who) = taken.get(name) {
                tracing::warn!("skipping `{name}`: {}", taken_error(who));
                continue;
            }
            if let Err(error) = self.upload_file(stores, target_cache, one, single).await {
                tracing::warn!("cannot upload `{name}` yet: {}", error.why);
                is_all &= !error.is_transient;
            }
        }
        if whole {
            is_all &= self.remove_gone(stores, &files).await;
        }
        is_all
    }

    /// Removes uploaded files that no longer exist here; returns false if a retry may help. Runs only after all current
    /// files have arrived: a checkpoint is removed when its successor is written, and until the upload of that it is
    /// the last one.
    async fn remove_gone(&self, stores: &HdfsClients, files: &ScannedFiles) -> bool {
        if !self.mirror {
            return true;
        }
        let base = self.to.trim_end_matches('/');
        let mut here = files.iter().filter(|(name, _)| !is_hidden(name));
        if !here.all(|(name, one)| self.upload_log.has(&format!("{base}/{name}"), &one.stamp)) {
            return true;
        }
        let mut is_all = true;
        for name in self.upload_log.names_below(base) {
            if files.contains_key(&name) {
                continue;
            }
            let target = format!("{base}/{name}");
            let deadline = Instant::now() + REMOVE_MAX;
            let removed = async {
                let store = stores.store(&target, deadline).await?;
                match store.stat(&target, deadline).await? {
                    Some(entry)
                        if self.upload_log.knows(&target, entry.bytes, entry.modified_ms) =>
                    {
                        store.delete(&target, deadline).await
                    }
                    // Downloaded from there, and replaced by another task since.
                    _ => Ok(false),
                }
            };
            match removed.await {
                Ok(_) => self.upload_log.forget(&target),
                Err(error) => {
                    tracing::warn!("cannot remove `{name}` yet: {}", error.what);
                    is_all &= !error.is_transient();
                }
            }
        }
        is_all
    }

    /// Scans the output.
    async fn scan(&self) -> Option<OutputScan> {
        let (work, from) = (self.work.clone(), self.from.clone());
        let scanned = spawn_blocking(move || {
            let Ok(work) = work.canonicalize() else {
                return OutputScan::default();
            };
            // Errors are reported by the final upload.
            let Ok(Some(found)) = gather(&work, &from, None, false) else {
                return OutputScan::default();
            };
            let files = found.files.into_iter().map(|file| (file.name.clone(), file));
            OutputScan {
                files: files.collect(),
                single: found.single,
                whole: found.failures.is_empty(),
            }
        });
        scanned.await.ok()
    }

    /// Uploads one file unless it is known there. A file that may be torn never replaces another.
    async fn upload_file(
        &self,
        stores: &HdfsClients,
        target_cache: &mut Option<UploadTarget>,
        item: &OutputFile,
        single: bool,
    ) -> Result<(), UploadError> {
        let (name, stamp) = (&item.name, item.stamp);
        let is_suspect = self.upload_log.may_be_torn(&stamp);
        if self.mirror && is_suspect {
            tracing::warn!("skipping `{name}`: it may be half-written");
            return Ok(());
        }
        let deadline = Instant::now() + FILE_MAX;
        // Reset on an error, to be determined again.
        let mut known = match target_cache.take() {
            Some(known) => known,
            None => {
                let to =
                    self.reservations.reserve(stores, self.existing, &self.to, deadline).await?;
                UploadTarget::find(stores, &to, single, &self.owner, deadline).await?
            }
        };
        let target = known.of(name);
        if self.upload_log.has(&target, &stamp) {
            *target_cache = Some(known);
            return Ok(());
        }
        let store = known.store.clone();
        if is_suspect && store.stat(&target, deadline).await?.is_some() {
            tracing::warn!("`{name}` may be half-written; keeping the existing `{target}`");
        } else {
            let temporary = known.temporary(&target, deadline).await?;
            let upload = FileUpload { item: item.clone(), temporary, target: target.clone() };
            upload.send(&*store, Some(stamp), deadline).await?;
            upload.finish(&*store, deadline).await?;
            self.upload_log.record_upload(target, stamp);
        }
        self.reservations.release(stores, self.existing, &known.base, deadline).await;
        *target_cache = Some(known);
        Ok(())
    }
}

/// Sorts by modification time: the newest file may refer to the others.
fn sort_by_change(names: &mut [String], files: &ScannedFiles) {
    names.sort_by_key(|name| files.get(name).map(|one| one.stamp.changed_ns));
}

/// Returns the names of files that are new and complete.
fn complete_files(
    first: &ScannedFiles,
    second: &ScannedFiles,
    done: &BTreeMap<String, FileStamp>,
    open: &OpenFiles,
) -> Vec<String> {
    let is_finished = |name: &&String| {
        let stamp = &second[*name].stamp;
        let before = first.get(*name).map(|one| &one.stamp);
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

    fn files(files: &[(&str, u64, i128)]) -> ScannedFiles {
        let one = |(name, inode, changed_ns): &(&str, u64, i128)| {
            let stamp = FileStamp {
                number: (1, *inode),
                bytes: 10,
                changed_ns: *changed_ns,
                named: false,
                placed: false,
            };
            let (from, name) = (PathBuf::from(name), name.to_string());
            (name.clone(), OutputFile { from, name, mode: 0o644, stamp, link: None })
        };
        files.iter().map(one).collect()
    }

    #[test]
    fn only_new_unchanged_files_are_finished() {
        let first = files(&[("a", 1, 5), ("b", 2, 5), ("c", 3, 5), (".tmp", 5, 5)]);
        let second = files(&[("a", 1, 5), ("b", 2, 6), ("c", 3, 5), ("d", 4, 5), (".tmp", 5, 5)]);
        let none = OpenFiles::default();
        let sent = BTreeMap::new();
        assert_eq!(complete_files(&first, &second, &sent, &none), ["a", "c"]);
        let open = OpenFiles { files: BTreeSet::from([(1, 3)]), ..OpenFiles::default() };
        assert_eq!(complete_files(&first, &second, &sent, &open), ["a"]);
        let sent = BTreeMap::from([("a".to_owned(), second["a"].stamp)]);
        assert_eq!(complete_files(&first, &second, &sent, &none), ["c"]);
        let later = files(&[("a", 1, 9)]);
        assert_eq!(complete_files(&later, &later, &sent, &none), ["a"]);
        // A file renamed into place is complete, however often that happens.
        let mut renamed = files(&[("b", 9, 9)]);
        renamed.get_mut("b").expect("it is there").stamp.placed = true;
        assert_eq!(complete_files(&first, &renamed, &sent, &none), ["b"]);
    }
}
