//! Collects the files of an output before the upload.
//!
//! For a local disk, links inside the output stay links. HDFS has none, so each becomes its target.

use super::{
    paths::{nearest_real, normal, relative},
    upload_log::FileStamp,
};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use ydl_os::reason;
use ydl_storage::data::pattern::fits;

/// Maximum number of files and directories of one output in HDFS; larger outputs need an archive.
const ENTRIES_MAX: usize = 100_000;
/// Deeper than any sensible directory, and shallow enough for the stack.
const DEPTH_MAX: usize = 100;

/// Files of one output.
#[derive(Debug, Default)]
pub(super) struct OutputFiles {
    /// Set for a single file, which may take its destination's name.
    pub single: bool,
    /// Permission bits of the source, if it is one directory.
    pub mode: Option<u32>,
    /// Directories relative to the destination, parents first.
    pub dirs: Vec<(String, u32)>,
    pub files: Vec<OutputFile>,
    /// Errors, one sentence each.
    pub failures: Vec<String>,
    keeps_links: bool,
    skips_hidden: bool,
}

#[derive(Clone, Debug)]
pub(super) struct OutputFile {
    pub from: PathBuf,
    /// Name relative to the destination.
    pub name: String,
    pub mode: u32,
    pub stamp: FileStamp,
    pub link: Option<OutputLink>,
}

/// Link inside an output.
#[derive(Clone, Debug)]
pub(super) struct OutputLink {
    pub target: PathBuf,
    /// Directory that it does not leave.
    root: PathBuf,
}

/// Collects the files that `from` matches below `work_dir`, a canonical path. Returns none if nothing exists. With
/// `skips_hidden`, directories are searched without names that begin with a dot. `to` is the destination if that is on a
/// local disk and links are to be kept.
pub(super) fn gather(
    work_dir: &Path,
    from: &str,
    to: Option<&Path>,
    skips_hidden: bool,
) -> Result<Option<OutputFiles>, String> {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if from.is_empty() || !Path::new(from).components().all(plain) {
        return Err(format!(
            "cannot copy the output `{from}`: it is not a path inside the working directory"
        ));
    }
    let source = work_dir.join(from);
    let pattern = Path::new(from).file_name().filter(|name| name.as_bytes().contains(&b'*'));
    let keeps_links = to.is_some();
    let mut found = OutputFiles { keeps_links, skips_hidden, ..OutputFiles::default() };
    let Some(pattern) = pattern else {
        let Some(real) = real_path(work_dir, &source, to)? else {
            return Ok(None);
        };
        found.single = real.is_file();
        let name = match found.single {
            true => text(source.file_name().map(Path::new).unwrap_or(&source))?,
            false => String::new(),
        };
        found.add(&real, &real, &name, 0);
        return Ok(Some(found));
    };
    let names = source.parent().and_then(|dir| fs::read_dir(dir).ok());
    let names = names.into_iter().flatten().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.retain(|name| fits(pattern.as_bytes(), name.as_bytes()));
    names.sort();
    for name in &names {
        let path = source.with_file_name(name);
        let to = to.map(|to| to.join(name));
        match (real_path(work_dir, &path, to.as_deref()), text(Path::new(name))) {
            (Ok(Some(real)), Ok(name)) => found.add(&real, &real, &name, 0),
            (Ok(None), _) => {}
            (Err(sentence), _) | (_, Err(sentence)) => found.failures.push(sentence),
        }
    }
    Ok((!names.is_empty()).then_some(found))
}

/// Resolves a named source. It may be a link, if that stays in the working directory.
fn real_path(work_dir: &Path, source: &Path, to: Option<&Path>) -> Result<Option<PathBuf>, String> {
    match source.canonicalize() {
        Ok(real) if !real.starts_with(work_dir) => Err(outside(source, &real)),
        Ok(real) => match to {
            Some(to) if real.is_dir() && nearest_real(to).starts_with(&real) => Err(format!(
                "cannot copy `{}` to `{}`: one contains the other",
                source.display(),
                to.display()
            )),
            _ => Ok(Some(real)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure_of(source, &reason(&error))),
    }
}

fn text(name: &Path) -> Result<String, String> {
    let text = name.to_str().map(str::to_owned);
    text.ok_or_else(|| failure_of(name, "its name is not UTF-8"))
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

/// Returns true for a name reserved for the program: one with a leading dot.
pub(super) fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('.'))
}

impl OutputFiles {
    /// Replaces a link to a directory by the files in that.
    pub(super) fn follow(&mut self, name: &str) {
        let is_named = |file: &OutputFile| file.name == name;
        let Some(at) = self.files.iter().position(is_named) else {
            return;
        };
        let OutputFile { from, link, .. } = self.files.remove(at);
        if let (Some(link), Ok(real)) = (link, from.canonicalize()) {
            self.add(&link.root, &real, name, name.split('/').count());
        }
    }

    /// Adds the file or directory `path` below the named directory `root`.
    fn add(&mut self, root: &Path, path: &Path, name: &str, depth: usize) {
        if let Err(sentence) = self.try_add(root, path, name, depth) {
            self.failures.push(sentence);
        }
    }

