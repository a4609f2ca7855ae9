//! A checkpoint's directory before its program starts: what was saved of it last, and nothing else.

use super::{
    continuous::is_hidden,
    suspect::{FileStamp, UploadLog},
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
use ydl_storage::data::{Bring, Item, Near, Progress, Trouble, below, walk};

/// Between two tries while HDFS is away, or while somebody changes what is saved.
const RETRY: Duration = Duration::from_secs(1);
/// So often what looks as if it would last is tried: a directory may have gone while it was listed.
const TRIES: u32 = 3;
/// Deeper than any sensible directory.
const DEPTH_MAX: usize = 64;

/// A directory that is to be what was saved.
#[derive(Debug)]
pub(in crate::agent) struct Restore {
    /// A URL in HDFS.
    pub(in crate::agent) from: String,
    pub(in crate::agent) to: PathBuf,
    /// Where what need not be sent again is noted.
    pub(in crate::agent) sent: UploadLog,
    pub(in crate::agent) deadline: Instant,
}

impl Restore {
    /// Brings what was saved and removes the rest. What cannot be had is a sentence.
    pub(in crate::agent) async fn run(self, ways: Arc<HdfsClients>) -> Result<(), String> {
        let mut tries = 0;
        loop {
            let Err(trouble) = self.once(&ways).await else {
                return Ok(());
            };
            tries = if is_worth_waiting(&trouble) { 0 } else { tries + 1 };
            let late = Instant::now() + RETRY > self.deadline;
            if late || tries >= TRIES {
                return Err(said(&trouble));
            }
            tracing::warn!("the checkpoint is not here yet: {}", trouble.what);
            sleep(RETRY).await;
        }
    }

    async fn once(&self, ways: &HdfsClients) -> Result<(), Trouble> {
        let base = self.from.trim_end_matches('/');
        let hdfs = ways.to(base, self.deadline).await?;
        let saved = walk(base, Some(hdfs), self.deadline).await;
        let saved = saved.map_err(Trouble::from)?;
        if saved.single {
            return Err(Trouble::lasting(format!("`{base}` is a file")));
        }
        let mut items = Vec::new();
        let mut names = BTreeSet::new();
        for file in saved.files.into_iter().filter(|it| !is_hidden(&it.name)) {
            let to = below(&self.to, &file.name);
            let to = to.ok_or_else(|| Trouble::lasting(format!("`{}` is no name", file.name)))?;
            names.insert((file.name, to.clone(), file.modified_ms));
            items.push(Item {
                url: file.url,
                to,
                bytes: file.bytes,
                modified_ms: file.modified_ms,
            });
        }
        let here = |error: io::Error| Trouble::here(&self.to, &error);
        fs::create_dir_all(&self.to).map_err(here)?;
        let files: BTreeSet<&Path> = names.iter().map(|(_, to, _)| to.as_path()).collect();
        remove_others(&self.to, &files, 0).map_err(here)?;
        let bring = Bring::new(
            Some(ways.fresh()?),
            Near::Copy,
            Arc::new(Progress::default()),
            self.deadline,
        );
        bring.all(items).await?;
        self.sent.forget_below(base);
        for (name, to, modified_ms) in &names {
            let about = fs::metadata(to).map_err(here)?;
            let target = format!("{base}/{name}");
            self.sent.brought(target, FileStamp::of(&about), *modified_ms);
        }
        Ok(())
    }
}

/// Whether it may be had later: it passes by itself, or others are changing what is saved.
fn is_worth_waiting(trouble: &Trouble) -> bool {
    trouble.may_pass() || trouble.has_changed()
}

fn said(trouble: &Trouble) -> String {
    match is_worth_waiting(trouble) {
        true => format!("its checkpoint did not come in time: {}", trouble.what),
        false => format!("its checkpoint cannot be had: {}", trouble.sentence()),
    }
}

/// Removes what was not saved: it may be half-written, and others do not have it.
fn remove_others(dir: &Path, files: &BTreeSet<&Path>, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let about = fs::symlink_metadata(&path)?;
        let is_file = files.contains(path.as_path());
        // What lies below a directory comes next to it in the order of names.
        let mut after = files.range(path.as_path()..);
        let is_above = !is_file && after.next().is_some_and(|file| file.starts_with(&path));
        let removed = match (about.is_dir(), is_above) {
            (true, true) if depth < DEPTH_MAX => remove_others(&path, files, depth + 1),
            (true, true) => Ok(()),
            (true, false) => fs::remove_dir_all(&path),
            // Links were saved as what they led to, and that is elsewhere by now.
            (false, _) if !is_file || about.is_symlink() => fs::remove_file(&path),
            (false, _) => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!("`{}` stays: {}", path.display(), reason(&error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_os::report::{Exit, Report};

    #[test]
    fn only_what_may_be_had_later_is_waited_for() {
        let lasting = Trouble::lasting("`hdfs://n/c` is a file").hint("take another");
        assert!(!is_worth_waiting(&lasting));
        let sentence = "its checkpoint cannot be had: `hdfs://n/c` is a file (take another)";
        assert_eq!(said(&lasting), sentence);
        let away = Report::new(Exit::Unreachable, "nobody answers");
        let passing = Trouble::from(away);
        assert!(is_worth_waiting(&passing));
        let sentence = "its checkpoint did not come in time: nobody answers";
        assert_eq!(said(&passing), sentence);
        let many = Trouble::from(Report::bad_input("too many files"));
        assert!(!is_worth_waiting(&many));
    }

    #[tokio::test]
    async fn what_others_replace_while_it_comes_is_worth_waiting_for() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::write(&from, "x").unwrap();
        let item = Item {
            url: from.to_string_lossy().into_owned(),
            to: dir.path().join("to"),
            bytes: 2,
            modified_ms: 1,
        };
        let soon = Instant::now() + Duration::from_secs(60);
        let bring = Bring::new(None, Near::Copy, Arc::new(Progress::default()), soon);
        let trouble = bring.all(vec![item]).await.unwrap_err();
        assert!(is_worth_waiting(&trouble), "{trouble:?}");
    }

    #[test]
    fn what_was_not_saved_goes_and_what_was_stays() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "deep/b", "deep/torn", "old/c", ".new"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        // Links, and what is a file where a directory was saved or the other way round.
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
