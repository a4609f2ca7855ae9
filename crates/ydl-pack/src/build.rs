//! Environments that are built first: from a list of packages, or from a pex.
//!
//! They are cached under a name derived from their inputs and are complete once the file [`READY`] exists. They are built at
//! their final path, because their scripts contain it; a lock serializes concurrent builds.

use super::{
    build_inputs::read_inputs,
    cache::{self, root},
    pex,
    plan::read_error,
    stable_file::FileStamp,
};
use ring::digest::{SHA256, digest};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};
use ydl_core::spec::{Environment, PackedEnvironment};
use ydl_os::{reason, report::Report};

/// Marker file of a complete environment.
pub(super) const READY: &str = ".ydl-ready";
/// Age after which an unused environment is removed.
const AGE_MAX: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// Poll interval while a tool runs.
const PAUSE: Duration = Duration::from_millis(50);
/// Interval between progress messages while a tool runs.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);
/// Lines and bytes of a failed tool's output that are shown.
const TAIL_LINES: usize = 5;
const TAIL_BYTES: u64 = 4096;
/// Variables that would make a tool install elsewhere.
const REMOVED_VARIABLES: [&str; 7] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_USER",
    "PIP_TARGET",
    "PIP_PREFIX",
    "VIRTUAL_ENV",
    "UV_PROJECT_ENVIRONMENT",
];

/// Returns whether an environment must be built before it is packed.
pub fn needs_build(environment: &Environment) -> bool {
    matches!(environment, Environment::Requirements(_) | Environment::Pex(_))
}

/// Builds an environment unless it is cached. Returns the directory, or the environment itself if nothing needs building.
/// `notify` receives progress messages.
pub fn build(environment: &Environment, notify: &dyn Fn(String)) -> Result<Environment, Report> {
    let (from, path) = match environment {
        Environment::Requirements(from) => (from, requirements(Path::new(&from.path), notify)?),
        Environment::Pex(from) => (from, pex::get_or_build(Path::new(&from.path), notify)?),
        Environment::System
        | Environment::Directory(_)
        | Environment::Archive(_)
        | Environment::Image(_) => {
            return Ok(environment.clone());
        }
    };
    Ok(Environment::Directory(PackedEnvironment {
        path: path.to_string_lossy().into_owned(),
        interpreter: from.interpreter,
    }))
}

fn requirements(path: &Path, notify: &dyn Fn(String)) -> Result<PathBuf, Report> {
    let path = path.canonicalize().map_err(|error| read_error(path, &error))?;
    let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let project = path.file_name().is_some_and(|name| name == "pyproject.toml");
    let uv = find_program("uv");
    let python = find_program("python3").or_else(|| find_program("python"));
    let mut inputs = read_inputs(&path)?;
    for name in ["uv.lock", ".python-version"] {
        inputs.extend(fs::read(dir.join(name)).unwrap_or_default());
    }
    for tool in [&uv, &python].into_iter().flatten() {
        inputs.extend(tool.to_string_lossy().as_bytes());
    }
    // An interpreter that was replaced at the same path needs a new environment.
    if let Some(interpreter) = python.as_deref().and_then(resolve_interpreter) {
        inputs.extend(interpreter.to_string_lossy().as_bytes());
        let metadata = fs::metadata(&interpreter);
        inputs.extend(metadata.map_or([0; 56], |file| FileStamp::of(&file).fingerprint()));
    }
    inputs.extend(std::env::var("PYENV_VERSION").unwrap_or_default().into_bytes());
    if project {
        // An editable install depends on the project's path.
        inputs.extend(path.to_string_lossy().as_bytes());
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let slot = BuildSlot::of(&name, &inputs)?;
    slot.get_or_build(notify, |build| {
        let tool = match (&uv, &python) {
            (Some(_), _) => "uv",
            (None, Some(_)) => "pip",
            (None, None) => {
                let what =
                    format!("neither `uv` nor `python3` was found to install `{}`", path.display());
                return Err(Report::bad_input(what).hint("install one of them"));
            }
        };
        notify(format!("building an environment from `{}` with {tool}", path.display()));
        match (&uv, &python) {
            (Some(uv), _) => with_uv(build, uv, &path, &dir, project),
            (None, Some(python)) => with_pip(build, python, &path, &dir, project),
            (None, None) => Ok(()),
        }
    })
}

fn with_uv(build: &Build, uv: &Path, path: &Path, dir: &Path, project: bool) -> Result<(), Report> {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(uv);
        command.args(arguments).current_dir(dir);
        command
    };
    let to = build.dir.to_string_lossy();
    let python = build.dir.join("bin/python");
    let python = python.to_string_lossy();
    let from = path.to_string_lossy();
    let source_dir = dir.to_string_lossy();
    if project && dir.join("uv.lock").is_file() {
        let mut sync = run(&["sync", "--frozen", "--no-dev"]);
        sync.env("UV_PROJECT_ENVIRONMENT", &build.dir);
        return build.run("uv sync", &mut sync);
    }
    build.run("uv venv", &mut run(&["venv", &to]))?;
    let mut arguments = vec!["pip", "install", "--python", &*python];
    match project {
        true => arguments.extend(["-e", &*source_dir]),
        // Like pip, take each package from the index that has its version, not from the first index that has its name.
        false => arguments.extend(["--index-strategy", "unsafe-best-match", "-r", &*from]),
    }
    build.run("uv pip install", &mut run(&arguments))
}

