//! Tracks which files were uploaded, and which may be half-written. No file is uploaded twice, and a torn file never
//! replaces a complete one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ydl_os::{proc_tree::Tree, reason};

/// Files changed this shortly before an abnormal exit may be half-written. The exit is observed a moment later.
const TORN: Duration = Duration::from_secs(5);
/// Without a view of open files, a file is complete when it has not changed for so long.
const UNSEEN: Duration = Duration::from_secs(30);
/// Maximum number of remembered exits in one container.
const SUSPECTS_MAX: usize = 64;

/// Identity of a file: device and inode.
pub(super) type FileId = (u64, u64);

/// Fingerprint of one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) number: FileId,
    pub(super) bytes: u64,
    pub(super) changed_ns: i128,
    /// Set if the file was renamed after its last change: it was complete by then.
    pub(super) named: bool,
    /// Set if it was probably renamed, given the resolution of the system's clock.
    pub(super) placed: bool,
}

impl FileStamp {
    pub(super) fn of(about: &Metadata) -> FileStamp {
        let changed_ns = ns_of(about.mtime(), about.mtime_nsec());
        FileStamp {
            number: (about.dev(), about.ino()),
            bytes: about.len(),
            changed_ns,
            named: ns_of(about.ctime(), about.ctime_nsec()) > changed_ns,
            placed: false,
        }
    }

    /// Reads the stamp of a path. A file may be written and renamed within one clock tick, so that both times are
    /// equal; then its directory changed in the same tick, too. That may have been for another file: it is sufficient
    /// for a file that is not open, but not for one left by a killed program.
    pub(super) fn found(path: &Path) -> io::Result<FileStamp> {
        let about = fs::metadata(path)?;
        let mut stamp = FileStamp::of(&about);
        let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
        let renamed = |folder: Metadata| {
            let at = ns_of(folder.mtime(), folder.mtime_nsec());
            at == stamp.changed_ns && at == ns_of(about.ctime(), about.ctime_nsec())
        };
        stamp.placed = stamp.named || folder.is_some_and(renamed);
        Ok(stamp)
    }

    /// Opens the file at that path if it matches this stamp. Later renames do not change what is read.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        // A pipe at that path would block until it has a writer.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut options = File::options();
        let file = options.read(true).custom_flags(nonblocking).open(path)?;
        match self.is_of(&file) {
            true => Ok(file),
            false => Err(io::Error::other("it changed before it was uploaded")),
        }
    }

    /// Returns true if an open file matches this stamp.
    pub(super) fn is_of(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|about| FileStamp::of(&about).is_same(self))
    }

    /// Returns true if both stamps mean the same content, regardless of the name.
    pub(super) fn is_same(&self, other: &FileStamp) -> bool {
        self.number == other.number
            && self.bytes == other.bytes
            && self.changed_ns == other.changed_ns
    }
}

/// Files that a program may have left half-written by an abnormal exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SuspectFiles {
    /// Time of the exit: later changes are another program's.
    ended_ns: i128,
    /// Files open for writing when it was killed, or at the latest scan.
    open: BTreeSet<FileId>,
}

impl SuspectFiles {
    fn is_about(&self, stamp: &FileStamp) -> bool {
        let late = stamp.changed_ns >= self.ended_ns - TORN.as_nanos() as i128;
        let open = self.open.contains(&stamp.number);
        stamp.changed_ns <= self.ended_ns && (open || (late && !stamp.named))
    }
}

/// Returns true for a clean exit: success, or after a stop request any exit code that no signal explains.
pub(in crate::agent) fn is_clean_exit(code: Option<i32>, asked: bool) -> bool {
    match code {
        Some(0) => true,
        Some(code) => asked && code <= 128,
        None => false,
    }
}

fn ns_of(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

fn ns(time: SystemTime) -> i128 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as i128
}

/// State of a file when it was equal here and at its destination.
#[derive(Clone, Copy, Debug)]
struct UploadedFile {
    here: FileStamp,
    /// Modification time there if it was downloaded: another task owns it then, and may have replaced it since.
    downloaded_ms: Option<u64>,
}

/// Upload state of a container, shared by all uploads.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct UploadLog(Arc<Mutex<UploadState>>);

#[derive(Debug, Default)]
struct UploadState {
    /// Known files at their destinations.
    files: BTreeMap<String, UploadedFile>,
    /// Files open for writing at the latest scan.
    open: BTreeSet<FileId>,
    /// Process of the shim if it is not a descendant of this process.
    outside: Option<u32>,
    /// Suspect files of abnormal exits, the oldest first.
    suspects: VecDeque<SuspectFiles>,
}

impl UploadLog {
    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if this state of a file was uploaded to that target.
    pub(super) fn has(&self, target: &str, stamp: &FileStamp) -> bool {
        let state = self.lock();
        let there = state.files.get(target);
        there.is_some_and(|there| there.here.is_same(stamp))
    }

