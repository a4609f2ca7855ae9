//! Collects the files of an output before the upload. HDFS has no links, so each becomes its target.

use super::{DEPTH_MAX, failure_of, outside};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use ydl_os::reason;
use ydl_storage::data::pattern::fits;

/// Maximum number of files and directories of one output; larger outputs need an archive.
const ENTRIES_MAX: usize = 100_000;

/// Files of one output.
#[derive(Debug, Default)]
pub(super) struct OutputFiles {
    /// Set for a single file, which may take its destination's name.
    pub single: bool,
    /// Directories relative to the destination, parents first.
    pub dirs: Vec<(String, u32)>,
    pub files: Vec<OutputFile>,
    /// Errors, one sentence each.
    pub failures: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct OutputFile {
    pub from: PathBuf,
    /// Name relative to the destination.
    pub name: String,
    pub mode: u32,
}

/// Collects the files that `from` matches below `work_dir`, a canonical path. Returns none if nothing exists.
pub(super) fn gather(work_dir: &Path, from: &str) -> Result<Option<OutputFiles>, String> {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if from.is_empty() || !Path::new(from).components().all(plain) {
        return Err(format!(
            "cannot copy the output `{from}`: it is not a path inside the working directory"
        ));
    }
    let source = work_dir.join(from);
    let pattern = Path::new(from).file_name().filter(|name| name.as_bytes().contains(&b'*'));
    let mut found = OutputFiles::default();
    let Some(pattern) = pattern else {
        let Some(real) = real_path(work_dir, &source)? else {
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
        match (real_path(work_dir, &path), text(Path::new(name))) {
            (Ok(Some(real)), Ok(name)) => found.add(&real, &real, &name, 0),
            (Ok(None), _) => {}
            (Err(sentence), _) | (_, Err(sentence)) => found.failures.push(sentence),
        }
    }
    Ok((!names.is_empty()).then_some(found))
}

/// Resolves a named source. It may be a link, if that stays in the working directory.
fn real_path(work_dir: &Path, source: &Path) -> Result<Option<PathBuf>, String> {
    match source.canonicalize() {
        Ok(real) if real.starts_with(work_dir) => Ok(Some(real)),
        Ok(real) => Err(outside(source, &real)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure_of(source, &reason(&error))),
    }
}

fn text(name: &Path) -> Result<String, String> {
    let text = name.to_str().map(str::to_owned);
    text.ok_or_else(|| failure_of(name, "its name is not UTF-8"))
}

impl OutputFiles {
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
        if path.symlink_metadata().map_err(failed)?.is_symlink() {
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
        if depth > DEPTH_MAX || self.files.len() + self.dirs.len() > ENTRIES_MAX {
            return Err(failure_of(path, "it is nested too deeply or has too many files"));
        }
        let about = real.metadata().map_err(failed)?;
        let mode = about.permissions().mode() & 0o777;
        if about.is_file() {
            let name = name.to_owned();
            self.files.push(OutputFile { from: real, name, mode });
            return Ok(());
        }
        if !about.is_dir() {
            return Err(failure_of(path, "it is not a regular file"));
        }
        if !name.is_empty() {
            self.dirs.push((name.to_owned(), mode | 0o700));
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(&real).map_err(failed)? {
            entries.push(entry.map_err(failed)?.file_name());
        }
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
        let found = gather(&work, "m/").unwrap().unwrap();
        assert!(!found.single);
        assert_eq!(names(&found), ["a", "deep/b"]);
        assert_eq!(found.dirs.len(), 1);
        let found = gather(&work, "./x-1").unwrap().unwrap();
        assert!(found.single);
        assert_eq!(names(&found), ["x-1"]);
        let found = gather(&work, "x-*").unwrap().unwrap();
        assert!(!found.single);
        assert_eq!(names(&found), ["x-1", "x-2"]);
        let found = gather(&work, "*").unwrap().unwrap();
        assert_eq!(names(&found), ["m/a", "m/deep/b", "x-1", "x-2"]);
        assert!(gather(&work, "none").unwrap().is_none());
        assert!(gather(&work, "none-*").unwrap().is_none());
        for from in ["/etc/passwd", "../secret", "a/../../b", "", "../*"] {
            let error = gather(&work, from).unwrap_err();
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
        let found = gather(&work, "m").unwrap().unwrap();
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
        let found = gather(&work, "m").unwrap().unwrap();
        assert_eq!(names(&found), ["a"]);
        assert!(found.failures[0].ends_with("it is not a regular file"));
    }
}
