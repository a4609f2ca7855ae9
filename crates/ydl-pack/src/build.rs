//! Environments that are made: from a list of packages, or from a pex.
//!
//! They lie in the user's cache under a name made of what they are made from, and count once the file [`READY`] is in
//! them. They are made in place, because scripts in them know their own path; a lock keeps two makers apart.

use super::{
    cache::{self, root},
    lists::said,
    pex,
    plan::unread,
    same::Stamp,
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

/// The file that says that an environment is whole.
pub(super) const READY: &str = ".ydl-ready";
/// What nobody used for so long goes.
const AGE_MAX: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// How often it is looked whether a tool has ended.
const PAUSE: Duration = Duration::from_millis(50);
/// How many of a tool's last lines are told, and of how many bytes.
const TOLD_LINES: usize = 5;
const TOLD_BYTES: u64 = 4096;
/// Variables that would make a tool install somewhere else.
const MISLEADING: [&str; 7] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_USER",
    "PIP_TARGET",
    "PIP_PREFIX",
    "VIRTUAL_ENV",
    "UV_PROJECT_ENVIRONMENT",
];

/// Whether an environment is made of something else first.
pub fn must_be_made(environment: &Environment) -> bool {
    matches!(environment, Environment::Requirements(_) | Environment::Pex(_))
}