    /// Records an upload.
    pub(super) fn record_upload(&self, target: String, stamp: FileStamp) {
        let (here, downloaded_ms) = (stamp, None);
        self.lock().files.insert(target, UploadedFile { here, downloaded_ms });
    }

    /// Records a download: the file was changed there at that time.
    pub(super) fn record_download(&self, target: String, stamp: FileStamp, modified_ms: u64) {
        let (here, downloaded_ms) = (stamp, Some(modified_ms));
        self.lock().files.insert(target, UploadedFile { here, downloaded_ms });
    }

    /// Returns true if the file at a destination, by size and modification time, is the known one. Uploaded files
    /// always are.
    pub(super) fn knows(&self, target: &str, bytes: u64, modified_ms: u64) -> bool {
        let state = self.lock();
        let there = state.files.get(target);
        there.is_some_and(|there| match there.downloaded_ms {
            Some(downloaded_ms) => there.here.bytes == bytes && downloaded_ms == modified_ms,
            None => true,
        })
    }

    /// Returns the relative names of files uploaded below that directory.
    pub(super) fn names_below(&self, base: &str) -> Vec<String> {
        let state = self.lock();
        let targets = state.files.keys();
        let names = targets.filter_map(|target| target.strip_prefix(base)?.strip_prefix('/'));
        names.map(str::to_owned).collect()
    }

    /// Forgets a file that is no longer there.
    pub(super) fn forget(&self, target: &str) {
        self.lock().files.remove(target);
    }

    /// Forgets all files below that directory.
    pub(super) fn forget_below(&self, base: &str) {
        for name in self.names_below(base) {
            self.forget(&format!("{base}/{name}"));
        }
    }

    /// Sets the root of the program's processes if it is not a descendant of this process, and forgets the last scan.
    pub(in crate::agent) fn set_outside_process(&self, outside: Option<u32>) {
        let mut state = self.lock();
        state.outside = outside;
        state.open.clear();
    }

    /// Records the exit of the program: clean, or with those files open.
    pub(in crate::agent) fn record_exit(
        &self,
        clean: bool,
        at: SystemTime,
        open: BTreeSet<FileId>,
    ) {
        let mut state = self.lock();
        let mut all = std::mem::take(&mut state.open);
        if clean {
            return;
        }
        all.extend(open);
        let (ended_ns, open) = (ns(at), all);
        state.suspects.push_back(SuspectFiles { ended_ns, open });
        if state.suspects.len() > SUSPECTS_MAX {
            state.suspects.pop_front();
        }
    }

    /// Returns true if a file may be half-written: it must not replace another.
    pub(super) fn may_be_torn(&self, stamp: &FileStamp) -> bool {
        self.lock().suspects.iter().any(|suspect| suspect.is_about(stamp))
    }

    /// Scans for files open for writing.
    pub(in crate::agent) fn scan_open_files(&self) -> OpenFiles {
        let outside = self.lock().outside;
        let mut open = OpenFiles::default();
        for root in [Some(std::process::id()), outside].into_iter().flatten() {
            open.add_tree(root);
        }
        self.lock().open = open.files.clone();
        open
    }
}

/// Files that are open for writing.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct OpenFiles {
    pub(in crate::agent) files: BTreeSet<FileId>,
    /// Set if some processes could not be inspected.
    pub(super) blind: bool,
}

impl OpenFiles {
    /// Adds the files of a process and all of its descendants.
    fn add_tree(&mut self, root: u32) {
        let Ok(tree) = Tree::below(root) else {
            self.blind = true;
            return;
        };
        let below = tree.descendants(root).into_iter();
        for pid in below.map(|process| process.pid).chain([root]) {
            match fs::read_dir(format!("/proc/{pid}/fd")) {
                Ok(open) => self.add(pid, open),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::debug!(
                        "cannot inspect the files of process {pid}: {}",
                        reason(&error)
                    );
                    self.blind = true;
                }
                // It has exited.
                Err(_) => {}
            }
        }
    }

    fn add(&mut self, pid: u32, open: fs::ReadDir) {
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
                self.files.insert((about.dev(), about.ino()));
            }
        }
    }

    /// Returns true if a process may be writing the file.
    pub(super) fn may_hold(&self, stamp: &FileStamp) -> bool {
        let recent = || stamp.changed_ns > ns(SystemTime::now()) - UNSEEN.as_nanos() as i128;
        self.files.contains(&stamp.number) || (self.blind && recent())
    }
}

