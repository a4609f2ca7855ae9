//! Environments packed at one place and put together at another.

mod building;
mod misuse;
mod prefix;
mod workspace;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use workspace::{Bench, hashes, said, write};
use ydl_core::spec::{self, Environment, Interpreter};
use ydl_pack::{Cache, pack};

#[test]
fn an_environment_works_at_another_path_and_its_byte_code_is_used() {
    let bench = Bench::new();
    bench.editable();
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert_eq!(packed.layers.len(), 2, "{packed:?}");
    let there = bench.arrive(&packed);
    let site = there.python("import their; print(their.__file__)");
    assert!(site.starts_with(&there.dir.path().display().to_string()), "{site}");
    let words = "import mine, flat, single, space.mine, space.theirs, their
print(mine.word, flat.word, single.word, space.mine.word, space.theirs.word, their.word)";
    assert_eq!(there.python(words), "mine flat single mine too theirs their");
    assert_eq!(said(&there.run(&["their-tool", "a b"])), "their a b");
    assert_eq!(said(&there.run(&["my-tool"])), "mine");
    let same = "import sys, os; print(sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix != sys.base_prefix)";
    assert_eq!(there.python(same), "True True");
    let version =
        "from importlib.metadata import version; print(version('mine'), version('their'))";
    assert_eq!(there.python(version), "1.0 1.0");

    let told = there.run(&["python", "-v", "-B", "-c", "import their, mine, single"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    for name in ["their/__init__", "their/part", "mine/__init__", "site-packages/single"] {
        let source = format!("{name}.py");
        let used = told.lines().any(|line| line.contains(" matches ") && line.ends_with(&source));
        assert!(used, "the byte code of {name} is not used: {told}");
    }
    let local = packed.layers.last().expect("a layer");
    let listed = Command::new("tar").arg("-tzf").arg(&local.file).output().expect("tar");
    let listed = said(&listed);
    assert!(!listed.contains(".git") && !listed.contains("pyvenv.cfg"), "{listed}");
}

#[test]
fn an_interpreter_that_travels_is_the_one_that_runs() {
    let bench = Bench::new();
    let packed = bench.pack_into("cache", Interpreter::Bundle).expect("packed");
    let names: Vec<_> = packed.layers.iter().map(|layer| layer.name).collect();
    assert_eq!(names, ["interpreter", "packages", "local"]);
    let there = bench.arrive(&packed);
    let base = there.python("import sys, json, ssl, ctypes; print(sys.base_prefix)");
    let bundled =
        there.dir.path().join("filecache/interpreter/layer.tar.gz.unpacked").canonicalize();
    assert_eq!(Path::new(&base), bundled.expect("a path"));
    let told = there.run(&["python", "-v", "-B", "-c", "import json"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let used =
        told.lines().any(|line| line.contains(" matches ") && line.ends_with("json/__init__.py"));
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
    let anew = bench.pack_into("another-cache", Interpreter::Node).expect("packed");
    assert_eq!(hashes(&first), hashes(&again));
    assert_eq!(hashes(&first), hashes(&anew));
    for (one, other) in first.layers.iter().zip(&anew.layers) {
        assert_ne!(one.file, other.file);
        assert_eq!(fs::read(&one.file).expect("bytes"), fs::read(&other.file).expect("bytes"));
    }
    write(&bench.path("project/src/mine/__init__.py"), "word = 'changed'\n");
    let changed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let fresh: Vec<_> = changed.layers.iter().filter(|layer| !layer.cached).collect();
    assert_eq!(fresh.len(), 1);
    assert_eq!(fresh[0].name, "local");
    assert!(fresh[0].known.bytes < 100_000, "{fresh:?}");
    assert_ne!(hashes(&first), hashes(&changed));
    assert_eq!(bench.arrive(&changed).python("import mine; print(mine.word)"), "changed");
}

#[test]
fn nothing_is_written_into_the_environment_itself() {
    let bench = Bench::new();
    let list = || {
        let found = Command::new("find").arg(bench.venv()).output().expect("find");
        said(&found)
    };
    let before = list();
    assert!(!before.contains("part.cpython"), "it has no byte code yet");
    bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert_eq!(list(), before);
}

#[test]
fn a_directory_without_python_travels_as_it_is() {
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
    let bench = Bench { dir };
    assert_eq!(said(&bench.arrive(&packed).run(&["tool"])), "hello");
}
