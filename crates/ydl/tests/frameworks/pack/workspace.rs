//! Workspace of the tests: an environment to pack, and nodes that unpack it.

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

/// Directory with a virtual environment without pip, and a project.
pub struct PackWorkspace {
    pub dir: TempDir,
}

pub fn python() -> Command {
    let mut command = Command::new("python3");
    for name in ["PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"] {
        command.env_remove(name);
    }
    command
}

pub fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text").trim().to_owned()
}

impl PackWorkspace {
    /// Creates an empty workspace.
    pub fn empty() -> PackWorkspace {
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = PackWorkspace { dir };
        fs::create_dir(workspace.path("")).expect("a directory");
        workspace
    }

    /// Creates a workspace with a virtual environment. All paths contain a space and a non-ASCII letter.
    pub fn new() -> PackWorkspace {
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = PackWorkspace { dir };
        let created =
            python().args(["-I", "-m", "venv", "--without-pip"]).arg(workspace.venv()).output();
        stdout_of(&created.expect("python3"));
        workspace.put("their/__init__.py", "from .part import word\n");
        workspace.put("their/part.py", "word = 'their'\n");
        workspace.put("their-1.0.dist-info/METADATA", "Name: their\nVersion: 1.0\n");
        workspace.put("space/theirs.py", "word = 'theirs'\n");
        let shebang = workspace.shebang();
        workspace.script(
            "their-tool",
            &(shebang + "import sys, their\nprint(their.word, *sys.argv[1:])\n"),
        );
        workspace
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("wörk shop").join(name)
    }

    pub fn venv(&self) -> PathBuf {
        self.path("venv")
    }

    /// Returns the shebang that pip writes if the path contains a space.
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

    /// Installs projects of the user in editable mode.
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

    /// Packs another environment.
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

    /// Composes the layers as a node does, after the original was moved away.
    pub fn unpack_on_node(&self, packed: &PackedEnvironment) -> NodeEnvironment {
        let dir = tempfile::tempdir().expect("a directory");
        let environment = dir.path().join("environment");
        fs::create_dir(&environment).expect("a directory");
        for layer in &packed.layers {
            let cached = dir.path().join("filecache").join(layer.name);
            fs::create_dir_all(&cached).expect("a directory");
            let file = cached.join("layer.tar.gz");
            fs::copy(&layer.file, &file).expect("a copy");
            symlink(file, environment.join(layer.name)).expect("a link");
        }
        for name in ["venv", "project", "mapped"] {
            let path = self.path(name);
            if path.exists() {
                fs::rename(&path, path.with_extension("gone")).expect("a rename");
            }
        }
        let long_name = "a-container-whose-path-is-longer-than-a-first-line-may-be-".repeat(3);
        let prefix = dir.path().join(long_name).join("venv");
        let activation = compose(&dir.path().join("environment"), &prefix).expect("an environment");
        let mut env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        activation.apply(&mut env);
        NodeEnvironment { dir, env }
    }
}

/// Environment composed at another path.
pub struct NodeEnvironment {
    pub dir: TempDir,
    pub env: BTreeMap<String, String>,
}

impl NodeEnvironment {
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("/usr/bin/env");
        command.args(args).env_clear().envs(&self.env);
        command.current_dir(self.dir.path()).output().expect("env")
    }

    pub fn python(&self, code: &str) -> String {
        stdout_of(&self.run(&["python", "-c", code]))
    }
}

pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

pub fn hashes(packed: &PackedEnvironment) -> Vec<(&'static str, String)> {
    let layers = packed.layers.iter();
    layers.map(|layer| (layer.name, layer.info.hash.clone())).collect()
}
