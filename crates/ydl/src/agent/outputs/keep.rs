//! Outputs that are sent while their program still runs: checkpoints, which must outlive a container that is taken away.
//!
//! Only finished files go: those that nobody has open for writing and that look the same at two looks. What changes
//! while it is sent does not get its name.

use super::{
    Claims, aside, failure_of,
    gather::{Item, gather},
    send::send_one,
    sync_dir_of, write_aside,
};
use crate::agent::{carry::Ways, surroundings::Destination};
use crate::os::{proc_tree::Tree, reason};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use ydl_core::spec::Existing;

/// Between the two looks that a finished file must pass unchanged.
const SETTLE: Duration = Duration::from_secs(2);
/// How long sending one file may take.
const FILE_MAX: Duration = Duration::from_secs(3600);

/// One output that is kept up to date.
#[derive(Debug)]
pub(in crate::agent) struct Kept {
    /// In a word that no other output of any task has.
    pub(in crate::agent) whose: String,
    pub(in crate::agent) work: PathBuf,
    pub(in crate::agent) from: String,
    pub(in crate::agent) to: Destination,
    pub(in crate::agent) existing: Existing,
    pub(in crate::agent) claims: Claims,
    pub(in crate::agent) every: Duration,
    /// True once the program is over: then every file is finished. When it is gone, nobody wants them.
    pub(in crate::agent) over: watch::Receiver<bool>,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed_ns: i128,
}

impl Stamp {
    pub(super) fn of(about: &Metadata) -> Stamp {
        Stamp {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            changed_ns: i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec()),
        }
    }
}

/// Files by their name below the destination, as they were at one look.
type Look = BTreeMap<String, (PathBuf, u32, Stamp)>;

impl Kept {
    /// Sends what is new and finished, again and again, until the program is over and all of it is there.
    pub(in crate::agent) async fn run(mut self, ways: Arc<Ways>) {
        let mut sent: BTreeMap<String, Stamp> = BTreeMap::new();
        loop {
            let wait = async {
                // An end without a word ends the waiting, too.
                let _ = self.over.wait_for(|over| *over).await;
            };
            let mut is_over = tokio::time::timeout(self.every, wait).await.is_ok();
            if is_over && self.over.has_changed().is_err() && !*self.over.borrow() {
                return;
            }
            let Some((first, _)) = self.look().await else {
                return;
            };
            let (second, single) = match is_over {
                true => (first.clone(), self.is_single()),
                false => {
                    sleep(SETTLE.min(self.every)).await;
                    is_over = *self.over.borrow();
                    match self.look().await {
                        Some(look) => look,
                        None => return,
                    }
                }
            };
            // It ended between the two looks: what it has written since will not change any more.
            let first = if is_over { second.clone() } else { first };
            let writing = match is_over {
                true => BTreeSet::new(),
                false => written_now(std::process::id()),
            };
            for name in finished(&first, &second, &sent, &writing) {
                let (path, mode, stamp) = &second[&name];
                let item = Item {
                    from: path.clone(),
                    name: name.clone(),
                    mode: *mode,
                };
                match self.send(&ways, &item, single, *stamp).await {
                    Ok(()) => drop(sent.insert(name, *stamp)),
                    Err(why) => tracing::warn!("`{name}` is not sent yet: {why}"),
                }
            }
            if is_over {
                return;
            }
        }
    }

    fn is_single(&self) -> bool {
        self.work.join(&self.from).is_file()
    }

    /// What is there now, and whether it is one file alone.
    async fn look(&self) -> Option<(Look, bool)> {
        let (work, from) = (self.work.clone(), self.from.clone());
        let looked = spawn_blocking(move || {
            let Ok(work) = work.canonicalize() else {
                return (Look::new(), false);
            };
            // What is wrong with it is said when the program is over.
            let Ok(Some(found)) = gather(&work, &from) else {
                return (Look::new(), false);
            };
            let mut look = Look::new();
            for item in found.files {
                if let Ok(about) = fs::metadata(&item.from) {
                    look.insert(item.name, (item.from, item.mode, Stamp::of(&about)));
                }
            }
            (look, found.single)
        });
        looked.await.ok()
    }

