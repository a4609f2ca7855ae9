//! Environments packed at one place and put together at another.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;
use ydl::{
    agent::environment::compose,
    pack::{Cache, Packed, pack},
    report::Report,
};
use ydl_core::spec::{self, Environment, Interpreter};

/// A place with a virtual environment, without pip, and a project beside it.
struct Bench {
    dir: TempDir,
}

fn python() -> Command {
    let mut command = Command::new("python3");
    for name in ["PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone())
        .expect("text")
        .trim()
        .to_owned()
}

impl Bench {
    /// A space and a letter beyond ASCII are in every path.
    fn new() -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let bench = Bench { dir };
        let made = python()
            .args(["-I", "-m", "venv", "--without-pip"])
            .arg(bench.venv())
            .output();
        said(&made.expect("python3 is there"));
        bench.put("their/__init__.py", "from .part import word\n");
        bench.put("their/part.py", "word = 'their'\n");
        bench.put(
            "their-1.0.dist-info/METADATA",
            "Name: their\nVersion: 1.0\n",
        );
        bench.put("space/theirs.py", "word = 'theirs'\n");
        let shebang = bench.shebang();
        bench.script(
            "their-tool",
            &(shebang + "import sys, their\nprint(their.word, *sys.argv[1:])\n"),
        );
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("wörk shop").join(name)
    }

    fn venv(&self) -> PathBuf {
        self.path("venv")
    }

    /// As pip writes it where a path has a space in it.
    fn shebang(&self) -> String {
        let python = self.venv().join("bin/python");
        format!(
            "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\n",
            python.display()
        )
    }

    fn site(&self) -> PathBuf {
        let lib = fs::read_dir(self.venv().join("lib"))
            .expect("a list")
            .next();
        lib.expect("a version")
            .expect("an entry")
            .path()
            .join("site-packages")
    }

    /// A file of a package of somebody else.
    fn put(&self, name: &str, text: &str) {
        write(&self.site().join(name), text);
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.venv().join("bin").join(name);
        write(&path, text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    /// A project of the user's that is installed so that it can be edited.
    fn editable(&self) {
        write(
            &self.path("project/src/mine/__init__.py"),
            "word = 'mine'\n",
        );
        write(&self.path("project/src/.git/large"), "history");
        write(&self.path("project/src/venv/pyvenv.cfg"), "");
        let src = self.path("project/src").display().to_string();
        self.put("__editable__.mine-1.0.pth", &(src + "\n"));
        write(&self.path("mapped/flat/__init__.py"), "word = 'flat'\n");
        write(&self.path("mapped/single.py"), "word = 'single'\n");
        write(&self.path("mapped/space/mine.py"), "word = 'mine too'\n");
        let mapped = |name: &str| self.path("mapped").join(name).display().to_string();
        let finder = format!(
            "import sys\nMAPPING: dict[str, str] = {{'flat': '{}', 'single': '{}', 'space': '{}'}}\ndef install(): raise SystemExit\n",
            mapped("flat"),
            mapped("single"),
            mapped("space")
        );
        self.put("__editable___flat_finder.py", &finder);
        let line = "import __editable___flat_finder; __editable___flat_finder.install()";
        self.put("__editable__.flat-1.0.pth", line);
        let shebang = self.shebang();
        self.script("my-tool", &(shebang + "import mine\nprint(mine.word)\n"));
        self.put("mine-1.0.dist-info/METADATA", "Name: mine\nVersion: 1.0\n");
        let url = r#"{"url": "file:///somewhere", "dir_info": {"editable": true}}"#;
        self.put("mine-1.0.dist-info/direct_url.json", url);
        let record = "../../../bin/my-tool,,\nmine-1.0.dist-info/METADATA,,\n\
                      mine-1.0.dist-info/direct_url.json,,\n__editable__.mine-1.0.pth,,\n";
        self.put("mine-1.0.dist-info/RECORD", record);
    }

    fn pack_into(&self, cache: &str, interpreter: Interpreter) -> Result<Packed, Report> {
        let environment = Environment::Directory(spec::Packed {
            path: self.venv().display().to_string(),
            interpreter,
        });
        pack(&environment, &Cache::at(self.path(cache)))
    }

    /// Unpacks the layers as a node does, where nothing of the original is left, and puts them together.
    fn arrive(&self, packed: &Packed) -> Arrived {
        let dir = tempfile::tempdir().expect("a directory");
        for layer in &packed.layers {
            let to = dir.path().join("environment").join(layer.name);
            fs::create_dir_all(&to).expect("a directory");
            // As a NodeManager does it.
            let script = "gzip -dc < \"$1\" | (cd \"$2\" && tar -xf -)";
            let mut unpack = Command::new("bash");
            unpack.args(["-o", "pipefail", "-c", script, "x"]);
            said(
                &unpack
                    .arg(&layer.file)
                    .arg(&to)
                    .output()
                    .expect("bash is there"),
            );
        }
        for name in ["venv", "project", "mapped"] {
            let path = self.path(name);
            if path.exists() {
                fs::rename(&path, path.with_extension("gone")).expect("a rename");
            }
        }
        let long = "a-container-whose-path-is-longer-than-a-first-line-may-be-".repeat(3);
        let prefix = dir.path().join(long).join("venv");
        let activation = compose(&dir.path().join("environment"), &prefix).expect("an environment");
        let mut env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        activation.apply(&mut env);
        Arrived { dir, env }
    }
}

/// An environment at another place.
struct Arrived {
    dir: TempDir,
    env: BTreeMap<String, String>,
}

impl Arrived {
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("/usr/bin/env");
        command.args(words).env_clear().envs(&self.env);
        command
            .current_dir(self.dir.path())
            .output()
            .expect("env is there")
    }

    fn python(&self, code: &str) -> String {
        said(&self.run(&["python", "-c", code]))
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn hashes(packed: &Packed) -> Vec<(&'static str, String)> {
    let layers = packed.layers.iter();
    layers
        .map(|layer| (layer.name, layer.known.hash.clone()))
        .collect()
}

#[test]
fn an_environment_works_at_another_path_and_its_byte_code_is_used() {
    let bench = Bench::new();
    bench.editable();
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert_eq!(packed.layers.len(), 2, "{packed:?}");
    let there = bench.arrive(&packed);
    let site = there.python("import their; print(their.__file__)");
    assert!(
        site.starts_with(&there.dir.path().display().to_string()),
        "{site}"
    );
    let words = "import mine, flat, single, space.mine, space.theirs, their
print(mine.word, flat.word, single.word, space.mine.word, space.theirs.word, their.word)";
    assert_eq!(
        there.python(words),
        "mine flat single mine too theirs their"
    );
    assert_eq!(said(&there.run(&["their-tool", "a b"])), "their a b");
    assert_eq!(said(&there.run(&["my-tool"])), "mine");
    let same = "import sys, os; print(sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix != sys.base_prefix)";
    assert_eq!(there.python(same), "True True");
    let version =
        "from importlib.metadata import version; print(version('mine'), version('their'))";
    assert_eq!(there.python(version), "1.0 1.0");

    let told = there.run(&["python", "-v", "-B", "-c", "import their, mine, single"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    for name in [
        "their/__init__",
        "their/part",
        "mine/__init__",
        "site-packages/single",
    ] {
        let source = format!("{name}.py");
        let used = told
            .lines()
            .any(|line| line.contains(" matches ") && line.ends_with(&source));
        assert!(used, "the byte code of {name} is not used: {told}");
    }
    let local = packed.layers.last().expect("a layer");
    let listed = Command::new("tar")
        .arg("-tzf")
        .arg(&local.file)
        .output()
        .expect("tar");
    let listed = said(&listed);
    assert!(
        !listed.contains(".git") && !listed.contains("pyvenv.cfg"),
        "{listed}"
    );
}

#[test]
fn an_interpreter_that_travels_is_the_one_that_runs() {
    let bench = Bench::new();
    let packed = bench
        .pack_into("cache", Interpreter::Carry)
        .expect("packed");
    let names: Vec<_> = packed.layers.iter().map(|layer| layer.name).collect();
    assert_eq!(names, ["interpreter", "packages", "local"]);
    let there = bench.arrive(&packed);
    let base = there.python("import sys, json, ssl, ctypes; print(sys.base_prefix)");
    let carried = there
        .dir
        .path()
        .join("environment/interpreter")
        .canonicalize();
    assert_eq!(Path::new(&base), carried.expect("a path"));
    let told = there.run(&["python", "-v", "-B", "-c", "import json"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let used = told
        .lines()
        .any(|line| line.contains(" matches ") && line.ends_with("json/__init__.py"));
    assert!(used, "{told}");
}

#[test]
fn packed_twice_it_is_the_same_and_one_changed_line_changes_one_small_layer() {
    let bench = Bench::new();
    bench.editable();
    let first = bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert!(first.layers.iter().all(|layer| !layer.cached));
    let again = bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert!(again.layers.iter().all(|layer| layer.cached));
    let anew = bench
        .pack_into("another-cache", Interpreter::Node)
        .expect("packed");
    assert_eq!(hashes(&first), hashes(&again));
    assert_eq!(hashes(&first), hashes(&anew));
    for (one, other) in first.layers.iter().zip(&anew.layers) {
        assert_ne!(one.file, other.file);
        assert_eq!(
            fs::read(&one.file).expect("bytes"),
            fs::read(&other.file).expect("bytes")
        );
    }
    write(
        &bench.path("project/src/mine/__init__.py"),
        "word = 'changed'\n",
    );
    let changed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let fresh: Vec<_> = changed
        .layers
        .iter()
        .filter(|layer| !layer.cached)
        .collect();
    assert_eq!(fresh.len(), 1);
    assert_eq!(fresh[0].name, "local");
    assert!(fresh[0].known.bytes < 100_000, "{fresh:?}");
    assert_ne!(hashes(&first), hashes(&changed));
    assert_eq!(
        bench
            .arrive(&changed)
            .python("import mine; print(mine.word)"),
        "changed"
    );
}

#[test]
fn nothing_is_written_into_the_environment_itself() {
    let bench = Bench::new();
    let list = || {
        let found = Command::new("find")
            .arg(bench.venv())
            .output()
            .expect("find");
        said(&found)
    };
    let before = list();
    assert!(!before.contains("part.cpython"), "it has no byte code yet");
    bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert_eq!(list(), before);
}

#[test]
fn what_cannot_travel_says_why() {
    let check = |change: &dyn Fn(&Bench), expected: &str| {
        let bench = Bench::new();
        change(&bench);
        let report = bench
            .pack_into("cache", Interpreter::Node)
            .expect_err("refused");
        assert!(report.what.contains(expected), "{report}");
        assert!(report.hint.is_some(), "{report}");
    };
    check(
        &|bench| {
            let link = bench.venv().join("bin/python");
            fs::remove_file(&link).expect("removed");
            symlink("/nowhere/python3", &link).expect("a link");
        },
        "its interpreter `/nowhere/python3` is not there",
    );
    check(
        &|bench| symlink("/usr/share", bench.site().join("shared")).expect("a link"),
        "leads out of the directory to `/usr/share`",
    );
    check(
        &|bench| {
            bench.put(
                "_theirs_editable_loader.py",
                "install('theirs', '/home/me/build')\n",
            );
            bench.put("theirs-editable.pth", "import _theirs_editable_loader\n");
        },
        "`_theirs_editable_loader` finds an editable package by paths of this machine",
    );
    check(
        &|bench| fs::rename(bench.site(), bench.site().with_extension("x")).expect("moved"),
        "it has no `lib/python3.…/site-packages`",
    );
}

#[test]
fn a_library_for_another_machine_or_a_newer_c_library_is_told_of() {
    let bench = Bench::new();
    let own = std::env::current_exe().expect("a path");
    let mut bytes = fs::read(own).expect("a program")[..4096].to_vec();
    // The machine of a 64-bit ARM.
    bytes[18] = 183;
    let path = bench.site().join("their/fast.so");
    fs::write(path, bytes).expect("a file");
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let note = packed.notes.iter().find(|note| note.contains("fast.so"));
    let note = note.expect("a note");
    assert!(
        note.contains("it is made for aarch64, the interpreter for x86_64"),
        "{note}"
    );
    assert_eq!(
        packed.manifest.machine.as_deref(),
        Some(std::env::consts::ARCH)
    );
}

#[test]
fn a_directory_without_python_travels_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let tool = dir.path().join("tools/bin/tool");
    write(&tool, "#!/bin/sh\necho hello\n");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a mode");
    let environment = Environment::Directory(spec::Packed {
        path: dir.path().join("tools").display().to_string(),
        interpreter: Interpreter::Auto,
    });
    let packed = pack(&environment, &Cache::at(dir.path().join("cache"))).expect("packed");
    assert_eq!(packed.manifest.python, None);
    let bench = Bench { dir };
    assert_eq!(said(&bench.arrive(&packed).run(&["tool"])), "hello");
}
