//! Environments packed at one path and composed at another.

mod building;
mod misuse;
mod prefix;
mod workspace;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use workspace::{PackWorkspace, hashes, stdout_of, write};
use ydl_core::spec::{self, Environment, Interpreter};
use ydl_pack::{Cache, pack};

#[test]
fn a_relocated_environment_works_and_uses_its_byte_code() {
    let workspace = PackWorkspace::new();
    workspace.editable();
    let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    assert_eq!(packed.layers.len(), 2, "{packed:?}");
    let node = workspace.unpack_on_node(&packed);
    let site = node.python("import their; print(their.__file__)");
    assert!(site.starts_with(&node.dir.path().display().to_string()), "{site}");
    let args = "import mine, flat, single, space.mine, space.theirs, their
print(mine.word, flat.word, single.word, space.mine.word, space.theirs.word, their.word)";
    assert_eq!(node.python(args), "mine flat single mine too theirs their");
    assert_eq!(stdout_of(&node.run(&["their-tool", "a b"])), "their a b");
    assert_eq!(stdout_of(&node.run(&["my-tool"])), "mine");
    let same = "import sys, os; print(sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix != sys.base_prefix)";
    assert_eq!(node.python(same), "True True");
    let version =
        "from importlib.metadata import version; print(version('mine'), version('their'))";
    assert_eq!(node.python(version), "1.0 1.0");

    let output = node.run(&["python", "-v", "-B", "-c", "import their, mine, single"]);
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    for name in ["their/__init__", "their/part", "mine/__init__", "site-packages/single"] {
        let source = format!("{name}.py");
        let used = output.lines().any(|line| line.contains(" matches ") && line.ends_with(&source));
        assert!(used, "the byte code of {name} is not used: {output}");
    }
    let local = packed.layers.last().expect("a layer");
    let listed = Command::new("tar").arg("-tzf").arg(&local.file).output().expect("tar");
    let listed = stdout_of(&listed);
    assert!(!listed.contains(".git") && !listed.contains("pyvenv.cfg"), "{listed}");
}

#[test]
fn a_bundled_interpreter_is_used() {
    let workspace = PackWorkspace::new();
    let packed = workspace.pack_into("cache", Interpreter::Bundle).expect("packed");
    let names: Vec<_> = packed.layers.iter().map(|layer| layer.name).collect();
    assert_eq!(names, ["interpreter", "packages", "local"]);
    let node = workspace.unpack_on_node(&packed);
    let base = node.python("import sys, json, ssl, ctypes; print(sys.base_prefix)");
    let bundled =
        node.dir.path().join("filecache/interpreter/layer.tar.gz.unpacked").canonicalize();
    assert_eq!(Path::new(&base), bundled.expect("a path"));
    let output = node.run(&["python", "-v", "-B", "-c", "import json"]);
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    let used =
        output.lines().any(|line| line.contains(" matches ") && line.ends_with("json/__init__.py"));
    assert!(used, "{output}");
}

#[test]
fn packing_is_reproducible_and_a_changed_line_changes_one_layer() {
    let workspace = PackWorkspace::new();
    workspace.editable();
    let lines: String = (0..2000).map(|n| format!("value_{n} = {}\n", n * 7919 % 10007)).collect();
    write(&workspace.site().join("their/large.py"), &lines);
    let first = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    assert!(first.layers.iter().all(|layer| !layer.cached));
    let again = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    assert!(again.layers.iter().all(|layer| layer.cached));
    let anew = workspace.pack_into("another-cache", Interpreter::Node).expect("packed");
    assert_eq!(hashes(&first), hashes(&again));
    assert_eq!(hashes(&first), hashes(&anew));
    for (one, other) in first.layers.iter().zip(&anew.layers) {
        assert_ne!(one.file, other.file);
        assert_eq!(fs::read(&one.file).expect("bytes"), fs::read(&other.file).expect("bytes"));
    }
    write(&workspace.path("project/src/mine/__init__.py"), "word = 'changed'\n");
    let changed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    let rebuilt: Vec<_> = changed.layers.iter().filter(|layer| !layer.cached).collect();
    assert_eq!(rebuilt.len(), 1);
    assert_eq!(rebuilt[0].name, "local");
    let unchanged = changed.layers.iter().filter(|layer| layer.cached);
    let unchanged: u64 = unchanged.map(|layer| layer.info.bytes).sum();
    assert!(rebuilt[0].info.bytes < unchanged, "{changed:?}");
    assert_ne!(hashes(&first), hashes(&changed));
    assert_eq!(
        workspace.unpack_on_node(&changed).python("import mine; print(mine.word)"),
        "changed"
    );
}

#[test]
fn packing_does_not_modify_the_environment() {
    let workspace = PackWorkspace::new();
    let list = || {
        let found = Command::new("find").arg(workspace.venv()).output().expect("find");
        stdout_of(&found)
    };
    let before = list();
    assert!(!before.contains("part.cpython"), "byte code exists before packing");
    workspace.pack_into("cache", Interpreter::Node).expect("packed");
    assert_eq!(list(), before);
}

#[test]
fn a_directory_without_python_is_packed_unchanged() {
    let dir = tempfile::tempdir().expect("a directory");
    let tool = dir.path().join("tools/bin/tool");
    write(&tool, "#!/bin/sh\necho hello\n");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a mode");
    let environment = Environment::Directory(spec::PackedEnvironment {
        path: dir.path().join("tools").display().to_string(),
        interpreter: Interpreter::Auto,
    });
    let packed = pack(&environment, &Cache::at(dir.path().join("cache"))).expect("packed");
    assert_eq!(packed.manifest.python, None);
    let workspace = PackWorkspace { dir };
    assert_eq!(stdout_of(&workspace.unpack_on_node(&packed).run(&["tool"])), "hello");
}
