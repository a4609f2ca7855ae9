//! Creates the directory of a new local job: its name, its files and the submission.

use crate::{client::jobs::root, terminal};
use ring::rand::{SecureRandom, SystemRandom};
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use ydl_core::{JobSpec, spec::is_ignored};
use ydl_os::{private, reason, report::Report};
use ydl_proto::{
    files::{JobDir, JobTarget, LocalResources, SubmittedJob},
    version::write_json,
};

/// Size above which files are linked, because copying them would delay the job's start.
const COPY_BYTES_MAX: u64 = 256 << 20;
/// Maximum depth of a copied directory; limits the recursion.
const DEPTH_MAX: usize = 100;
/// Maximum number of random names tried. A collision has a probability of about one in a billion.
const TRIES_MAX: usize = 16;
/// Letters and digits that are not easily confused.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Creates the directory of a new job with everything that its master needs. Removes it on failure. Copying files may take
/// minutes; it ends soon after `stop` is set. `extra_files` are additional small files, by name.
pub(crate) fn create_job_dir(
    spec: JobSpec,
    resources: LocalResources,
    from: &Path,
    extra_files: &[(&'static str, Vec<u8>)],
    stop: &AtomicBool,
) -> Result<(JobDir, SubmittedJob), Report> {
    let dir = create_directory(&spec.name)?;
    let submitted = SubmittedJob {
        id: dir.id(),
        at: terminal::now(),
        from: from.to_path_buf(),
        spec,
        target: JobTarget::Local(resources),
    };
    let result = copy_files(&dir, &submitted.spec, stop)
        .and_then(|()| write_extra_files(&dir, extra_files))
        .and_then(|()| write_submitted(&dir, &submitted));
    if let Err(report) = result {
        // Report the first failure, not one of the cleanup.
        let _ = fs::remove_dir_all(dir.path());
        return Err(report);
    }
    Ok((dir, submitted))
}

fn create_directory(name: &str) -> Result<JobDir, Report> {
    let root = root()?;
    let failure = |path: &Path, error: &io::Error| {
        let hint = "make it writable, or set `XDG_STATE_HOME` to a directory that is";
        let what =
            format!("cannot create the job's directory in `{}`: {}", path.display(), reason(error));
        Report::internal(what).hint(hint)
    };
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder.recursive(true).create(&root).map_err(|error| failure(&root, &error))?;
    builder.recursive(false);
    for _ in 0..TRIES_MAX {
        let path = root.join(format!("{name}-{}", random_suffix()?));
        match builder.create(&path) {
            Ok(()) => return Ok(JobDir::at(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failure(&root, &error)),
        }
    }
    Err(Report::internal(format!("no free name was found in `{}`", root.display())))
}

fn random_suffix() -> Result<String, Report> {
    let mut random = [0; 6];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| Report::internal("the system has no random number generator"))?;
    let letter = |byte: &u8| ALPHABET[usize::from(*byte) % ALPHABET.len()] as char;
    Ok(random.iter().map(letter).collect())
}

fn copy_files(dir: &JobDir, spec: &JobSpec, stop: &AtomicBool) -> Result<(), Report> {
    let files = dir.files();
    fs::create_dir(&files).map_err(|error| cannot("create", &files, &error))?;
    for file in &spec.files {
        let source = Path::new(&file.source);
        let real = |path: &Path| path.canonicalize().ok();
        let paths = real(&files).zip(real(source));
        if paths.is_some_and(|(files, source)| files.starts_with(source)) {
            let what = format!("`{}` contains the directory of the job itself", file.source);
            return Err(Report::bad_input(what)
                .hint("name the files that the job needs instead of the whole directory"));
        }
        let copying = CopyRequest { root: source, ignore: &file.ignore, stop };
        copy(&copying, source, &files.join(&file.name), 0)
            .map_err(|(path, error)| cannot("copy", &path, &error))?;
    }
    Ok(())
}

/// File or directory to copy.
struct CopyRequest<'a> {
    root: &'a Path,
    /// Patterns of files that are left out.
    ignore: &'a [String],
    stop: &'a AtomicBool,
}

impl CopyRequest<'_> {
    fn ignores(&self, path: &Path) -> bool {
        let below = path.strip_prefix(self.root).unwrap_or(path);
        !self.ignore.is_empty() && is_ignored(self.ignore, &below.to_string_lossy(), path.is_dir())
    }
}

/// Copies a file or a whole directory. Links to files are followed, because their targets may change. Links to directories
/// stay links, because they may form a cycle.
fn copy(
    request: &CopyRequest<'_>,
    source: &Path,
    to: &Path,
    depth: usize,
) -> Result<(), (PathBuf, io::Error)> {
    let at = |error: io::Error| (source.to_path_buf(), error);
    if request.stop.load(Ordering::Relaxed) {
        return Err(at(io::Error::other("interrupted")));
    }
    let metadata = fs::metadata(source).map_err(at)?;
    if metadata.is_dir() {
        if depth > DEPTH_MAX {
            return Err(at(io::Error::other("the directory is nested too deeply")));
        }
        fs::create_dir(to).map_err(at)?;
        for entry in fs::read_dir(source).map_err(at)? {
            let entry = entry.map_err(at)?;
            let inner = entry.path();
            if request.ignores(&inner) {
                continue;
            }
            if inner.is_symlink() && !inner.is_file() {
                // A broken link is copied as it is.
                let target = inner.canonicalize().or_else(|_| fs::read_link(&inner));
                let target = target.map_err(at)?;
                symlink(target, to.join(entry.file_name())).map_err(at)?;
                continue;
            }
            copy(request, &inner, &to.join(entry.file_name()), depth + 1)?;
        }
    } else if !metadata.is_file() {
        // Skip sockets and pipes: they have no data, and reading them could block forever.
    } else if metadata.len() > COPY_BYTES_MAX {
        symlink(source.canonicalize().map_err(at)?, to).map_err(at)?;
    } else {
        fs::copy(source, to).map_err(at)?;
    }
    Ok(())
}

fn write_extra_files(dir: &JobDir, extra_files: &[(&'static str, Vec<u8>)]) -> Result<(), Report> {
    for (name, bytes) in extra_files {
        let path = dir.path().join(name);
        match name.ends_with(".secret") {
            true => {
                private::write(&path, bytes).map_err(|error| Report::internal(error.to_string()))?
            }
            false => fs::write(&path, bytes).map_err(|error| cannot("write", &path, &error))?,
        }
    }
    Ok(())
}

/// Writes the submission, as the last file: a directory without it is not listed as a job.
fn write_submitted(dir: &JobDir, submitted: &SubmittedJob) -> Result<(), Report> {
    let path = dir.submitted_file();
    write_json(&path, submitted).map_err(|error| cannot("write", &path, &error))
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Report {
    let what = format!("cannot {verb} `{}`: {}", path.display(), reason(error));
    Report::internal(what)
}
