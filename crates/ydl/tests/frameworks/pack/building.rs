//! Environments that are made first, from a list of packages or a project.

use super::workspace::{Bench, said, write};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Build backend inside the project, which needs no download.
const BACKEND: &str = r#"import os, zipfile
def build_editable(to, settings=None, metadata=None):
    with zipfile.ZipFile(os.path.join(to, 'mine-1.0-py3-none-any.whl'), 'w') as out:
        info = 'mine-1.0.dist-info/'
        out.writestr('mine.pth', os.getcwd() + '\n')
        out.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n')
        out.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        names = ['mine.pth', info + 'METADATA', info + 'WHEEL', info + 'RECORD']
        out.writestr(info + 'RECORD', ''.join(name + ',,\n' for name in names))
    return 'mine-1.0-py3-none-any.whl'
"#;

fn project(bench: &Bench) -> PathBuf {
    let dir = bench.path("mine");
    let about = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n\
                 [project]\nname = 'mine'\nversion = '1.0'\n";
    write(&dir.join("pyproject.toml"), about);
    write(&dir.join("backend.py"), BACKEND);
    write(&dir.join("mine.py"), "word = 'mine'\n");
    dir
}

/// `ydl pack` of that, with these programs and no others.
fn ydl(bench: &Bench, programs: &Path, what: &Path) -> Command {
    let mut command = Command::new(ydl_testkit::ydl());
    command
        .arg("pack")
        .arg("--json")
        .arg(what)
        .env("XDG_CACHE_HOME", bench.path("cache"))
        .env("PATH", programs)
        .env("PIP_NO_INDEX", "1")
        .current_dir(bench.path(""))
        .stdin(Stdio::null());
    command
}

/// A directory with a link to this machine's Python, behind any shim.
fn with_python(bench: &Bench) -> PathBuf {
    let dir = bench.path("bin");
    fs::create_dir_all(&dir).expect("a directory");
    let real =
        "import os, sys; print(os.path.realpath(getattr(sys, '_base_executable', sys.executable)))";
    let asked = Command::new("python3").args(["-I", "-c", real]).output();
    let real = said(&asked.expect("python3 is there"));
    // A script, because what is behind a link looks for its library beside the link.
    script(&dir.join("python3"), &format!("exec '{real}' \"$@\""));
    dir
}

fn script(path: &Path, text: &str) {
    write(path, &format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn without_uv_a_list_and_a_project_are_installed_by_pip_and_once() {
    let bench = Bench::bare();
    let project = project(&bench);
    let programs = with_python(&bench);
    let list = bench.path("requirements.txt");
    write(&list, "-e ./mine\n");
    for (what, name) in
        [(list, "requirements.txt"), (project.join("pyproject.toml"), "pyproject.toml")]
    {
        let packed = || {
            let ran = ydl(&bench, &programs, &what).output().expect("ydl");
            let told = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert!(ran.status.success(), "{told}");
            (told, String::from_utf8_lossy(&ran.stdout).into_owned())
        };
        let (told, about) = packed();
        assert!(told.contains(&format!("{name}` with pip")), "{told}");
        let local = about.split("\"local\"").nth(1);
        assert!(local.is_some(), "{about}");
        let (told, _) = packed();
        assert!(!told.contains("with pip"), "it is there: {told}");
    }
    let anew = project.join("pyproject.toml");
    let text = fs::read_to_string(&anew).expect("a project") + "# changed\n";
    write(&anew, &text);
    let ran = ydl(&bench, &programs, &bench.path("requirements.txt")).output();
    let told = String::from_utf8_lossy(&ran.expect("ydl").stderr).into_owned();
    assert!(told.contains("with pip"), "what it needs may have changed: {told}");
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Ends with the test, however that ends.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_killed_maker_has_started_keeps_the_next_away_until_it_has_ended() {
    let bench = Bench::bare();
    let programs = bench.path("bin");
    let (here, go) = (bench.path("here"), bench.path("go"));
    // One that installs until it is told to end.
    script(
        &programs.join("uv"),
        &format!(
            "echo collecting their; echo > '{}'\nwhile [ ! -e '{}' ]; do /bin/sleep 0.05; done\nexit 1",
            here.display(),
            go.display()
        ),
    );
    let list = bench.path("requirements.txt");
    write(&list, "their==1.0\n");
    let start = |log: &Path| {
        let log = File::create(log).expect("a file");
        let mut command = ydl(&bench, &programs, &list);
        Ends(command.stderr(log).stdout(Stdio::null()).spawn().expect("ydl"))
    };
    let mut first = start(&bench.path("first.log"));
    wait_for("the tool", || here.exists().then_some(()));
    wait_for("its progress", || {
        let said = fs::read_to_string(bench.path("first.log")).ok()?;
        said.contains("uv venv: collecting their").then_some(())
    });
    first.0.kill().expect("killed");
    first.0.wait().expect("ended");
    let made = fs::read_dir(bench.path("cache/ydl/environments")).expect("a list");
    let mut paths = made.flatten().map(|entry| entry.path());
    let lock = paths.find(|path| path.extension().is_some_and(|it| it == "lock"));
    let lock = File::open(lock.expect("a lock")).expect("a lock");
    let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken, Err(Errno::WOULDBLOCK), "it still writes there");
    let log = bench.path("second.log");
    let mut second = start(&log);
    wait_for("a word about the wait", || {
        let said = fs::read_to_string(&log).ok()?;
        said.contains("waiting for another process that builds `").then_some(())
    });
    fs::write(&go, "").expect("a file");
    // Then it tries by itself, and its tool fails like the first.
    wait_for("the end", || second.0.try_wait().expect("a process"));
    let said = fs::read_to_string(&log).expect("a log");
    assert!(said.contains("`uv venv` failed"), "{said}");
}
