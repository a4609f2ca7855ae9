//! Uploads outputs to their destinations, which are local disks or HDFS.

use super::{
    Copied, OutputError,
    batch::{Placed, discard_all, finish_all, send_all},
    collect::{OutputFile, OutputFiles, gather},
    reservations::{contents, taken_error},
    target::{FileUpload, UploadError, UploadTarget, discard},
};
use crate::agent::{
    shipping::{HdfsClients, UploadRequest},
    task_env::TaskOutput,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use ydl_os::reason;
use ydl_storage::store::is_local;

/// Retry limit of an output while HDFS is unavailable.
const AWAY_MAX: Duration = Duration::from_secs(90);
/// Pause between such retries.
const RETRY: Duration = Duration::from_secs(2);

/// Uploads outputs, and records which of them were absent.
pub(in crate::agent) async fn upload_outputs(
    stores: &HdfsClients,
    request: &UploadRequest,
) -> Result<Copied, OutputError> {
    let copied = upload(stores, request).await?;
    let outputs = request.outputs.iter().map(|output| &output.from);
    request.reservations.record_absent(stores, outputs, &copied.absent).await;
    Ok(copied)
}

/// Uploads each output, relative to the working directory, to its destination. The rules are those of
/// [`copy`](super::copy).
pub(super) async fn upload(
    stores: &HdfsClients,
    request: &UploadRequest,
) -> Result<Copied, OutputError> {
    let work = match request.work.canonicalize() {
        Ok(work) => work,
        Err(error) => {
            let path = request.work.display();
            let sentence = format!("cannot copy from `{path}`: {}", reason(&error));
            return Err(OutputError::new(vec![sentence], Copied::default()));
        }
    };
    let run = async |local: bool| {
        let mut run = UploadRun::new(stores, request);
        for output in request.outputs.iter().filter(|output| is_local(&output.to) == local) {
            run.output(&work, output).await;
        }
        (run.copied, run.failures)
    };
    // Local files do not wait for HDFS.
    let ((mut copied, mut failures), (more, more_failures)) = tokio::join!(run(true), run(false));
    copied.files += more.files;
    copied.bytes += more.bytes;
    copied.absent.extend(more.absent);
    failures.extend(more_failures);
    match failures.is_empty() {
        true => Ok(copied),
        false => Err(OutputError::new(failures, copied)),
    }
}

/// Upload of the outputs of one kind of store.
pub(super) struct UploadRun<'a> {
    stores: &'a HdfsClients,
    request: &'a UploadRequest,
    copied: Copied,
    failures: Vec<String>,
}

