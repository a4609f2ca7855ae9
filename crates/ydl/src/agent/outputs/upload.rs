//! Uploads outputs to HDFS: to a temporary name that is renamed when complete.

use super::{
    Copied, OutputError,
    collect::{OutputFile, OutputFiles, gather},
    continuous::is_hidden,
    reservations::{contents, theirs},
    suspect::FileStamp,
    target::{UploadError, aside, put, send_file, soon, sweep, swept},
};
use crate::agent::shipping::{HdfsClients, HdfsUpload, UploadRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use ydl_os::reason;
use ydl_storage::hdfs::{Hdfs, Kind};

/// Maximum number of concurrent uploads.
const SIDE_BY_SIDE: usize = 4;
/// Retry limit of an output while HDFS is unavailable.
const AWAY_MAX: Duration = Duration::from_secs(90);
/// Pause between such retries.
const RETRY: Duration = Duration::from_secs(2);

/// Copies each output, relative to `work`, to its URL. The rules are those of [`copy`](super::copy). An output of
/// several files appears atomically, or is merged file by file into an existing directory. `whose` identifies the task:
/// temporary files of its earlier attempts are removed.
pub(in crate::agent) async fn send(
    ways: &HdfsClients,
    it: &UploadRequest,
) -> Result<Copied, OutputError> {
    let mut sent = UploadRun { it, copied: Copied::default(), failures: Vec::new() };
    match it.work.canonicalize() {
        Ok(work) => {
            for output in &it.outputs {
                sent.output(ways, &work, output).await;
            }
        }
        Err(error) => sent.failures.push(format!(
            "cannot copy from `{}`: {}",
            it.work.display(),
            reason(&error)
        )),
    }
    sent.result()
}

struct UploadRun<'a> {
    it: &'a UploadRequest,
    copied: Copied,
    failures: Vec<String>,
}

impl UploadRun<'_> {
    async fn output(&mut self, ways: &HdfsClients, work: &Path, output: &HdfsUpload) {
        let HdfsUpload { from, to, existing, .. } = output;
        let deadline = self.it.deadline;
        let mut found = match gather(work, from) {
            Ok(Some(found)) => found,
            Ok(None) => return self.copied.absent.push(from.to_owned()),
            Err(sentence) => return self.failures.push(sentence),
        };
        self.failures.append(&mut found.failures);
        if output.kept {
            found.files.retain(|item| !is_hidden(&item.name));
        }
        let away = Instant::now() + AWAY_MAX;
        let it = self.it;
        let claims = &it.claims;
        let mut told = BTreeSet::new();
        loop {
            let placed = async {
                if output.shared {
                    let (files, soon) = (contents(&found), soon(deadline));
                    let place = to.trim_end_matches('/');
                    let taken = claims.names(Some(ways), from, place, files, soon).await?;
                    for (name, who) in &taken {
                        if told.insert(name.clone()) {
                            let why = theirs(who);
                            let sentence = format!("cannot copy `{name}` to `{to}`: {why}");
                            self.failures.push(sentence);
                        }
                    }
                    found.files.retain(|item| !taken.contains_key(&item.name));
                    // The single file of this output.
                    if found.single && found.files.is_empty() {
                        return Ok((0, 0));
                    }
                }
                let taken = claims.afar(ways, *existing, to, soon(deadline)).await?;
                let placed = place(ways, it, &mut found, &taken, deadline).await?;
                claims.placed_afar(ways, *existing, &taken, soon(deadline)).await;
                Ok::<_, UploadError>(placed)
            };
            let trouble = match placed.await {
                Ok((files, bytes)) => {
                    self.copied.files += files;
                    self.copied.bytes += bytes;
                    return;
                }
                Err(trouble) => trouble,
            };
            let now = Instant::now();
            if !trouble.is_transient || now + RETRY > away.min(deadline) {
                let UploadError { file, why, .. } = trouble;
                let file = file.as_deref().unwrap_or(from);
                let sentence = format!("cannot copy `{file}` to `{to}`: {why}");
                return self.failures.push(sentence);
            }
            tracing::warn!("cannot upload `{from}` yet: {}", trouble.why);
            sleep(RETRY).await;
        }
    }

    fn result(self) -> Result<Copied, OutputError> {
        let UploadRun { copied, failures, .. } = self;
        match failures.is_empty() {
            true => Ok(copied),
            false => Err(OutputError::new(failures, copied)),
        }
    }
}