    fn try_add(
        &mut self,
        root: &Path,
        path: &Path,
        name: &str,
        depth: usize,
    ) -> Result<(), String> {
        let failed = |error: io::Error| failure_of(path, &reason(&error));
        let mut real = path.to_owned();
        let own = path.symlink_metadata().map_err(failed)?;
        if own.is_symlink() && self.keeps_links {
            let (from, target) = (path.to_owned(), inner_target(root, path)?);
            let link = Some(OutputLink { target, root: root.to_owned() });
            let (name, stamp) = (name.to_owned(), FileStamp::of(&own));
            self.files.push(OutputFile { from, name, mode: 0o777, stamp, link });
            return Ok(());
        }
        if own.is_symlink() {
            match path.canonicalize() {
                Ok(target) if !target.starts_with(root) => return Err(outside(path, &target)),
                Ok(target) if path.starts_with(&target) => {
                    return Err(failure_of(path, "it is a link to a directory that contains it"));
                }
                Ok(target) => real = target,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!("skipping the dangling link `{}`", path.display());
                    return Ok(());
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let too_many = !self.keeps_links && self.files.len() + self.dirs.len() > ENTRIES_MAX;
        if depth > DEPTH_MAX || too_many {
            return Err(failure_of(path, "it is nested too deeply or has too many files"));
        }
        let about = real.metadata().map_err(failed)?;
        let mode = about.permissions().mode() & 0o777;
        if about.is_file() {
            let (name, stamp) = (name.to_owned(), FileStamp::found(&real).map_err(failed)?);
            self.files.push(OutputFile { from: real, name, mode, stamp, link: None });
            return Ok(());
        }
        if !about.is_dir() {
            return Err(failure_of(path, "it is not a regular file"));
        }
        // A directory may be read-only; its owner keeps the right to write.
        match name.is_empty() {
            true => self.mode = Some(mode | 0o700),
            false => self.dirs.push((name.to_owned(), mode | 0o700)),
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(&real).map_err(failed)? {
            entries.push(entry.map_err(failed)?.file_name());
        }
        entries.retain(|entry| !self.skips_hidden || !entry.as_bytes().starts_with(b"."));
        entries.sort();
        for entry in entries {
            let path = real.join(&entry);
            match text(Path::new(&entry)) {
                Ok(entry) if name.is_empty() => self.add(root, &path, &entry, depth + 1),
                Ok(entry) => self.add(root, &path, &format!("{name}/{entry}"), depth + 1),
                Err(sentence) => self.failures.push(sentence),
            }
        }
        Ok(())
    }
}

/// Returns the target of the copy of a link that stays below `root`: the copy of its target.
fn inner_target(root: &Path, path: &Path) -> Result<PathBuf, String> {
    let target = fs::read_link(path).map_err(|error| failure_of(path, &reason(&error)))?;
    let dir = path.parent().unwrap_or(root);
    let real = normal(&dir.join(&target));
    // Checked lexically, and through all other links on the way if it exists.
    let stays = |path: &Path| path.starts_with(root);
    if !stays(&real) || !dir.join(&target).canonicalize().map_or(true, |real| stays(&real)) {
        return Err(outside(path, &target));
    }
    Ok(if target.is_absolute() { relative(dir, &real) } else { target })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn place(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let work = dir.path().canonicalize().unwrap();
        (dir, work)
    }

    fn names(found: &OutputFiles) -> Vec<&str> {
        found.files.iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn files_directories_and_patterns_are_collected() {
        let (_dir, work) = place(&["m/a", "m/deep/b", "x-1", "x-2", ".x-3"]);
        let found = gather(&work, "m/", None, false).unwrap().unwrap();
        assert!(!found.single);
        assert_eq!(names(&found), ["a", "deep/b"]);
        assert_eq!(found.dirs.len(), 1);
        let found = gather(&work, "./x-1", None, false).unwrap().unwrap();
        assert!(found.single);
        assert_eq!(names(&found), ["x-1"]);
        let found = gather(&work, "x-*", None, false).unwrap().unwrap();
        assert!(!found.single);
        assert_eq!(names(&found), ["x-1", "x-2"]);
        let found = gather(&work, "*", None, false).unwrap().unwrap();
        assert_eq!(names(&found), ["m/a", "m/deep/b", "x-1", "x-2"]);
        assert!(gather(&work, "none", None, false).unwrap().is_none());
        assert!(gather(&work, "none-*", None, false).unwrap().is_none());
        for from in ["/etc/passwd", "../secret", "a/../../b", "", "../*"] {
            let error = gather(&work, from, None, false).unwrap_err();
            assert!(error.ends_with("inside the working directory"), "{error}");
        }
    }

    #[test]
    fn links_become_their_targets_and_never_escape() {
        let (_dir, work) = place(&["m/step-7/w", "secret"]);
        let m = work.join("m");
        symlink("step-7", m.join("latest")).unwrap();
        symlink("step-7/w", m.join("best")).unwrap();
        symlink("nowhere", m.join("dangling")).unwrap();
        symlink("../secret", m.join("up")).unwrap();
        symlink("..", m.join("step-7/round")).unwrap();
        let found = gather(&work, "m", None, false).unwrap().unwrap();
        assert_eq!(names(&found), ["best", "latest/w", "step-7/w"]);
        let of = |end: &str| found.failures.iter().filter(|one| one.contains(end)).count();
        assert_eq!(of("m/up`: it points outside"), 1, "{:?}", found.failures);
        assert_eq!(of("it is a link to a directory that contains it"), 2, "{:?}", found.failures);
    }

    #[test]
    fn special_files_are_reported_and_the_rest_is_collected() {
        let (_dir, work) = place(&["m/a"]);
        let kind = rustix::fs::FileType::Fifo;
        let pipe = work.join("m/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        let found = gather(&work, "m", None, false).unwrap().unwrap();
        assert_eq!(names(&found), ["a"]);
        assert!(found.failures[0].ends_with("it is not a regular file"));
    }
}
