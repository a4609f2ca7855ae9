//! What was sent already, and what may be half-written: by this no file is sent twice, and a torn one never takes the place
//! of a whole one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ydl_os::{proc_tree::Tree, reason};

/// What a program that did not end in order has changed so shortly before may be half-written. Its end is heard of a
/// moment after it.
const TORN: Duration = Duration::from_secs(5);
/// Where nobody can see whether a file is open, it is finished when it has not changed for so long.
const UNSEEN: Duration = Duration::from_secs(30);
/// So many ends of programs in one container are remembered.
const SUSPECTS_MAX: usize = 64;

/// A file on its disk: device and number.
pub(super) type FileId = (u64, u64);

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) number: FileId,
    pub(super) bytes: u64,
    pub(super) changed_ns: i128,
    /// Whether it has got its name after its last change: then it was finished by then.
    pub(super) named: bool,
    /// Whether that is likely, as far as the system's clock can tell.
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

    /// The file of that name. One may be written and renamed within one tick of the system's clock, so that both times are
    /// the same; then its directory was changed in that very tick, too. But that may have been for another file: it is good
    /// enough for a file that nobody has open, and not for what a killed program has left.
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

    /// Opens the file of that name, if this is its stamp. Whatever gets the name afterwards, what is read is what was
    /// looked at.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        // Somebody may have put a pipe there, which would not open before anybody writes to it.
        let wait_for_nobody = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut options = File::options();
        let file = options.read(true).custom_flags(wait_for_nobody).open(path)?;
        match self.is_of(&file) {
            true => Ok(file),
            false => Err(io::Error::other("it changed before it was sent")),
        }
    }

    /// Whether it is the stamp of a file that is open.
    pub(super) fn is_of(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|about| FileStamp::of(&about).is_same(self))
    }

    /// Whether a file has the same content, whatever it is called by now.
    pub(super) fn is_same(&self, other: &FileStamp) -> bool {
        self.number == other.number
            && self.bytes == other.bytes
            && self.changed_ns == other.changed_ns
    }
}

/// Which files a program that has ended out of order may have left half-written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SuspectFiles {
    /// When it ended: what was changed later was changed by another.
    ended_ns: i128,
    /// What was open for writing when it was killed, or when it was last looked at.
    open: BTreeSet<FileId>,
}

impl SuspectFiles {
    fn is_about(&self, stamp: &FileStamp) -> bool {
        let late = stamp.changed_ns >= self.ended_ns - TORN.as_nanos() as i128;
        let open = self.open.contains(&stamp.number);
        stamp.changed_ns <= self.ended_ns && (open || (late && !stamp.named))
    }
}