/// Uploads one output to its destination. Returns the number of files and bytes.
async fn place(
    ways: &HdfsClients,
    it: &UploadRequest,
    found: &mut OutputFiles,
    to: &str,
    deadline: Instant,
) -> Result<(u64, u64), UploadError> {
    let whose = &it.whose;
    let hdfs = ways.to(to, soon(deadline)).await?;
    let (base, slash) = (to.trim_end_matches('/'), to.ends_with('/'));
    let there = hdfs.stat(base, soon(deadline)).await?;
    let directory_there = there.as_ref().is_some_and(|entry| entry.directory);
    let (dir, _) = base.rsplit_once('/').unwrap_or((base, ""));
    if let (true, [item]) = (found.single, &found.files[..]) {
        let (dir, target) = match slash || directory_there {
            true => (base, format!("{base}/{}", item.name)),
            false => (dir, base.to_owned()),
        };
        let length = hdfs.stat(&target, soon(deadline)).await?;
        let there = length.map(|entry| (target.clone(), entry.bytes)).into_iter();
        if stays(it, item, &target, &there.collect()) {
            return Ok((0, 0));
        }
        hdfs.mkdirs(dir, 0o755, soon(deadline)).await?;
        sweep(&hdfs, dir, whose, deadline).await;
        let aside = aside(dir, whose)?;
        let sent = async {
            let bytes = send_file(&hdfs, item, &aside, deadline).await?;
            put(&hdfs, &aside, &target, deadline).await?;
            Ok((1, bytes))
        };
        return swept(&hdfs, &aside, sent.await).await;
    }
    if there.is_some() && !directory_there {
        return Err(UploadError::lasting("a file is there"));
    }
    if directory_there {
        let target = |item: &OutputFile| format!("{base}/{}", item.name);
        let there = lengths(&hdfs, it, found, base, deadline).await?;
        let stays = |item: &OutputFile| stays(it, item, &target(item), &there);
        found.files.retain(|item| !stays(item));
        if found.files.is_empty() {
            make_dirs(&hdfs, found, base, deadline).await?;
            return Ok((0, 0));
        }
    }
    let found = &*found;
    // Inside the existing directory: the parent may not be writable.
    let beside = if directory_there { base } else { dir };
    if !directory_there {
        hdfs.mkdirs(dir, 0o755, soon(deadline)).await?;
    }
    sweep(&hdfs, beside, whose, deadline).await;
    let aside = aside(beside, whose)?;
    let sent = async {
        let bytes = send_all(&hdfs, found, &aside, deadline).await?;
        let renamed = match directory_there {
            true => false,
            // If another task created the directory first, the files are merged into it.
            false => match hdfs.rename(&aside, base, soon(deadline)).await {
                Ok(()) => true,
                Err(error) if error.kind == Kind::Exists => false,
                Err(error) => return Err(error.into()),
            },
        };
        if !renamed {
            merge(&hdfs, found, &aside, base, deadline).await?;
        }
        Ok((found.files.len() as u64, bytes))
    };
    swept(&hdfs, &aside, sent.await).await
}

/// Returns true if the existing file is kept: it is the uploaded file itself, or the source may be half-written.
fn stays(
    it: &UploadRequest,
    item: &OutputFile,
    target: &str,
    there: &BTreeMap<String, u64>,
) -> bool {
    let (Some(length), Ok(about)) = (there.get(target), fs::metadata(&item.from)) else {
        return false;
    };
    let stamp = FileStamp::of(&about);
    if it.sent.has(target, &stamp) && *length == stamp.bytes {
        return true;
    }
    let in_doubt = it.sent.may_be_torn(&stamp);
    if in_doubt {
        let name = &item.name;
        tracing::warn!("`{name}` may be half-written; keeping the existing `{target}`");
    }
    in_doubt
}

