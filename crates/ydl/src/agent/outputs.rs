//! Copies a program's outputs to their destinations.
//!
//! A file appears at its destination complete or not at all: it is written to a temporary name, synced and renamed. An
//! error does not stop the other copies, so that one bad link does not cost the model.

mod atomic_write;
mod collect;
mod continuous;
mod local;
mod paths;
mod reservations;
mod restore;
mod suspect;
mod target;
mod upload;

pub(super) use continuous::{ContinuousUpload, ProgramPhase};
pub use local::aside_of;
pub(super) use local::{LocalCopy, TakenNames, taken_here};
pub(super) use reservations::{ReservationStore, Reservations};
pub(super) use restore::Restore;
pub(super) use suspect::{UploadLog, is_in_order};
pub(super) use upload::send;

use atomic_write::{aside, copy_atomic, sync_dir_of, write_aside};
use continuous::is_hidden;
use paths::{nearest_real, normal, relative};
use reservations::theirs;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use suspect::FileStamp;
use ydl_core::spec::ExistingPolicy;

use ydl_os::reason;
use ydl_storage::data::{pattern::fits, remove_abandoned};

/// Deeper than any sensible directory, and shallow enough for the stack.
const DEPTH_MAX: usize = 100;
/// Maximum number of errors listed; further ones are counted.
const FAILURES_MAX: usize = 16;

/// Result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    pub bytes: u64,
    /// Sources that do not exist.
    pub absent: Vec<String>,
}

/// Error of a copy that was not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputError {
    /// One sentence each, never empty.
    pub failures: Vec<String>,
    /// Number of errors not listed.
    pub more: u64,
    /// Files copied nevertheless.
    pub copied: Copied,
}

impl fmt::Display for OutputError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.failures.first().map_or("", String::as_str))?;
        match self.failures.len() as u64 + self.more {
            0 | 1 => Ok(()),
            all => write!(out, " (and {} more)", all - 1),
        }
    }
}

impl std::error::Error for OutputError {}

impl OutputError {
    fn new(mut failures: Vec<String>, copied: Copied) -> OutputError {
        let more = failures.len().saturating_sub(FAILURES_MAX) as u64;
        failures.truncate(FAILURES_MAX);
        OutputError { failures, more, copied }
    }
}

/// Copies each `from`, relative to `work_dir`, to its `to`. Blocks: call it from a blocking thread.
///
/// `from` is a file, a directory, whose content is merged into `to`, or a pattern with `*` in its last
/// part, whose matches go into the directory `to`. A file becomes `to` itself, unless `to` is a
/// directory or ends with a slash.
pub fn copy(work_dir: &Path, outputs: &[(String, PathBuf)]) -> Result<Copied, OutputError> {
    let near = |(from, to): &(String, PathBuf)| LocalCopy {
        from: from.clone(),
        to: to.clone(),
        existing: ExistingPolicy::Overwrite,
        kept: false,
        shared: false,
    };
    let all: Vec<_> = outputs.iter().map(|one| (near(one), TakenNames::new())).collect();
    copy_rest(work_dir, &all, &UploadLog::default())
}

/// Like [`copy`], without files already uploaded or written by other tasks. A file that may be torn never replaces
/// another.
pub(super) fn copy_rest(
    work_dir: &Path,
    outputs: &[(LocalCopy, TakenNames)],
    sent: &UploadLog,
) -> Result<Copied, OutputError> {
    let mut copier = LocalCopier { sent: sent.clone(), ..LocalCopier::default() };
    match work_dir.canonicalize() {
        Ok(work_dir) => {
            for (output, taken) in outputs {
                copier.hides = output.kept;
                copier.taken = taken.clone();
                copier.copy_output(&work_dir, output);
            }
        }
        Err(error) => {
            copier.fail(format!("cannot copy from `{}`: {}", work_dir.display(), reason(&error)));
        }
    }
    let LocalCopier { copied, failures, more, .. } = copier;
    if failures.is_empty() { Ok(copied) } else { Err(OutputError { failures, more, copied }) }
}

#[derive(Debug, Default)]
struct LocalCopier {
    copied: Copied,
    failures: Vec<String>,
    more: u64,
    sent: UploadLog,
    /// Skips names that begin with a dot.
    hides: bool,
    /// Directories already cleaned of abandoned temporary files.
    swept: BTreeSet<PathBuf>,
    /// Names below `base` that other tasks have written.
    taken: TakenNames,
    /// Directory that is written to: the destination, or its temporary name.
    base: PathBuf,
    becomes: Option<PathBuf>,
    /// Set if the disk failed, not only one file.
    broken: bool,
}