/// Returns true if the flags in a `/proc/…/fdinfo` file allow writing.
fn is_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(path: &Path) -> FileStamp {
        FileStamp::of(&fs::metadata(path).unwrap())
    }

    #[test]
    fn a_file_open_for_writing_is_found_by_its_inode() {
        let dir = tempfile::tempdir().unwrap();
        let (read, written) = (dir.path().join("read"), dir.path().join("written"));
        fs::write(&read, "x").unwrap();
        let _one = File::open(&read).unwrap();
        let _two = File::create(&written).unwrap();
        let open = UploadLog::default().scan_open_files();
        assert!(open.may_hold(&stamp(&written)));
        assert!(!open.may_hold(&stamp(&read)));
        assert!(is_for_writing("pos:\t0\nflags:\t0100002\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t0100000\n"));
        assert!(!is_for_writing("nonsense"));
    }

    #[test]
    fn an_outside_program_is_inspected_and_a_blind_scan_waits_for_unchanged_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("written");
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exec 3> written; echo open; read x"])
            .current_dir(dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 5];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
        let mut open = OpenFiles::default();
        open.add_tree(child.id());
        assert!(open.may_hold(&stamp(&path)) && !open.blind);
        drop(child.stdin.take());
        child.wait().unwrap();
        let fresh = stamp(&path);
        let blind = OpenFiles { blind: true, ..OpenFiles::default() };
        assert!(blind.may_hold(&fresh));
        let rested = FileStamp { changed_ns: fresh.changed_ns - 31_000_000_000, ..fresh };
        assert!(!blind.may_hold(&rested));
    }

    #[test]
    fn only_files_changed_shortly_before_an_abnormal_exit_are_suspect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latest");
        fs::write(&path, "x").unwrap();
        let fresh = stamp(&path);
        let at = |changed_s: i128, named: bool| FileStamp {
            changed_ns: fresh.changed_ns + changed_s * 1_000_000_000,
            named,
            ..fresh
        };
        let now = SystemTime::now();
        let ended = |clean, open: &[FileId]| {
            let log = UploadLog::default();
            log.record_exit(clean, now, open.iter().copied().collect());
            log
        };
        assert!(!ended(true, &[fresh.number]).may_be_torn(&at(0, false)));
        let killed = ended(false, &[]);
        assert!(killed.may_be_torn(&at(0, false)));
        assert!(!killed.may_be_torn(&at(0, true)), "it was renamed");
        assert!(!killed.may_be_torn(&at(-6, false)), "it was changed long before");
        assert!(!killed.may_be_torn(&at(60, false)), "another has changed it since");
        assert!(ended(false, &[fresh.number]).may_be_torn(&at(-6, false)));
        // Open at the latest scan, and suspect for later programs, too.
        let log = UploadLog::default();
        let file = File::options().append(true).open(&path).unwrap();
        log.scan_open_files();
        drop(file);
        log.record_exit(false, now, BTreeSet::new());
        log.set_outside_process(None);
        log.record_exit(true, now + Duration::from_secs(60), BTreeSet::new());
        assert!(log.may_be_torn(&at(-6, false)));
    }

    #[test]
    fn a_file_written_and_renamed_within_one_tick_counts_as_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let (part, whole) = (dir.path().join("part"), dir.path().join("whole"));
        // Clock ticks take some milliseconds: a few tries hit one.
        let mut within_a_tick = 0;
        for _ in 0..200 {
            fs::write(&part, "x").unwrap();
            fs::rename(&part, &whole).unwrap();
            let stamp = FileStamp::found(&whole).unwrap();
            assert!(stamp.placed, "{stamp:?}");
            within_a_tick += u32::from(!stamp.named);
        }
        assert!(within_a_tick > 0, "no two things happen within a tick here");
        // A file written in place.
        fs::write(&whole, "xy").unwrap();
        while FileStamp::found(&whole).unwrap().placed {
            fs::write(&whole, "xyz").unwrap();
        }
    }

    #[test]
    fn a_downloaded_file_replaced_since_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latest");
        fs::write(&path, "four").unwrap();
        let (log, target) = (UploadLog::default(), "hdfs://n/latest");
        assert!(!log.knows(target, 4, 1000));
        log.record_download(target.to_owned(), stamp(&path), 1000);
        assert!(log.has(target, &stamp(&path)));
        assert!(log.knows(target, 4, 1000));
        assert!(!log.knows(target, 4, 2000) && !log.knows(target, 5, 1000));
        // An uploaded file has another time there.
        log.record_upload(target.to_owned(), stamp(&path));
        assert!(log.knows(target, 4, 2000));
    }

    #[test]
    fn an_exit_is_clean_with_success_or_when_requested_and_not_by_a_signal() {
        let ends = [
            (Some(0), false, true),
            (Some(0), true, true),
            (Some(1), false, false),
            (Some(1), true, true),
            (Some(143), true, false),
            (None, true, false),
            (None, false, false),
        ];
        for (code, asked, expected) in ends {
            assert_eq!(is_clean_exit(code, asked), expected, "{code:?} {asked}");
        }
    }
}