impl<'a> UploadRun<'a> {
    pub(super) fn new(stores: &'a HdfsClients, request: &'a UploadRequest) -> UploadRun<'a> {
        UploadRun { stores, request, copied: Copied::default(), failures: Vec::new() }
    }

    /// Uploads one output. Retries while HDFS is unavailable.
    async fn output(&mut self, work: &Path, output: &TaskOutput) {
        let (work, own) = (work.to_owned(), output.clone());
        let gathered = spawn_blocking(move || {
            let to = is_local(&own.to).then_some(Path::new(&own.to));
            gather(&work, &own.from, to, own.every.is_some())
        });
        let mut found = match gathered.await {
            Ok(Ok(Some(found))) => found,
            Ok(Ok(None)) => return self.copied.absent.push(output.from.clone()),
            Ok(Err(sentence)) => return self.failures.push(sentence),
            Err(_) => {
                let sentence =
                    format!("cannot copy `{}`: collecting its files failed", output.from);
                return self.failures.push(sentence);
            }
        };
        self.failures.append(&mut found.failures);
        let away = Instant::now() + AWAY_MAX;
        let mut reported = BTreeSet::new();
        loop {
            let error = match self.try_output(output, &mut found, &mut reported).await {
                Ok(placed) => {
                    self.copied.files += placed.files;
                    self.copied.bytes += placed.bytes;
                    let failures = placed.failures.into_iter();
                    let sentences = failures.map(|error| error.sentence(&output.from, &output.to));
                    return self.failures.extend(sentences);
                }
                Err(error) => error,
            };
            let retry_at = Instant::now() + RETRY;
            if !error.is_transient || retry_at > away.min(self.request.deadline) {
                return self.failures.push(error.sentence(&output.from, &output.to));
            }
            tracing::warn!("cannot upload `{}` yet: {}", output.from, error.why);
            sleep(RETRY).await;
        }
    }

    /// Announces the names of an output, reserves its destination, and uploads it.
    async fn try_output(
        &mut self,
        TaskOutput { from, to, existing, shared, .. }: &TaskOutput,
        found: &mut OutputFiles,
        reported: &mut BTreeSet<String>,
    ) -> Result<Placed, UploadError> {
        let UploadRequest { reservations, deadline, .. } = self.request;
        if *shared {
            let files = found.files.clone();
            let files = spawn_blocking(move || contents(files.iter())).await.unwrap_or_default();
            let taken = reservations.announce(self.stores, from, to, files, *deadline).await?;
            for (name, who) in &taken {
                if reported.insert(name.clone()) {
                    let why = taken_error(who);
                    self.failures.push(format!("cannot copy `{name}` to `{to}`: {why}"));
                }
            }
            found.files.retain(|item| !taken.contains_key(&item.name));
            if found.single && found.files.is_empty() {
                return Ok(Placed::default());
            }
        }
        let taken = reservations.reserve(self.stores, *existing, to, *deadline).await?;
        let placed = self.place(found, &taken).await?;
        reservations.release(self.stores, *existing, &taken, *deadline).await;
        Ok(placed)
    }

    /// Uploads files to their final destination.
    async fn place(&self, found: &mut OutputFiles, to: &str) -> Result<Placed, UploadError> {
        let UploadRequest { owner, deadline, .. } = self.request;
        let target = UploadTarget::find(self.stores, to, found.single, owner, *deadline).await?;
        match &target.there {
            None if !found.single => self.place_new(found, target).await,
            Some(there) if !found.single && !there.directory => {
                Err(UploadError::lasting("the destination is a file, and a directory is needed"))
            }
            _ => self.merge(found, target).await,
        }
    }

    /// Uploads a new directory, which gets its name when it is complete.
    pub(super) async fn place_new(
        &self,
        found: &OutputFiles,
        mut target: UploadTarget,
    ) -> Result<Placed, UploadError> {
        let (store, base) = (target.store.clone(), target.base.clone());
        let deadline = self.request.deadline;
        let temporary = target.temporary(&base, deadline).await?;
        let placed = async {
            store.make_dirs(&temporary, found.mode, deadline).await?;
            target.make_dirs(found, &temporary, deadline).await?;
            let uploads = found.files.iter().map(|item| FileUpload {
                item: item.clone(),
                temporary: format!("{temporary}/{}", item.name),
                target: target.of(&item.name),
            });
            let sent = send_all(&store, uploads.collect(), |_| true, deadline).await;
            // The whole temporary directory is removed.
            let (done, _) = sent.map_err(|(error, _)| error)?;
            if store.rename(&temporary, &base, deadline).await? {
                let bytes = done.iter().map(|(_, bytes)| bytes).sum();
                return Ok(Placed { files: done.len() as u64, bytes, failures: Vec::new() });
            }
            // Another task created the directory first: the files are merged into it.
            target.make_dirs(found, &base, deadline).await?;
            finish_all(&*store, done, deadline).await
        };
        let placed = placed.await;
        discard(&*store, &temporary).await;
        placed
    }

    /// Uploads a single file, or files into an existing directory. Each replaces its target when all have arrived. An
    /// error of one does not cost the others.
    async fn merge(
        &self,
        found: &mut OutputFiles,
        mut target: UploadTarget,
    ) -> Result<Placed, UploadError> {
        let (store, deadline) = (target.store.clone(), self.request.deadline);
        follow_links(found, &target, deadline).await?;
        let there = self.lengths(found, &target).await?;
        found.files.retain(|item| !self.stays(item, &target.of(&item.name), &there));
        let mut failures = Vec::new();
        let mut keep = |error: UploadError| match error.is_transient {
            true => Err(error),
            false => {
                failures.push(error);
                Ok(())
            }
        };
        target.make_dirs(found, &target.base, deadline).await.or_else(&mut keep)?;
        let mut uploads = Vec::new();
        for item in &found.files {
            let own = target.of(&item.name);
            match target.temporary(&own, deadline).await {
                Ok(temporary) => {
                    uploads.push(FileUpload { item: item.clone(), temporary, target: own })
                }
                Err(error) => keep(error.of(item, &own))?,
            }
        }
        let is_end = |error: &UploadError| error.is_transient;
        let (done, failed) = match send_all(&store, uploads, is_end, deadline).await {
            Ok(sent) => sent,
            Err((error, done)) => {
                discard_all(&*store, &done).await;
                return Err(error);
            }
        };
        let mut placed = finish_all(&*store, done, deadline).await?;
        placed.failures.extend(failures.into_iter().chain(failed));
        Ok(placed)
    }

    /// Returns true if the existing file is kept: it is the uploaded file itself, or the source may be half-written.
    fn stays(&self, item: &OutputFile, target: &str, there: &BTreeMap<String, u64>) -> bool {
        let Some(length) = there.get(target).filter(|_| item.link.is_none()) else {
            return false;
        };
        if self.request.upload_log.has(target, &item.stamp) && *length == item.stamp.bytes {
            return true;
        }
        let is_suspect = self.request.upload_log.may_be_torn(&item.stamp);
        if is_suspect {
            let name = &item.name;
            tracing::warn!("`{name}` may be half-written; keeping the existing `{target}`");
        }
        is_suspect
    }

    /// Returns the lengths of existing files at targets that may be kept. Lists each directory once.
    async fn lengths(
        &self,
        found: &OutputFiles,
        target: &UploadTarget,
    ) -> Result<BTreeMap<String, u64>, UploadError> {
        let (log, deadline) = (&self.request.upload_log, self.request.deadline);
        let files = found.files.iter().filter(|item| item.link.is_none());
        let targets = files.map(|item| (target.of(&item.name), &item.stamp));
        let targets =
            targets.filter(|(target, stamp)| log.has(target, stamp) || log.may_be_torn(stamp));
        let mut lengths = BTreeMap::new();
        if found.single {
            for (target_path, _) in targets {
                let there = target.store.stat(&target_path, deadline).await?;
                lengths.extend(there.map(|entry| (target_path, entry.bytes)));
            }
            return Ok(lengths);
        }
        let dirs = targets.filter_map(|(target, _)| Some(target.rsplit_once('/')?.0.to_owned()));
        for dir in dirs.collect::<BTreeSet<_>>() {
            let entries = target.store.list(&dir, deadline).await?;
            let files = entries.iter().filter(|entry| !entry.directory);
            lengths.extend(files.map(|entry| (format!("{dir}/{}", entry.name()), entry.bytes)));
        }
        Ok(lengths)
    }
}

/// Replaces links to directories by their files where the destination has a directory: a continuous upload has copied
/// the target of the link.
async fn follow_links(
    found: &mut OutputFiles,
    target: &UploadTarget,
    deadline: Instant,
) -> Result<(), UploadError> {
    // Files that a link adds are at the end, and may be links.
    let mut at = 0;
    while let Some(item) = found.files.get(at) {
        at += 1;
        if item.link.is_none() || !item.from.is_dir() {
            continue;
        }
        let there = target.store.stat(&target.of(&item.name), deadline).await?;
        if there.is_some_and(|entry| entry.directory && !entry.link) {
            at -= 1;
            let name = item.name.clone();
            found.follow(&name);
        }
    }
    Ok(())
}