fn with_pip(
    build: &Build,
    python: &Path,
    path: &Path,
    dir: &Path,
    project: bool,
) -> Result<(), Report> {
    let mut venv = Command::new(python);
    venv.args(["-I", "-m", "venv"]).arg(&build.dir);
    build.run("python -m venv", venv.current_dir(dir))?;
    let mut pip = Command::new(build.dir.join("bin/python"));
    // The working directory is the user's, and a `queue.py` there must not shadow the standard library's.
    pip.args(["-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]);
    match project {
        true => pip.arg("-e").arg(dir),
        false => pip.arg("-r").arg(path),
    };
    build.run("pip install", pip.current_dir(dir))
}

/// Finds a program in `PATH`.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|dir| dir.join(name));
    candidates.find(|candidate| candidate.is_file())
}

/// Prints the real path of the interpreter.
const PRINT_EXECUTABLE: &str = "import os, sys; print(os.path.realpath(getattr(sys, '_base_executable', '') or sys.executable))";

/// Resolves the interpreter itself. A wrapper script, such as pyenv's, selects one of several and must be run.
fn resolve_interpreter(python: &Path) -> Option<PathBuf> {
    let real = python.canonicalize().ok()?;
    let mut head = [0; 2];
    File::open(&real).ok()?.read_exact(&mut head).ok()?;
    if &head != b"#!" {
        return Some(real);
    }
    let mut command = Command::new(python);
    command.args(["-I", "-S", "-c", PRINT_EXECUTABLE]).stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(path.trim())).filter(|path| path.is_absolute())
}

/// Cache entry of an environment to build.
pub(super) struct BuildSlot {
    dir: PathBuf,
}

/// Environment being built.
pub(super) struct Build<'a> {
    pub dir: PathBuf,
    notify: &'a dyn Fn(String),
    log: PathBuf,
    until: Instant,
    /// Build lock, inherited by the tools: one that outlives this process still writes there.
    lock: File,
}