/// Whether a program that was asked to stop or not has ended in order: with success, or, when it was asked, with a code that
/// is its own and not a signal's.
pub(in crate::agent) fn is_in_order(code: Option<i32>, asked: bool) -> bool {
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

/// What a file was when it was the same here and at its destination.
#[derive(Clone, Copy, Debug)]
struct UploadedFile {
    here: FileStamp,
    /// When it was changed there, if it was brought from there: then it is another's, who may have replaced it since.
    brought_ms: Option<u64>,
}

/// What a container has sent, for all who send from it.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct UploadLog(Arc<Mutex<UploadState>>);

#[derive(Debug, Default)]
struct UploadState {
    /// What is at a destination.
    sent: BTreeMap<String, UploadedFile>,
    /// What was open for writing at the last look.
    open: BTreeSet<FileId>,
    /// The keeper's process where it is not below this one.
    outside: Option<u32>,
    /// Of programs that ended out of order, the oldest first.
    doubts: VecDeque<SuspectFiles>,
}

impl UploadLog {
    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this very state of a file was sent there.
    pub(super) fn has(&self, target: &str, stamp: &FileStamp) -> bool {
        let state = self.lock();
        let there = state.sent.get(target);
        there.is_some_and(|there| there.here.is_same(stamp))
    }

    pub(super) fn note(&self, target: String, stamp: FileStamp) {
        let (here, brought_ms) = (stamp, None);
        self.lock().sent.insert(target, UploadedFile { here, brought_ms });
    }

    /// It was brought from there, where it was changed then.
    pub(super) fn brought(&self, target: String, stamp: FileStamp, modified_ms: u64) {
        let (here, brought_ms) = (stamp, Some(modified_ms));
        self.lock().sent.insert(target, UploadedFile { here, brought_ms });
    }

    /// Whether what is at a destination now, of so many bytes and changed then, is what is known of it; what was sent
    /// from here is.
    pub(super) fn knows(&self, target: &str, bytes: u64, modified_ms: u64) -> bool {
        let state = self.lock();
        let there = state.sent.get(target);
        there.is_some_and(|there| match there.brought_ms {
            Some(brought_ms) => there.here.bytes == bytes && brought_ms == modified_ms,
            None => true,
        })
    }

    /// What was sent to below that place, by its name there.
    pub(super) fn names_below(&self, base: &str) -> Vec<String> {
        let state = self.lock();
        let targets = state.sent.keys();
        let names = targets.filter_map(|target| target.strip_prefix(base)?.strip_prefix('/'));
        names.map(str::to_owned).collect()
    }

    /// It is not there any more.
    pub(super) fn forget(&self, target: &str) {
        self.lock().sent.remove(target);
    }

    /// Nothing of what is below that place is known.
    pub(super) fn forget_below(&self, base: &str) {
        for name in self.names_below(base) {
            self.forget(&format!("{base}/{name}"));
        }
    }

    /// Where else the program's processes are looked for.
    pub(in crate::agent) fn program(&self, outside: Option<u32>) {
        let mut state = self.lock();
        state.outside = outside;
        state.open.clear();
    }

    /// The program has ended then: in order, or with those files open.
    pub(in crate::agent) fn ended(&self, in_order: bool, at: SystemTime, open: BTreeSet<FileId>) {
        let mut state = self.lock();
        let mut all = std::mem::take(&mut state.open);
        if in_order {
            return;
        }
        all.extend(open);
        let (ended_ns, open) = (ns(at), all);
        state.doubts.push_back(SuspectFiles { ended_ns, open });
        if state.doubts.len() > SUSPECTS_MAX {
            state.doubts.pop_front();
        }
    }

    /// Whether a file may be half-written: then it replaces nothing.
    pub(super) fn may_be_torn(&self, stamp: &FileStamp) -> bool {
        self.lock().doubts.iter().any(|doubt| doubt.is_about(stamp))
    }

    /// What is open for writing now.
    pub(in crate::agent) fn look(&self) -> OpenFiles {
        let outside = self.lock().outside;
        let mut open = OpenFiles::default();
        for root in [Some(std::process::id()), outside].into_iter().flatten() {
            open.below(root);
        }
        self.lock().open = open.files.clone();
        open
    }
}

/// Files that are open for writing.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct OpenFiles {
    pub(in crate::agent) files: BTreeSet<FileId>,
    /// There are processes into which nobody may look.
    pub(super) blind: bool,
}

