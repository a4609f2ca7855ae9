//! Environments built from requirements or a project.

use super::workspace::{PackWorkspace, stdout_of, write};
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

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

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

fn project(workspace: &PackWorkspace) -> PathBuf {
    let dir = workspace.path("mine");
    let about = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n\
                 [project]\nname = 'mine'\nversion = '1.0'\n";
    write(&dir.join("pyproject.toml"), about);
    write(&dir.join("backend.py"), BACKEND);
    write(&dir.join("mine.py"), "word = 'mine'\n");
    dir
}

/// Returns the command `ydl pack WHAT` with a `PATH` of these programs only.
fn ydl(workspace: &PackWorkspace, programs: &Path, what: &Path) -> Command {
    let mut command = Command::new(ydl_testkit::ydl());
    command
        .arg("pack")
        .arg("--json")
        .arg(what)
        .env("XDG_CACHE_HOME", workspace.path("cache"))
        .env("PATH", programs)
        .env("PIP_NO_INDEX", "1")
        .current_dir(workspace.path(""))
        .stdin(Stdio::null());
    command
}

/// A directory with a link to this machine's Python, behind any shim.
fn with_python(workspace: &PackWorkspace) -> PathBuf {
    let dir = workspace.path("bin");
    fs::create_dir_all(&dir).expect("a directory");
    let interpreter =
        "import os, sys; print(os.path.realpath(getattr(sys, '_base_executable', sys.executable)))";
    let printed = Command::new("python3").args(["-I", "-c", interpreter]).output();
    let interpreter = stdout_of(&printed.expect("python3 is found"));
    // A script: through a link, Python would look for its library next to the link.
    script(&dir.join("python3"), &format!("exec '{interpreter}' \"$@\""));
    dir
}

fn script(path: &Path, text: &str) {
    write(path, &format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn without_uv_requirements_and_projects_are_installed_once_with_pip() {
    let workspace = PackWorkspace::empty();
    let project = project(&workspace);
    let programs = with_python(&workspace);
    let list = workspace.path("requirements.txt");
    write(&list, "-e ./mine\n");
    for (what, name) in
        [(list, "requirements.txt"), (project.join("pyproject.toml"), "pyproject.toml")]
    {
        let packed = || {
            let output = ydl(&workspace, &programs, &what).output().expect("ydl");
            let messages = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{messages}");
            (messages, String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let (messages, about) = packed();
        assert!(messages.contains(&format!("{name}` with pip")), "{messages}");
        let local = about.split("\"local\"").nth(1);
        assert!(local.is_some(), "{about}");
        let (messages, _) = packed();
        assert!(!messages.contains("with pip"), "installed again: {messages}");
    }
    let changed = project.join("pyproject.toml");
    let project_text = fs::read_to_string(&changed).expect("a project") + "# changed\n";
    write(&changed, &project_text);
    let output = ydl(&workspace, &programs, &workspace.path("requirements.txt")).output();
    let messages = String::from_utf8_lossy(&output.expect("ydl").stderr).into_owned();
    assert!(messages.contains("with pip"), "not installed again: {messages}");
}

fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A process that is killed at the end of the test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_build_waits_for_the_tools_of_a_killed_build() {
    let workspace = PackWorkspace::empty();
    let programs = workspace.path("bin");
    let (started, finish) = (workspace.path("started"), workspace.path("finish"));
    // A tool that runs until the file `finish` exists.
    script(
        &programs.join("uv"),
        &format!(
            "echo collecting their; echo > '{}'\nwhile [ ! -e '{}' ]; do /bin/sleep 0.05; done\nexit 1",
            started.display(),
            finish.display()
        ),
    );
    let list = workspace.path("requirements.txt");
    write(&list, "their==1.0\n");
    let start = |log: &Path| {
        let log = File::create(log).expect("a file");
        let mut command = ydl(&workspace, &programs, &list);
        KilledOnDrop(command.stderr(log).stdout(Stdio::null()).spawn().expect("ydl"))
    };
    let mut first = start(&workspace.path("first.log"));
    wait_for("the tool", || started.exists().then_some(()));
    wait_for("its progress", || {
        let output = fs::read_to_string(workspace.path("first.log")).ok()?;
        output.contains("uv venv: collecting their").then_some(())
    });
    first.0.kill().expect("killed");
    first.0.wait().expect("ended");
    let built = fs::read_dir(workspace.path("cache/ydl/environments")).expect("a list");
    let mut paths = built.flatten().map(|entry| entry.path());
    let lock = paths.find(|path| path.extension().is_some_and(|it| it == "lock"));
    let lock = File::open(lock.expect("a lock")).expect("a lock");
    let second_lock = flock(&lock, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(second_lock, Err(Errno::WOULDBLOCK), "the tool still runs");
    let log = workspace.path("second.log");
    let mut second = start(&log);
    wait_for("the message about the wait", || {
        let output = fs::read_to_string(&log).ok()?;
        output.contains("waiting for another process that builds `").then_some(())
    });
    fs::write(&finish, "").expect("a file");
    // The second build then runs the tool itself, which fails.
    wait_for("the exit of the second build", || second.0.try_wait().expect("a process"));
    let output = fs::read_to_string(&log).expect("a log");
    assert!(output.contains("`uv venv` failed"), "{output}");
}