impl BuildSlot {
    /// Creates the entry for a name and its inputs.
    pub(crate) fn of(name: &str, inputs: &[u8]) -> Result<BuildSlot, Report> {
        let key = hex::encode(digest(&SHA256, inputs).as_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name: String = name.chars().filter(|c| fits(*c)).take(40).collect();
        let key = key.get(..16).unwrap_or_default().to_owned();
        let dir = root()?.join("environments").join(format!("{name}-{key}"));
        Ok(BuildSlot { dir })
    }

    /// Returns the environment, built with `run` if it is missing. `notify` receives progress messages.
    pub(crate) fn get_or_build(
        &self,
        notify: &dyn Fn(String),
        run: impl FnOnce(&Build) -> Result<(), Report>,
    ) -> Result<PathBuf, Report> {
        let ready = self.dir.join(READY);
        // The link to an interpreter that was removed dangles.
        let usable = || ready.is_file() && self.dir.join("bin/python").exists();
        if !usable() {
            let lock = cache::lock(&self.dir.with_extension("lock"), &|| {
                notify(format!("waiting for another process that builds `{}`", self.dir.display()));
            })?;
            if !usable() {
                self.rebuild(lock, notify, run)?;
            }
        }
        // The modification time records the last use. If it cannot be set, the entry only expires sooner.
        let _ = File::open(&ready).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(self.dir.clone())
    }

    fn rebuild(
        &self,
        lock: File,
        notify: &dyn Fn(String),
        run: impl FnOnce(&Build) -> Result<(), Report>,
    ) -> Result<(), Report> {
        self.clean();
        let failed = |error: io::Error| cache::failed(&self.dir, &error);
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let build = Build {
            dir: self.dir.clone(),
            notify,
            log: self.dir.with_extension("log"),
            until: Instant::now() + cache::BUILD_TIMEOUT,
            lock,
        };
        let result = File::create(&build.log).map_err(failed).and_then(|_| run(&build));
        if let Err(report) = result {
            // A partial environment is useless; its log has the reason.
            let _ = fs::remove_dir_all(&self.dir);
            return Err(report);
        }
        fs::write(self.dir.join(READY), "").map_err(failed)?;
        let _ = fs::remove_file(&build.log);
        Ok(())
    }

    /// Removes environments that were unused for long.
    fn clean(&self) {
        let all = self.dir.parent().and_then(|dir| fs::read_dir(dir).ok());
        for entry in all.into_iter().flatten().flatten() {
            let ready = fs::metadata(entry.path().join(READY));
            let used = ready.and_then(|file| file.modified());
            let age = used.ok().and_then(|then| then.elapsed().ok());
            if age.is_some_and(|age| age > AGE_MAX) {
                // Entries that cannot be removed stay.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Build<'_> {
    /// Runs a tool to completion. Its output goes to the log. The user sees its current line, and the last lines if it fails.
    pub(crate) fn run(&self, name: &str, command: &mut Command) -> Result<(), Report> {
        let failed = |error: &io::Error| {
            let what = format!("cannot run `{name}`: {}", reason(error));
            Report::internal(what)
        };
        for variable in REMOVED_VARIABLES {
            if variable != "UV_PROJECT_ENVIRONMENT" || !name.ends_with("sync") {
                command.env_remove(variable);
            }
        }
        let open = || File::options().append(true).open(&self.log);
        let (out, err) = (open(), open());
        let out = out.map_err(|error| failed(&error))?;
        let err = err.map_err(|error| failed(&error))?;
        // The tool inherits the lock as stdin for as long as it runs; reading it yields nothing.
        let lock = self.lock.try_clone().map_err(|error| failed(&error))?;
        let child = command.stdin(lock).stdout(out).stderr(err).spawn();
        let mut child = child.map_err(|error| failed(&error))?;
        let (mut next, mut shown) = (Instant::now() + PROGRESS_INTERVAL, String::new());
        loop {
            if Instant::now() >= next {
                next = Instant::now() + PROGRESS_INTERVAL;
                let line = self.output_tail(1);
                if !line.is_empty() && line != shown {
                    (self.notify)(format!("{name}: {line}"));
                    shown = line;
                }
            }
            match child.try_wait().map_err(|error| failed(&error))? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => break,
                None if Instant::now() < self.until => std::thread::sleep(PAUSE),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let what = format!("`{name}` did not finish within an hour");
                    return Err(Report::internal(what).hint(self.hint()));
                }
            }
        }
        let what = format!("`{name}` failed:\n{}", self.output_tail(TAIL_LINES));
        Err(Report::bad_input(what).hint(self.hint()))
    }

    fn hint(&self) -> String {
        format!("see its output in `{}`", self.log.display())
    }

    /// Returns the last lines of the log.
    fn output_tail(&self, count: usize) -> String {
        let mut text = Vec::new();
        // Unreadable output is skipped; the hint names the file.
        let _ = File::open(&self.log).and_then(|mut file| {
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(end.saturating_sub(TAIL_BYTES)))?;
            file.take(TAIL_BYTES).read_to_end(&mut text)
        });
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(count);
        lines.get(from..).unwrap_or_default().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_interpreter_is_resolved_behind_links_and_wrapper_scripts() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = find_program("sh").and_then(|sh| sh.canonicalize().ok());
        let real = real.expect("a program");
        let link = dir.path().join("link");
        symlink(&real, &link).expect("a link");
        assert_eq!(resolve_interpreter(&link), Some(real));
        let script = |text: &str| {
            let path = dir.path().join("python3");
            // Written by another process: a file that is open for writing here could be inherited by a process that another
            // test starts, and executing it would fail with `text file busy`.
            let mut write = Command::new("sh");
            write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""]);
            let written = write.arg(&path).arg(text).status();
            assert!(written.expect("a shell").success());
            resolve_interpreter(&path)
        };
        let one = PathBuf::from("/versions/1/bin/python3");
        assert_eq!(script("echo /versions/1/bin/python3"), Some(one));
        let two = PathBuf::from("/versions/2/bin/python3");
        assert_eq!(script("echo /versions/2/bin/python3"), Some(two));
        assert_eq!(script("echo 'no version is installed' >&2; exit 1"), None);
    }
}