impl OpenFiles {
    /// Adds those of a process and of all below it.
    fn below(&mut self, root: u32) {
        let Ok(tree) = Tree::below(root) else {
            self.blind = true;
            return;
        };
        let below = tree.descendants(root).into_iter();
        for pid in below.map(|process| process.pid).chain([root]) {
            match fs::read_dir(format!("/proc/{pid}/fd")) {
                Ok(open) => self.add(pid, open),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::debug!("the files of process {pid} are not seen: {}", reason(&error));
                    self.blind = true;
                }
                // It is over.
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

    /// Whether somebody may be writing a file, as far as one can see.
    pub(super) fn may_hold(&self, stamp: &FileStamp) -> bool {
        let recent = || stamp.changed_ns > ns(SystemTime::now()) - UNSEEN.as_nanos() as i128;
        self.files.contains(&stamp.number) || (self.blind && recent())
    }
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

    fn stamp(path: &Path) -> FileStamp {
        FileStamp::of(&fs::metadata(path).unwrap())
    }

    #[test]
    fn a_file_that_is_open_for_writing_is_known_by_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let (read, written) = (dir.path().join("read"), dir.path().join("written"));
        fs::write(&read, "x").unwrap();
        let _one = File::open(&read).unwrap();
        let _two = File::create(&written).unwrap();
        let open = UploadLog::default().look();
        assert!(open.may_hold(&stamp(&written)));
        assert!(!open.may_hold(&stamp(&read)));
        assert!(is_for_writing("pos:\t0\nflags:\t0100002\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t0100000\n"));
        assert!(!is_for_writing("nonsense"));
    }

    #[test]
    fn a_program_outside_is_looked_into_and_where_nobody_may_look_a_file_must_rest() {
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
        open.below(child.id());
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
    fn only_what_was_changed_shortly_before_an_end_out_of_order_is_in_doubt() {
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
        let ended = |in_order, open: &[FileId]| {
            let sent = UploadLog::default();
            sent.ended(in_order, now, open.iter().copied().collect());
            sent
        };
        assert!(!ended(true, &[fresh.number]).may_be_torn(&at(0, false)));
        let killed = ended(false, &[]);
        assert!(killed.may_be_torn(&at(0, false)));
        assert!(!killed.may_be_torn(&at(0, true)), "it was renamed");
        assert!(!killed.may_be_torn(&at(-6, false)), "it was changed long before");
        assert!(!killed.may_be_torn(&at(60, false)), "another has changed it since");
        assert!(ended(false, &[fresh.number]).may_be_torn(&at(-6, false)));
        // What was open at the last look, and is torn for the next program, too.
        let sent = UploadLog::default();
        let file = File::options().append(true).open(&path).unwrap();
        sent.look();
        drop(file);
        sent.ended(false, now, BTreeSet::new());
        sent.program(None);
        sent.ended(true, now + Duration::from_secs(60), BTreeSet::new());
        assert!(sent.may_be_torn(&at(-6, false)));
    }

    #[test]
    fn a_file_that_was_written_and_renamed_within_a_tick_is_known_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (part, whole) = (dir.path().join("part"), dir.path().join("whole"));
        // Ticks are some milliseconds long: a few tries find one.
        let mut within_a_tick = 0;
        for _ in 0..200 {
            fs::write(&part, "x").unwrap();
            fs::rename(&part, &whole).unwrap();
            let stamp = FileStamp::found(&whole).unwrap();
            assert!(stamp.placed, "{stamp:?}");
            within_a_tick += u32::from(!stamp.named);
        }
        assert!(within_a_tick > 0, "no two things happen within a tick here");
        // One that is written where it is.
        fs::write(&whole, "xy").unwrap();
        while FileStamp::found(&whole).unwrap().placed {
            fs::write(&whole, "xyz").unwrap();
        }
    }

    #[test]
    fn what_was_brought_and_is_another_by_now_is_not_known_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latest");
        fs::write(&path, "four").unwrap();
        let (sent, target) = (UploadLog::default(), "hdfs://n/latest");
        assert!(!sent.knows(target, 4, 1000));
        sent.brought(target.to_owned(), stamp(&path), 1000);
        assert!(sent.has(target, &stamp(&path)));
        assert!(sent.knows(target, 4, 1000));
        assert!(!sent.knows(target, 4, 2000) && !sent.knows(target, 5, 1000));
        // What was sent from here has a time of its own there.
        sent.note(target.to_owned(), stamp(&path));
        assert!(sent.knows(target, 4, 2000));
    }

    #[test]
    fn an_end_is_in_order_with_success_or_when_it_was_asked_for_and_no_signal_has_ended_it() {
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
            assert_eq!(is_in_order(code, asked), expected, "{code:?} {asked}");
        }
    }
}
