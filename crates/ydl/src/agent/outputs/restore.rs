//! Restores a checkpoint directory before its program starts: exactly what was saved last.

use super::{
    collect::is_hidden,
    upload_log::{FileStamp, UploadLog},
};
use crate::agent::shipping::HdfsClients;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use ydl_os::reason;
use ydl_storage::data::{
    DataError, DownloadItem, Downloader, LocalMode, Progress, below, list_source,
};

/// Pause between retries while HDFS is unavailable or the saved files change.
const RETRY: Duration = Duration::from_secs(1);
/// Retries of errors that look permanent: a directory may have gone while it was listed.
const TRIES: u32 = 3;
/// Deeper than any sensible directory.
const DEPTH_MAX: usize = 64;

/// Restore of a directory.
#[derive(Debug)]
pub(in crate::agent) struct Restore {
    /// URL in HDFS.
    pub(in crate::agent) from: String,
    pub(in crate::agent) to: PathBuf,
    /// Records files that need no upload.
    pub(in crate::agent) upload_log: UploadLog,
    pub(in crate::agent) deadline: Instant,
}

impl Restore {
    /// Downloads the saved files and removes all others. Returns an error message on failure.
    pub(in crate::agent) async fn run(self, stores: Arc<HdfsClients>) -> Result<(), String> {
        let mut tries = 0;
        loop {
            let Err(error) = self.once(&stores).await else {
                return Ok(());
            };
            tries = if is_worth_waiting(&error) { 0 } else { tries + 1 };
            let late = Instant::now() + RETRY > self.deadline;
            if late || tries >= TRIES {
                return Err(failure_text(&error));
            }
            tracing::warn!("cannot restore the checkpoint yet: {}", error.what);
            sleep(RETRY).await;
        }
    }

    async fn once(&self, stores: &HdfsClients) -> Result<(), DataError> {
        let base = self.from.trim_end_matches('/');
        let file_systems = stores.fresh()?;
        let saved = list_source(base, Some(&file_systems), self.deadline).await;
        let saved = saved.map_err(DataError::from)?;
        if saved.single {
            return Err(DataError::permanent(format!("`{base}` is a file")));
        }
        let mut items = Vec::new();
        let mut names = BTreeSet::new();
        for file in saved.files.into_iter().filter(|it| !is_hidden(&it.name)) {
            let to = below(&self.to, &file.name);
            let to = to.ok_or_else(|| {
                DataError::permanent(format!("invalid file name `{}`", file.name))
            })?;
            names.insert((file.name, to.clone(), file.modified_ms));
            items.push(DownloadItem {
                url: file.url,
                to,
                bytes: file.bytes,
                modified_ms: file.modified_ms,
            });
        }
        let here = |error: io::Error| DataError::local_write(&self.to, &error);
        fs::create_dir_all(&self.to).map_err(here)?;
        let files: BTreeSet<&Path> = names.iter().map(|(_, to, _)| to.as_path()).collect();
        remove_others(&self.to, &files, 0).map_err(here)?;
        let downloader = Downloader::new(
            Some(file_systems),
            LocalMode::Copy,
            Arc::new(Progress::default()),
            self.deadline,
        );
        downloader.all(items).await?;
        self.upload_log.forget_below(base);
        for (name, to, modified_ms) in &names {
            let about = fs::metadata(to).map_err(here)?;
            let target = format!("{base}/{name}");
            self.upload_log.record_download(target, FileStamp::of(&about), *modified_ms);
        }
        Ok(())
    }
}

/// Returns true if a retry may help: a temporary error, or a concurrent change of the saved files.
fn is_worth_waiting(error: &DataError) -> bool {
    error.is_transient() || error.has_changed()
}

fn failure_text(error: &DataError) -> String {
    match is_worth_waiting(error) {
        true => format!("restoring its checkpoint timed out: {}", error.what),
        false => format!("cannot restore its checkpoint: {}", error.sentence()),
    }
}

/// Removes files that were not saved: they may be half-written, and other tasks do not have them.
fn remove_others(dir: &Path, files: &BTreeSet<&Path>, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let about = fs::symlink_metadata(&path)?;
        let is_file = files.contains(path.as_path());
        // Files below a directory directly follow its name in the sort order.
        let mut after = files.range(path.as_path()..);
        let is_above = !is_file && after.next().is_some_and(|file| file.starts_with(&path));
        let removed = match (about.is_dir(), is_above) {
            (true, true) if depth < DEPTH_MAX => remove_others(&path, files, depth + 1),
            (true, true) => Ok(()),
            (true, false) => fs::remove_dir_all(&path),
            // Links were saved as their targets, which are elsewhere by now.
            (false, _) if !is_file || about.is_symlink() => fs::remove_file(&path),
            (false, _) => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!("cannot remove `{}`: {}", path.display(), reason(&error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_os::report::{Exit, Report};

    #[test]
    fn only_temporary_errors_are_retried() {
        let lasting = DataError::permanent("`hdfs://n/c` is a file").hint("take another");
        assert!(!is_worth_waiting(&lasting));
        let sentence = "cannot restore its checkpoint: `hdfs://n/c` is a file (take another)";
        assert_eq!(failure_text(&lasting), sentence);
        let away = Report::new(Exit::Unreachable, "connection refused");
        let passing = DataError::from(away);
        assert!(is_worth_waiting(&passing));
        let sentence = "restoring its checkpoint timed out: connection refused";
        assert_eq!(failure_text(&passing), sentence);
        let many = DataError::from(Report::bad_input("too many files"));
        assert!(!is_worth_waiting(&many));
    }

    #[tokio::test]
    async fn a_file_replaced_during_the_download_is_retried() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::write(&from, "x").unwrap();
        let item = DownloadItem {
            url: from.to_string_lossy().into_owned(),
            to: dir.path().join("to"),
            bytes: 2,
            modified_ms: 1,
        };
        let soon = Instant::now() + Duration::from_secs(60);
        let downloader =
            Downloader::new(None, LocalMode::Copy, Arc::new(Progress::default()), soon);
        let error = downloader.all(vec![item]).await.unwrap_err();
        assert!(is_worth_waiting(&error), "{error:?}");
    }

    #[test]
    fn files_that_were_not_saved_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "deep/b", "deep/torn", "old/c", ".new"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        // Links, and files in place of saved directories and the other way round.
        std::os::unix::fs::symlink("gone", dir.path().join("latest")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        fs::create_dir_all(dir.path().join("folder/inside")).unwrap();
        let saved = ["a", "deep/b", "latest/w", "link", "file/now", "folder"];
        let saved = saved.map(|name| dir.path().join(name));
        let files = saved.iter().map(PathBuf::as_path).collect();
        remove_others(dir.path(), &files, 0).unwrap();
        let left = |name: &str| dir.path().join(name).exists();
        assert!(left("a") && left("deep/b"));
        assert!(!left("deep/torn") && !left("old") && !left(".new"));
        for name in ["latest", "link", "file", "folder"] {
            let path = dir.path().join(name);
            assert!(fs::symlink_metadata(path).is_err(), "{name}");
        }
    }
}
