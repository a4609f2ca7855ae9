//! A place with an environment, and other places where it arrives.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;
use ydl::agent::environment::compose;
use ydl_core::spec::{self, Environment, Interpreter};
use ydl_os::report::Report;
use ydl_pack::{Cache, PackedEnvironment, pack};

/// A place with a virtual environment, without pip, and a project beside it.
pub struct Bench {
    pub dir: TempDir,
}

pub fn python() -> Command {
    let mut command = Command::new("python3");
    for name in ["PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"] {
        command.env_remove(name);
    }
    command
}

pub fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text").trim().to_owned()
}

impl Bench {
    /// A place with nothing in it.
    pub fn bare() -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let bench = Bench { dir };
        fs::create_dir(bench.path("")).expect("a directory");
        bench
    }

    /// A space and a letter beyond ASCII are in every path.
    pub fn new() -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let bench = Bench { dir };
        let made = python().args(["-I", "-m", "venv", "--without-pip"]).arg(bench.venv()).output();
        said(&made.expect("python3 is there"));
        bench.put("their/__init__.py", "from .part import word\n");
        bench.put("their/part.py", "word = 'their'\n");
        bench.put("their-1.0.dist-info/METADATA", "Name: their\nVersion: 1.0\n");
        bench.put("space/theirs.py", "word = 'theirs'\n");
        let shebang = bench.shebang();
        bench.script(
            "their-tool",
            &(shebang + "import sys, their\nprint(their.word, *sys.argv[1:])\n"),
        );
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("wörk shop").join(name)
    }

    pub fn venv(&self) -> PathBuf {
        self.path("venv")
    }

    /// As pip writes it where a path has a space in it.
    pub fn shebang(&self) -> String {
        let python = self.venv().join("bin/python");
        format!("#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\n", python.display())
    }

    pub fn site(&self) -> PathBuf {
        let lib = fs::read_dir(self.venv().join("lib")).expect("a list");
        let mut names = lib.flatten().map(|entry| entry.path());
        let version = names.find(|path| path.join("site-packages").is_dir());
        version.expect("a version").join("site-packages")
    }

    /// Writes a file of an installed package.
    pub fn put(&self, name: &str, text: &str) {
        write(&self.site().join(name), text);
    }

    pub fn script(&self, name: &str, text: &str) {
        let path = self.venv().join("bin").join(name);
        write(&path, text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    /// A project of the user's that is installed so that it can be edited.
    pub fn editable(&self) {
        write(&self.path("project/src/mine/__init__.py"), "word = 'mine'\n");
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

    pub fn pack_into(
        &self,
        cache: &str,
        interpreter: Interpreter,
    ) -> Result<PackedEnvironment, Report> {
        self.pack_at(&self.venv(), cache, interpreter)
    }

    /// Packs another environment than the virtual one.
    pub fn pack_at(
        &self,
        path: &Path,
        cache: &str,
        interpreter: Interpreter,
    ) -> Result<PackedEnvironment, Report> {
        let environment = Environment::Directory(spec::PackedEnvironment {
            path: path.display().to_string(),
            interpreter,
        });
        pack(&environment, &Cache::at(self.path(cache)))
    }

    /// Lays the layers out as a node does, where nothing of the original is left, and puts them together.
    pub fn arrive(&self, packed: &PackedEnvironment) -> Arrived {
        let dir = tempfile::tempdir().expect("a directory");
        let environment = dir.path().join("environment");
        fs::create_dir(&environment).expect("a directory");
        for layer in &packed.layers {
            let at = dir.path().join("filecache").join(layer.name);
            fs::create_dir_all(&at).expect("a directory");
            let file = at.join("layer.tar.gz");
            fs::copy(&layer.file, &file).expect("a copy");
            symlink(file, environment.join(layer.name)).expect("a link");
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
pub struct Arrived {
    pub dir: TempDir,
    pub env: BTreeMap<String, String>,
}

impl Arrived {
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("/usr/bin/env");
        command.args(words).env_clear().envs(&self.env);
        command.current_dir(self.dir.path()).output().expect("env is there")
    }

    pub fn python(&self, code: &str) -> String {
        said(&self.run(&["python", "-c", code]))
    }
}

pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

pub fn hashes(packed: &PackedEnvironment) -> Vec<(&'static str, String)> {
    let layers = packed.layers.iter();
    layers.map(|layer| (layer.name, layer.known.hash.clone())).collect()
}