/// Makes what must be made, unless it is there: what comes back is a directory, or what there was. `tell` hears what
/// takes long.
pub fn make(environment: &Environment, tell: &dyn Fn(String)) -> Result<Environment, Report> {
    let (from, path) = match environment {
        Environment::Requirements(from) => (from, requirements(Path::new(&from.path), tell)?),
        Environment::Pex(from) => (from, pex::make(Path::new(&from.path), tell)?),
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

fn requirements(path: &Path, tell: &dyn Fn(String)) -> Result<PathBuf, Report> {
    let path = path.canonicalize().map_err(|error| unread(path, &error))?;
    let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let project = path.file_name().is_some_and(|name| name == "pyproject.toml");
    let uv = find_program("uv");
    let python = find_program("python3").or_else(|| find_program("python"));
    let mut about = said(&path)?;
    for beside in ["uv.lock", ".python-version"] {
        about.extend(fs::read(dir.join(beside)).unwrap_or_default());
    }
    for tool in [&uv, &python].into_iter().flatten() {
        about.extend(tool.to_string_lossy().as_bytes());
    }
    // Another Python in the same place makes another environment, and the old one may not work any more.
    if let Some(behind) = python.as_deref().and_then(behind) {
        about.extend(behind.to_string_lossy().as_bytes());
        about.extend(fs::metadata(&behind).map_or([0; 56], |it| Stamp::of(&it).known_by()));
    }
    about.extend(std::env::var("PYENV_VERSION").unwrap_or_default().into_bytes());
    if project {
        // The project itself is installed so that its code stays where it is.
        about.extend(path.to_string_lossy().as_bytes());
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let site = Site::of(&name, &about)?;
    site.make(tell, |build| {
        let tool = match (&uv, &python) {
            (Some(_), _) => "uv",
            (None, Some(_)) => "pip",
            (None, None) => {
                let what =
                    format!("neither `uv` nor `python3` is there to install `{}`", path.display());
                return Err(Report::bad_input(what).hint("install one of them"));
            }
        };
        tell(format!("making an environment from `{}` with {tool}", path.display()));
        match (&uv, &python) {
            (Some(uv), _) => with_uv(build, uv, &path, &dir, project),
            (None, Some(python)) => with_pip(build, python, &path, &dir, project),
            (None, None) => Ok(()),
        }
    })
}

fn with_uv(build: &Build, uv: &Path, path: &Path, dir: &Path, project: bool) -> Result<(), Report> {
    let run = |words: &[&str]| {
        let mut command = Command::new(uv);
        command.args(words).current_dir(dir);
        command
    };
    let to = build.dir.to_string_lossy();
    let python = build.dir.join("bin/python");
    let python = python.to_string_lossy();
    let from = path.to_string_lossy();
    let here = dir.to_string_lossy();
    if project && dir.join("uv.lock").is_file() {
        let mut sync = run(&["sync", "--frozen", "--no-dev"]);
        sync.env("UV_PROJECT_ENVIRONMENT", &build.dir);
        return build.run("uv sync", &mut sync);
    }
    build.run("uv venv", &mut run(&["venv", &to]))?;
    let mut words = vec!["pip", "install", "--python", &*python];
    match project {
        true => words.extend(["-e", &*here]),
        false => words.extend(["-r", &*from]),
    }
    build.run("uv pip install", &mut run(&words))
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
    // The directory it runs in is the user's, and a `queue.py` there is not the standard library's.
    pip.args(["-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]);
    match project {
        true => pip.arg("-e").arg(dir),
        false => pip.arg("-r").arg(path),
    };
    build.run("pip install", pip.current_dir(dir))
}

/// A program by its name, where `PATH` leads.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(name));
    places.find(|place| place.is_file())
}

/// Asks a Python where it is.
const WHERE: &str = "import os, sys; print(os.path.realpath(getattr(sys, '_base_executable', '') or sys.executable))";

/// The interpreter itself. A script of that name, as pyenv's are, leads to one or another, and has to be asked.
fn behind(python: &Path) -> Option<PathBuf> {
    let real = python.canonicalize().ok()?;
    let mut head = [0; 2];
    File::open(&real).ok()?.read_exact(&mut head).ok()?;
    if &head != b"#!" {
        return Some(real);
    }
    let mut ask = Command::new(python);
    ask.args(["-I", "-S", "-c", WHERE]).stdin(Stdio::null());
    let said = ask.stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    Some(PathBuf::from(said.trim())).filter(|path| path.is_absolute())
}

/// Where an environment is made.
pub(super) struct Site {
    dir: PathBuf,
}

/// An environment that is being made.
pub(super) struct Build {
    pub dir: PathBuf,
    log: PathBuf,
    until: Instant,
    /// Held by whatever tool runs, too: one that outlives this process still writes there.
    lock: File,
}

impl Site {
    /// For what is called so and made of that.
    pub fn of(name: &str, about: &[u8]) -> Result<Site, Report> {
        let key = hex::encode(digest(&SHA256, about).as_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name: String = name.chars().filter(|c| fits(*c)).take(40).collect();
        let key = key.get(..16).unwrap_or_default().to_owned();
        let dir = root()?.join("environments").join(format!("{name}-{key}"));
        Ok(Site { dir })
    }

    /// The environment, made by `how` if it is not there. `tell` hears what takes long.
    pub fn make(
        &self,
        tell: &dyn Fn(String),
        how: impl FnOnce(&Build) -> Result<(), Report>,
    ) -> Result<PathBuf, Report> {
        let ready = self.dir.join(READY);
        // The link to the interpreter leads nowhere after that was removed.
        let usable = || ready.is_file() && self.dir.join("bin/python").exists();
        if !usable() {
            let lock = cache::lock(&self.dir.with_extension("lock"), &|| {
                tell(format!("waiting for another process that makes `{}`", self.dir.display()));
            })?;
            if !usable() {
                self.make_anew(lock, how)?;
            }
        }
        // That it is in use is remembered as its time. Where that cannot be done it only goes sooner.
        let _ = File::open(&ready).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(self.dir.clone())
    }

    fn make_anew(
        &self,
        lock: File,
        how: impl FnOnce(&Build) -> Result<(), Report>,
    ) -> Result<(), Report> {
        self.clean();
        let failed = |error: io::Error| cache::failed(&self.dir, &error);
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let build = Build {
            dir: self.dir.clone(),
            log: self.dir.with_extension("log"),
            until: Instant::now() + cache::MAKING_MAX,
            lock,
        };
        let made = File::create(&build.log).map_err(failed).and_then(|_| how(&build));
        if let Err(report) = made {
            // Half of it is of no use, and its log says why.
            let _ = fs::remove_dir_all(&self.dir);
            return Err(report);
        }
        fs::write(self.dir.join(READY), "").map_err(failed)?;
        let _ = fs::remove_file(&build.log);
        Ok(())
    }

    /// What nobody used for long goes.
    fn clean(&self) {
        let all = self.dir.parent().and_then(|dir| fs::read_dir(dir).ok());
        for entry in all.into_iter().flatten().flatten() {
            let ready = fs::metadata(entry.path().join(READY));
            let used = ready.and_then(|about| about.modified());
            let age = used.ok().and_then(|then| then.elapsed().ok());
            if age.is_some_and(|age| age > AGE_MAX) {
                // What cannot be removed stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Build {
    /// Runs a tool to its end; what it says goes to the log, and its last words to the user if it fails.
    pub fn run(&self, name: &str, command: &mut Command) -> Result<(), Report> {
        let failed = |error: &io::Error| {
            let what = format!("cannot run `{name}`: {}", reason(error));
            Report::trouble(what)
        };
        for variable in MISLEADING {
            if variable != "UV_PROJECT_ENVIRONMENT" || !name.ends_with("sync") {
                command.env_remove(variable);
            }
        }
        let open = || File::options().append(true).open(&self.log);
        let (out, err) = (open(), open());
        let out = out.map_err(|error| failed(&error))?;
        let err = err.map_err(|error| failed(&error))?;
        // It reads nothing there, as nobody writes into a lock, and has it as long as it runs.
        let lock = self.lock.try_clone().map_err(|error| failed(&error))?;
        let child = command.stdin(lock).stdout(out).stderr(err).spawn();
        let mut child = child.map_err(|error| failed(&error))?;
        loop {
            match child.try_wait().map_err(|error| failed(&error))? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => break,
                None if Instant::now() < self.until => std::thread::sleep(PAUSE),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let what = format!("`{name}` has not ended in an hour");
                    return Err(Report::trouble(what).hint(self.hint()));
                }
            }
        }
        let what = format!("`{name}` failed:\n{}", self.last_words());
        Err(Report::bad_input(what).hint(self.hint()))
    }

    fn hint(&self) -> String {
        format!("all that it said is in `{}`", self.log.display())
    }

    fn last_words(&self) -> String {
        let mut text = Vec::new();
        // What cannot be read is not told; the hint names the file.
        let _ = File::open(&self.log).and_then(|mut file| {
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(end.saturating_sub(TOLD_BYTES)))?;
            file.take(TOLD_BYTES).read_to_end(&mut text)
        });
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(TOLD_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_python_is_known_behind_links_and_scripts() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = find_program("sh").and_then(|sh| sh.canonicalize().ok());
        let real = real.expect("a program");
        let link = dir.path().join("link");
        symlink(&real, &link).expect("a link");
        assert_eq!(behind(&link), Some(real));
        let script = |text: &str| {
            let path = dir.path().join("python3");
            // By another process: what is open for writing here could be inherited by what another test starts just
            // then, and would be busy.
            let mut write = Command::new("sh");
            write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""]);
            let written = write.arg(&path).arg(text).status();
            assert!(written.expect("a shell").success());
            behind(&path)
        };
        let one = PathBuf::from("/versions/1/bin/python3");
        assert_eq!(script("echo /versions/1/bin/python3"), Some(one));
        let two = PathBuf::from("/versions/2/bin/python3");
        assert_eq!(script("echo /versions/2/bin/python3"), Some(two));
        assert_eq!(script("echo 'no version is installed' >&2; exit 1"), None);
    }
}