impl LocalCopier {
    fn fail(&mut self, sentence: String) {
        // The temporary name means nothing to the user.
        let sentence = match &self.becomes {
            Some(to) => sentence.replace(&*self.base.to_string_lossy(), &to.to_string_lossy()),
            None => sentence,
        };
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(sentence);
        } else {
            self.more += 1;
        }
    }

    fn copy_output(&mut self, work_dir: &Path, output: &LocalCopy) {
        let (from, to) = (output.from.as_str(), output.to.as_path());
        let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if from.is_empty() || !Path::new(from).components().all(plain) {
            return self.fail(format!(
                "cannot copy the output `{from}`: it is not a path inside the working directory"
            ));
        }
        let source = work_dir.join(from);
        let pattern = Path::new(from).file_name().filter(|name| name.as_bytes().contains(&b'*'));
        let is_dir = pattern.is_some() || source.is_dir();
        let is_new = to.symlink_metadata().is_err();
        if !is_dir || !is_new {
            self.base = to.to_owned();
            self.becomes = None;
            return self.copy_found(work_dir, from, pattern.map(Path::new), to);
        }
        // A new directory gets its name when it is complete.
        if let Some(dir) = to.parent() {
            if let Err(error) = fs::create_dir_all(dir) {
                return self.fail(failure(&source, to, &error));
            }
            remove_abandoned(dir);
        }
        let aside = aside(to);
        self.base = aside.clone();
        self.becomes = Some(to.to_owned());
        self.broken = false;
        let before = (self.copied.files, self.copied.bytes);
        self.copy_found(work_dir, from, pattern.map(Path::new), &aside);
        if aside.symlink_metadata().is_ok() {
            let named = match self.broken {
                true => false,
                false => match give_name(&aside, to) {
                    Ok(()) => true,
                    Err(error) => {
                        self.fail(failure(&source, to, &error));
                        false
                    }
                },
            };
            if !named {
                (self.copied.files, self.copied.bytes) = before;
            }
            // Fails if the rename has succeeded.
            let _ = fs::remove_dir_all(&aside);
            sync_dir_of(to);
        }
    }

    /// Copies the sources of an output to `to` itself or into it.
    fn copy_found(&mut self, work_dir: &Path, from: &str, pattern: Option<&Path>, to: &Path) {
        let source = work_dir.join(from);
        let Some(pattern) = pattern else {
            return match self.copy_named(work_dir, &source, to) {
                Ok(true) => {}
                Ok(false) => self.copied.absent.push(from.to_owned()),
                Err(sentence) => self.fail(sentence),
            };
        };
        let pattern = pattern.as_os_str().as_bytes();
        let mut matched = false;
        let names = source.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten();
        for name in names.flatten().map(|entry| entry.file_name()) {
            if fits(pattern, name.as_bytes()) {
                matched = true;
                let outcome =
                    self.copy_named(work_dir, &source.with_file_name(&name), &to.join(&name));
                outcome.map_or_else(|sentence| self.fail(sentence), drop);
            }
        }
        if !matched {
            self.copied.absent.push(from.to_owned());
        }
    }

    /// Rejects a name that another task has written.
    fn is_free(&self, from: &Path, to: &Path) -> Result<(), String> {
        let name = to.strip_prefix(&self.base).ok();
        // A single file takes the name of its destination.
        let name = match name {
            Some(name) if name.as_os_str().is_empty() => from.file_name().map(Path::new),
            name => name,
        };
        match name.and_then(|name| self.taken.get(&*name.to_string_lossy())) {
            Some(who) => Err(failure_of(from, &theirs(who))),
            None => Ok(()),
        }
    }

    /// Copies one named source. It may be a link, if that stays in the working directory. Returns false if it does not
    /// exist.
    fn copy_named(&mut self, work_dir: &Path, source: &Path, to: &Path) -> Result<bool, String> {
        let real = match source.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failure(source, to, &error)),
        };
        if !real.starts_with(work_dir) {
            return Err(outside(source, &real));
        }
        let metadata = real.metadata().map_err(|error| failure(source, to, &error))?;
        if metadata.is_dir() {
            let target = nearest_real(to);
            if target.starts_with(&real) {
                return Err(format!(
                    "cannot copy `{}` to `{}`: one contains the other",
                    source.display(),
                    to.display()
                ));
            }
            self.copy_dir(&real, &real, &metadata, to, 0);
            return Ok(true);
        }
        let slash = to.as_os_str().as_bytes().ends_with(b"/");
        let target = match source.file_name() {
            Some(name) if slash || to.is_dir() => to.join(name),
            _ => to.to_owned(),
        };
        if let Some(dir) = target.parent() {
            fs::create_dir_all(dir).map_err(|error| failure(source, &target, &error))?;
        }
        self.copy_file(&real, &metadata, &target)?;
        sync_dir_of(&target);
        Ok(true)
    }

    fn copy_dir(&mut self, root: &Path, dir: &Path, metadata: &Metadata, to: &Path, depth: usize) {
        if depth > DEPTH_MAX {
            return self.fail(format!("cannot copy `{}`: it is nested too deeply", dir.display()));
        }
        let is_new = !to.is_dir();
        let names = fs::create_dir_all(to).and_then(|()| fs::read_dir(dir));
        let names = match names {
            Ok(names) => names,
            Err(error) => return self.fail(failure(dir, to, &error)),
        };
        for name in names {
            let outcome = match name {
                Ok(name) if self.hides && is_hidden(&name.file_name().to_string_lossy()) => Ok(()),
                Ok(name) => self.copy_entry(root, &name.path(), &to.join(name.file_name()), depth),
                Err(error) => Err(failure(dir, to, &error)),
            };
            outcome.unwrap_or_else(|sentence| self.fail(sentence));
        }
        if is_new {
            // Set last, since a directory may be read-only; its owner keeps the right to write.
            let mode = metadata.permissions().mode() & 0o777 | 0o700;
            if let Err(error) = fs::set_permissions(to, fs::Permissions::from_mode(mode)) {
                self.fail(failure(dir, to, &error));
            }
        }
        sync_dir_of(&to.join("any"));
    }

    fn copy_entry(
        &mut self,
        root: &Path,
        from: &Path,
        to: &Path,
        depth: usize,
    ) -> Result<(), String> {
        let metadata = from.symlink_metadata().map_err(|error| failure(from, to, &error))?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            self.copy_link(root, from, to, depth)
        } else if kind.is_dir() {
            self.copy_dir(root, from, &metadata, to, depth + 1);
            Ok(())
        } else {
            self.copy_file(from, &metadata, to)
        }
    }

    /// Copies a link that points into the output; it then points to the copy.
    fn copy_link(
        &mut self,
        root: &Path,
        from: &Path,
        to: &Path,
        depth: usize,
    ) -> Result<(), String> {
        let target = fs::read_link(from).map_err(|error| failure(from, to, &error))?;
        let dir = from.parent().unwrap_or(root);
        let real = normal(&dir.join(&target));
        // Checked lexically, and through all other links on the way if it exists.
        let stays = |path: &Path| path.starts_with(root);
        if !stays(&real) || !dir.join(&target).canonicalize().map_or(true, |real| stays(&real)) {
            return Err(outside(from, &target));
        }
        // A continuous upload has copied the link's target: the directory stays one.
        if let (true, Ok(metadata)) = (is_own_dir(to), from.metadata())
            && metadata.is_dir()
        {
            self.copy_dir(root, &real, &metadata, to, depth + 1);
            return Ok(());
        }
        self.is_free(from, to)?;
        let link = if target.is_absolute() { relative(dir, &real) } else { target };
        let aside = aside(to);
        write_aside(&aside, to, || std::os::unix::fs::symlink(link, &aside))
            .map_err(|error| failure(from, to, &error))?;
        self.copied.files += 1;
        Ok(())
    }

    fn copy_file(&mut self, from: &Path, metadata: &Metadata, to: &Path) -> Result<(), String> {
        // A pipe would block, a device might never end.
        if !metadata.is_file() {
            return Err(format!("cannot copy `{}`: it is not a regular file", from.display()));
        }
        if to.is_dir() {
            let (from, to) = (from.display(), to.display());
            return Err(format!("cannot copy `{from}` to `{to}`: a directory is there"));
        }
        self.is_free(from, to)?;
        let (stamp, target) = (FileStamp::of(metadata), to.to_string_lossy().into_owned());
        if let Ok(there) = fs::metadata(to) {
            if self.sent.has(&target, &stamp) && there.len() == stamp.bytes {
                return Ok(());
            }
            if self.sent.may_be_torn(&stamp) {
                let from = from.display();
                tracing::warn!("`{from}` may be half-written; keeping the existing `{target}`");
                return Ok(());
            }
        }
        if let Some(dir) = to.parent()
            && self.swept.insert(dir.to_owned())
        {
            remove_abandoned(dir);
        }
        let mode = metadata.permissions().mode() & 0o777;
        let source = File::open(from);
        let written = source.and_then(|source| copy_atomic(source, mode, to, |_| true));
        self.broken |= written.is_err();
        let bytes = written.map_err(|error| failure(from, to, &error))?;
        self.copied.files += 1;
        self.copied.bytes += bytes;
        Ok(())
    }
}

/// Renames a temporary file. If another task created the directory first, the files are merged into it.
fn give_name(aside: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(aside, to) {
        Ok(()) => Ok(()),
        Err(_) if to.is_dir() && is_own_dir(aside) => {
            for entry in fs::read_dir(aside)? {
                let entry = entry?;
                give_name(&entry.path(), &to.join(entry.file_name()))?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Returns true for a directory, not for a link to one.
fn is_own_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_dir())
}

fn failure(from: &Path, to: &Path, error: &io::Error) -> String {
    format!("cannot copy `{}` to `{}`: {}", from.display(), to.display(), reason(error))
}

fn failure_of(from: &Path, why: &str) -> String {
    format!("cannot copy `{}`: {why}", from.display())
}

fn outside(link: &Path, target: &Path) -> String {
    format!(
        "cannot copy the link `{}`: it points outside, to `{}`",
        link.display(),
        target.display()
    )
}

#[cfg(test)]
mod tests;
