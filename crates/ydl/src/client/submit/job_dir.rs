//! A new job's directory: its name, its files, and what was submitted.

use crate::client::jobs::root;
use ring::rand::{SecureRandom, SystemRandom};
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};
use ydl_core::{JobSpec, Time};
use ydl_os::{private, reason, report::Report};
use ydl_proto::{
    files::{JobDir, JobTarget, LocalResources, SubmittedJob},
    version::write_json,
};

/// Files above this size are linked: copying them would take longer than most people wait for a job to start.
const COPY_BYTES_MAX: u64 = 256 << 20;
/// Deeper than any sensible directory, and shallow enough for the stack.
const DEPTH_MAX: usize = 100;
/// Two jobs of one name meet in one of a billion tries; this many times in a row they do not.
const TRIES_MAX: usize = 16;
/// Letters and digits that are not taken for each other.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Makes the directory of a new job and everything its master needs. On failure nothing is left behind. Copying files
/// may take minutes; it ends soon after `stop` says so. `extra_files` are small files of those names.
pub fn create_job_dir(
    spec: JobSpec,
    offer: LocalResources,
    from: &Path,
    extra_files: &[(&'static str, Vec<u8>)],
    stop: &AtomicBool,
) -> Result<(JobDir, SubmittedJob), Report> {
    let dir = make_directory(&spec.name)?;
    let submitted = SubmittedJob {
        id: dir.id(),
        at: now(),
        from: from.to_path_buf(),
        spec,
        target: JobTarget::Local(offer),
    };
    let filled = copy_files(&dir, &submitted.spec, stop)
        .and_then(|()| write_extra_files(&dir, extra_files))
        .and_then(|()| write_submitted(&dir, &submitted));
    if let Err(report) = filled {
        // The failure to fill it is what the user must hear of, not that of cleaning up after it.
        let _ = fs::remove_dir_all(dir.path());
        return Err(report);
    }
    Ok((dir, submitted))
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Time(since.unwrap_or_default().as_millis() as u64)
}

fn make_directory(name: &str) -> Result<JobDir, Report> {
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
        .map_err(|_| Report::internal("the system gives no random bytes"))?;
    let letter = |byte: &u8| ALPHABET[usize::from(*byte) % ALPHABET.len()] as char;
    Ok(random.iter().map(letter).collect())
}

fn copy_files(dir: &JobDir, spec: &JobSpec, stop: &AtomicBool) -> Result<(), Report> {
    let files = dir.files();
    let made = fs::create_dir(&files);
    made.map_err(|error| cannot("make", &files, &error))?;
    for file in &spec.files {
        let source = Path::new(&file.source);
        let real = |path: &Path| path.canonicalize().ok();
        let own = real(&files).zip(real(source));
        let own = own.is_some_and(|(files, source)| files.starts_with(source));
        if own {
            let what = format!("`{}` holds the directory of the job itself", file.source);
            return Err(
                Report::bad_input(what).hint("name what the job needs of it, not all of it")
            );
        }
        copy(source, &files.join(&file.name), 0, stop)
            .map_err(|(path, error)| cannot("copy", &path, &error))?;
    }
    Ok(())
}

/// Copies a file or a whole directory. Links to files are followed, because what they lead to may change; links
/// to directories inside it stay links, because they may lead round in a circle.
fn copy(
    source: &Path,
    to: &Path,
    depth: usize,
    stop: &AtomicBool,
) -> Result<(), (PathBuf, io::Error)> {
    let at = |error: io::Error| (source.to_path_buf(), error);
    if stop.load(Ordering::Relaxed) {
        return Err(at(io::Error::other("interrupted")));
    }
    let about = fs::metadata(source).map_err(at)?;
    if about.is_dir() {
        if depth > DEPTH_MAX {
            return Err(at(io::Error::other("it is nested too deep")));
        }
        fs::create_dir(to).map_err(at)?;
        for entry in fs::read_dir(source).map_err(at)? {
            let entry = entry.map_err(at)?;
            let inner = entry.path();
            if inner.is_symlink() && !inner.is_file() {
                // One that leads nowhere goes on leading nowhere.
                let target = inner.canonicalize().or_else(|_| fs::read_link(&inner));
                let target = target.map_err(at)?;
                symlink(target, to.join(entry.file_name())).map_err(at)?;
                continue;
            }
            copy(&inner, &to.join(entry.file_name()), depth + 1, stop)?;
        }
    } else if !about.is_file() {
        // A socket or a pipe holds no data; reading it could block for ever.
    } else if about.len() > COPY_BYTES_MAX {
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

/// Writes the submission last, so that concurrent listings never see half a job.
fn write_submitted(dir: &JobDir, submitted: &SubmittedJob) -> Result<(), Report> {
    let path = dir.submitted_file();
    write_json(&path, submitted).map_err(|error| cannot("write", &path, &error))
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Report {
    let what = format!("cannot {verb} `{}`: {}", path.display(), reason(error));
    Report::internal(what)
}