/// Returns the lengths of existing files at targets that may be kept. Lists each directory once.
async fn lengths(
    hdfs: &Hdfs,
    it: &UploadRequest,
    found: &OutputFiles,
    base: &str,
    deadline: Instant,
) -> Result<BTreeMap<String, u64>, UploadError> {
    let mut dirs = BTreeSet::new();
    for item in &found.files {
        let target = format!("{base}/{}", item.name);
        let stamp = fs::metadata(&item.from).map(|about| FileStamp::of(&about));
        let matters = |stamp: &FileStamp| it.sent.has(&target, stamp) || it.sent.may_be_torn(stamp);
        if stamp.is_ok_and(|stamp| matters(&stamp))
            && let Some((dir, _)) = target.rsplit_once('/')
        {
            dirs.insert(dir.to_owned());
        }
    }
    let mut lengths = BTreeMap::new();
    for dir in dirs {
        match hdfs.list(&dir, soon(deadline)).await {
            Ok(all) => {
                let files = all.iter().filter(|entry| !entry.directory);
                let each = files.map(|entry| (format!("{dir}/{}", entry.name()), entry.bytes));
                lengths.extend(each);
            }
            Err(error) if error.kind == Kind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lengths)
}

async fn send_all(
    hdfs: &Hdfs,
    found: &OutputFiles,
    aside: &str,
    deadline: Instant,
) -> Result<u64, UploadError> {
    hdfs.mkdirs(aside, 0o755, soon(deadline)).await?;
    make_dirs(hdfs, found, aside, deadline).await?;
    let mut bytes = 0;
    let mut sending = JoinSet::new();
    for item in &found.files {
        while sending.len() >= SIDE_BY_SIDE {
            bytes += joined(sending.join_next().await)?;
        }
        let (hdfs, place) = (hdfs.clone(), format!("{aside}/{}", item.name));
        let item = item.clone();
        sending.spawn(async move { send_file(&hdfs, &item, &place, deadline).await });
    }
    while let Some(sent) = sending.join_next().await {
        bytes += joined(Some(sent))?;
    }
    Ok(bytes)
}

fn joined(
    sent: Option<Result<Result<u64, UploadError>, tokio::task::JoinError>>,
) -> Result<u64, UploadError> {
    match sent {
        Some(Ok(sent)) => sent,
        Some(Err(_)) => Err(UploadError::lasting("uploading it failed")),
        None => Ok(0),
    }
}

/// Creates the directories of an output below `base`.
async fn make_dirs(
    hdfs: &Hdfs,
    found: &OutputFiles,
    base: &str,
    deadline: Instant,
) -> Result<(), UploadError> {
    for (name, mode) in &found.dirs {
        let made = hdfs.mkdirs(&format!("{base}/{name}"), *mode, soon(deadline)).await;
        made.map_err(|error| UploadError::from(error).with(name))?;
    }
    Ok(())
}

/// Moves files into a directory that may contain others.
async fn merge(
    hdfs: &Hdfs,
    found: &OutputFiles,
    aside: &str,
    base: &str,
    deadline: Instant,
) -> Result<(), UploadError> {
    make_dirs(hdfs, found, base, deadline).await?;
    let mut first = Ok(());
    for item in &found.files {
        let (from, target) = (format!("{aside}/{}", item.name), format!("{base}/{}", item.name));
        match put(hdfs, &from, &target, deadline).await {
            Err(trouble) if trouble.is_transient => return Err(trouble.with(&item.name)),
            // One conflicting name does not cost the other files.
            Err(trouble) => first = first.and(Err(trouble.with(&item.name))),
            Ok(()) => {}
        }
    }
    first
}