    async fn send(
        &self,
        ways: &Ways,
        item: &Item,
        single: bool,
        stamp: Stamp,
    ) -> Result<(), String> {
        let same = {
            let path = item.from.clone();
            move || fs::metadata(&path).is_ok_and(|about| Stamp::of(&about) == stamp)
        };
        match &self.to {
            Destination::Hdfs(url) => {
                let deadline = Instant::now() + FILE_MAX;
                let url = self.claims.afar(ways, self.existing, url, deadline).await;
                let url = url.map_err(|trouble| trouble.what)?;
                send_one(ways, &self.whose, item, single, &url, same, deadline).await
            }
            Destination::Local(to) => {
                let to = self.claims.here(self.existing, to).await?;
                let (item_from, mode) = (item.from.clone(), item.mode);
                let slash = to.as_os_str().as_encoded_bytes().ends_with(b"/");
                let target = match single && !slash && !to.is_dir() {
                    true => to.clone(),
                    false => to.join(&item.name),
                };
                let copied = spawn_blocking(move || copy_one(&item_from, mode, &target, same));
                match copied.await {
                    Ok(copied) => copied.map_err(|error| reason(&error)),
                    Err(_) => Err(failure_of(&item.from, "copying it failed")),
                }
            }
        }
    }
}

fn copy_one(from: &Path, mode: u32, to: &Path, same: impl Fn() -> bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    let aside = aside(to);
    let write = || {
        let mut source = File::open(from)?;
        let mut file = File::create_new(&aside)?;
        io::copy(&mut source, &mut file)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        match same() {
            true => Ok(()),
            false => Err(io::Error::other("it changed while it was copied")),
        }
    };
    write_aside(&aside, to, write)?;
    sync_dir_of(to);
    Ok(())
}

/// The names of files that are new and will not change any more, as far as one can see.
fn finished(
    first: &Look,
    second: &Look,
    sent: &BTreeMap<String, Stamp>,
    writing: &BTreeSet<(u64, u64)>,
) -> Vec<String> {
    let is_finished = |name: &&String| {
        let (_, _, stamp) = &second[*name];
        let hidden = name.split('/').any(|part| part.starts_with('.'));
        let before = first.get(*name).map(|(_, _, stamp)| stamp);
        !hidden
            && before == Some(stamp)
            && sent.get(*name) != Some(stamp)
            && !writing.contains(&(stamp.device, stamp.inode))
    };
    second.keys().filter(is_finished).cloned().collect()
}

/// Files that a process or one below it has open for writing, by device and number.
fn written_now(root: u32) -> BTreeSet<(u64, u64)> {
    let mut all = BTreeSet::new();
    let Ok(tree) = Tree::below(root) else {
        return all;
    };
    let below = tree
        .descendants(root)
        .into_iter()
        .map(|process| process.pid);
    for pid in below.chain([root]) {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in open.flatten() {
            let number = entry.file_name();
            let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
            let Ok(info) = fs::read_to_string(info) else {
                continue;
            };
            if !is_for_writing(&info) {
                continue;
            }
            if let Ok(about) = fs::metadata(entry.path()) {
                all.insert((about.dev(), about.ino()));
            }
        }
    }
    all
}

/// Whether the flags in a file of `/proc/…/fdinfo` say that it can be written through.
fn is_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(files: &[(&str, u64, i128)]) -> Look {
        let one = |(name, inode, changed_ns): &(&str, u64, i128)| {
            let stamp = Stamp {
                device: 1,
                inode: *inode,
                bytes: 10,
                changed_ns: *changed_ns,
            };
            (name.to_string(), (PathBuf::from(name), 0o644, stamp))
        };
        files.iter().map(one).collect()
    }

    #[test]
    fn only_new_files_that_nobody_changes_are_finished() {
        let first = look(&[("a", 1, 5), ("b", 2, 5), ("c", 3, 5), (".tmp", 5, 5)]);
        let second = look(&[
            ("a", 1, 5),
            ("b", 2, 6),
            ("c", 3, 5),
            ("d", 4, 5),
            (".tmp", 5, 5),
        ]);
        let none = BTreeSet::new();
        let sent = BTreeMap::new();
        assert_eq!(finished(&first, &second, &sent, &none), ["a", "c"]);
        let open = BTreeSet::from([(1, 3)]);
        assert_eq!(finished(&first, &second, &sent, &open), ["a"]);
        let sent = BTreeMap::from([("a".to_owned(), second["a"].2)]);
        assert_eq!(finished(&first, &second, &sent, &none), ["c"]);
        let later = look(&[("a", 1, 9)]);
        assert_eq!(finished(&later, &later, &sent, &none), ["a"]);
    }

    #[test]
    fn a_file_that_is_open_for_writing_is_known_by_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let (read, written) = (dir.path().join("read"), dir.path().join("written"));
        fs::write(&read, "x").unwrap();
        let _one = File::open(&read).unwrap();
        let _two = File::create(&written).unwrap();
        let number = |path: &Path| {
            let about = fs::metadata(path).unwrap();
            (about.dev(), about.ino())
        };
        let all = written_now(std::process::id());
        assert!(all.contains(&number(&written)));
        assert!(!all.contains(&number(&read)));
        assert!(is_for_writing("pos:\t0\nflags:\t0100002\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t0100000\n"));
        assert!(!is_for_writing("nonsense"));
    }
}
