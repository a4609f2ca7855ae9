//! Environments that cannot be packed, and notes about those that can.

use super::workspace::{PackWorkspace, hashes, stdout_of, write};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    thread,
};
use ydl_core::spec::Interpreter;

#[test]
fn environments_that_cannot_be_packed_are_rejected_with_the_reason() {
    let check = |change: &dyn Fn(&PackWorkspace), expected: &str| {
        let workspace = PackWorkspace::new();
        change(&workspace);
        let report = workspace.pack_into("cache", Interpreter::Node).expect_err("refused");
        assert!(report.what.contains(expected), "{report}");
        assert!(report.hint.is_some(), "{report}");
    };
    check(
        &|workspace| {
            let link = workspace.venv().join("bin/python");
            fs::remove_file(&link).expect("removed");
            symlink("/nowhere/python3", &link).expect("a link");
        },
        "its interpreter `/nowhere/python3` does not exist",
    );
    check(
        &|workspace| symlink("/usr/share", workspace.site().join("shared")).expect("a link"),
        "it is a link to the outside directory `/usr/share`",
    );
    check(
        &|workspace| {
            workspace.put("_theirs_editable_loader.py", "install('theirs', '/home/me/build')\n");
            workspace.put("theirs-editable.pth", "import _theirs_editable_loader\n");
        },
        "`_theirs_editable_loader` imports an editable package from paths of this machine",
    );
    check(
        &|workspace| {
            fs::rename(workspace.site(), workspace.site().with_extension("x")).expect("moved")
        },
        "it has no `lib/python3.…/site-packages`",
    );
}

#[test]
fn broken_links_are_noted() {
    let workspace = PackWorkspace::new();
    let their = workspace.site().join("their");
    symlink("gone", their.join("dangling")).expect("a link");
    symlink("circle", their.join("circle")).expect("a link");
    // The note is repeated when the cached result is used.
    for _ in 0..2 {
        let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
        let [note] = packed.notes.as_slice() else {
            panic!("one note: {packed:?}");
        };
        assert!(note.starts_with("skipping 2 dangling links, such as `"), "{note}");
        assert!(note.ends_with("/their/circle`"), "{note}");
    }
}

#[test]
fn layers_are_written_completely_or_not_at_all() {
    let workspace = PackWorkspace::empty();
    write(&workspace.path("tools/bin/tool"), "#!/bin/sh\n");
    write(&workspace.path("taken"), "mine");
    let pack = |to: &str| {
        let mut command = Command::new(ydl_testkit::ydl());
        command.args(["pack", "-o", to, "tools"]);
        command.env("XDG_CACHE_HOME", workspace.path("cache"));
        let output = command.current_dir(workspace.path("")).output().expect("ydl");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), message)
    };
    let (code, message) = pack("taken");
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("`taken` is a file, and `-o` needs a directory"), "{message}");
    assert!(!workspace.path("cache").exists(), "packed before the error");
    // If a layer cannot be written, no partial file is left.
    fs::create_dir_all(workspace.path("out/packages.tar.gz/in the way")).expect("a directory");
    let (code, message) = pack("out");
    assert_eq!(code, Some(123), "{message}");
    let left = fs::read_dir(workspace.path("out")).expect("a list");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["packages.tar.gz"]);
    let (code, message) = pack("new/dir");
    assert_eq!(code, Some(0), "{message}");
    assert!(workspace.path("new/dir/local.tar.gz").is_file());
}

#[test]
fn the_system_interpreter_is_rejected_as_an_environment() {
    let workspace = PackWorkspace::empty();
    let report = workspace.pack_at(Path::new("/usr"), "cache", Interpreter::Auto);
    let report = report.expect_err("refused");
    assert!(report.what.contains("`/usr` cannot be packed: it is the system"), "{report}");
    assert!(report.hint.is_some(), "{report}");
}

/// Builds a library with one function and these linker options.
fn library(path: &Path, args: &[String]) {
    let dir = path.parent().expect("a directory");
    fs::create_dir_all(dir).expect("a directory");
    let source = path.with_extension("c");
    write(&source, "#include <math.h>\ndouble f(double x) { return exp(x); }\n");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(path).arg(&source);
    stdout_of(&compile.args(args).arg("-lm").output().expect("cc is found"));
    fs::remove_file(source).expect("removed");
}

#[test]
fn library_requirements_and_absolute_library_paths_are_detected() {
    let workspace = PackWorkspace::new();
    let venv = workspace.venv();
    library(&venv.join("lib/libown.so"), &[]);
    let elsewhere = workspace.path("elsewhere");
    library(&elsewhere.join("libother.so"), &[]);
    let link = |dir: &Path, name: &str| {
        let dir = dir.display();
        vec![
            format!("-Wl,-rpath,{dir}"),
            format!("-L{dir}"),
            "-Wl,--no-as-needed".to_owned(),
            name.to_owned(),
        ]
    };
    library(&workspace.site().join("their/a.so"), &link(&venv.join("lib"), "-lown"));
    let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    let (major, minor) = packed.manifest.glibc.expect("a version");
    assert!((major, minor) >= (2, 2), "{packed:?}");
    let file = packed.manifest.glibc_file.clone().expect("a file");
    assert!(file.ends_with(".so"), "{file}");
    let python = packed.manifest.python.as_ref().expect("an interpreter");
    assert!(python.packages_need_library_path, "the library path is not set");
    assert_eq!(packed.notes, Vec::<String>::new());
    library(&workspace.site().join("their/b.so"), &link(&elsewhere, "-lother"));
    let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    let note = packed.notes.first().expect("a note");
    let expected = elsewhere.display();
    assert!(note.contains("their/b.so` looks for libraries in"), "{note}");
    assert!(note.contains(&format!("`{expected}`")), "{note}");
    let node = workspace.unpack_on_node(&packed);
    let lib = node.env["LD_LIBRARY_PATH"].clone();
    assert!(Path::new(&lib).join("libown.so").is_file(), "{lib}");
    let loads = "import ctypes, their; ctypes.CDLL(their.__path__[0] + '/a.so')";
    assert_eq!(node.python(loads), "");
}

#[test]
fn file_names_of_any_bytes_are_packed() {
    let workspace = PackWorkspace::new();
    let non_utf8 = OsStr::from_bytes(b"\xff not text\n.bin");
    fs::write(workspace.site().join("their").join(non_utf8), "odd").expect("a file");
    workspace.put("their/mödül.py", "word = 'ü'\n");
    workspace.put("their/data file.txt", "spaces");
    let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    let node = workspace.unpack_on_node(&packed);
    let code = "import os, their, their.mödül
names = sorted(os.listdir(os.fsencode(their.__path__[0])))
print(b'\\xff not text\\n.bin' in names, b'data file.txt' in names, their.mödül.word)";
    assert_eq!(node.python(code), "True True ü");
}

/// Runs `ydl pack` as an unprivileged user, even if the test runs as root. Returns its exit code and its output.
fn pack_unprivileged(workspace: &PackWorkspace, what: &Path) -> (Option<i32>, String) {
    let dir = workspace.dir.path();
    let ydl = dir.join("ydl");
    // Copied by another process: a fork of this one could hold the file open for writing (`ETXTBSY`).
    let mut copy = Command::new("cp");
    stdout_of(&copy.arg(ydl_testkit::ydl()).arg(&ydl).output().expect("cp is found"));
    for (path, mode) in [(dir.to_path_buf(), 0o755), (dir.join("cache"), 0o777)] {
        fs::create_dir_all(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let mut command = Command::new(ydl);
    command.arg("pack").arg(what);
    command.current_dir("/").env("XDG_CACHE_HOME", dir.join("cache"));
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().expect("ydl can be started");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), message)
}

#[test]
fn an_unreadable_file_is_named() {
    let workspace = PackWorkspace::empty();
    let tool = workspace.path("tools/bin/tool");
    write(&tool, "#!/bin/sh\n");
    let secret = workspace.path("tools/secret key");
    write(&secret, "x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("a mode");
    let (code, message) = pack_unprivileged(&workspace, &workspace.path("tools"));
    assert_eq!(code, Some(2), "{message}");
    let expected = format!("cannot read `{}`: permission denied", secret.display());
    assert!(message.contains(&expected), "{message}");
    assert!(message.contains("hint: make it readable"), "{message}");
}

#[test]
fn an_inaccessible_interpreter_is_not_reported_as_missing() {
    let workspace = PackWorkspace::new();
    let hidden = workspace.path("hidden");
    write(&hidden.join("bin/python3"), "");
    for name in ["python", "python3"] {
        let link = workspace.venv().join("bin").join(name);
        fs::remove_file(&link).expect("removed");
        symlink(hidden.join("bin/python3"), &link).expect("a link");
    }
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).expect("a mode");
    for pyvenv in [true, false] {
        if !pyvenv {
            fs::remove_file(workspace.venv().join("pyvenv.cfg")).expect("removed");
        }
        let (code, message) = pack_unprivileged(&workspace, &workspace.venv());
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("hidden/bin/python3` "), "{message}");
        let permission =
            message.contains("permission denied") || message.contains("is not readable");
        assert!(permission && !message.contains("is not there"), "{message}");
    }
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn concurrent_packing_of_one_environment_gives_one_result() {
    let workspace = PackWorkspace::new();
    workspace.editable();
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| workspace.pack_into("cache", Interpreter::Node)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|packed| packed.expect("no panic").expect("packed")).collect()
    });
    let first = &all[0];
    for other in &all {
        assert_eq!(hashes(first), hashes(other));
    }
    let built_count = |name: &str| {
        let layers = all.iter().flat_map(|packed| &packed.layers);
        layers.filter(|layer| layer.name == name && !layer.cached).count()
    };
    assert_eq!(
        (built_count("packages"), built_count("local")),
        (1, 1),
        "each layer is packed once"
    );
    workspace.unpack_on_node(first).python("import mine, their");
}

#[test]
fn packing_again_does_not_modify_existing_archives() {
    let workspace = PackWorkspace::new();
    let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    let layer = packed.layers.first().expect("a layer");
    let stamp = || ydl_pack::FileStamp::of(&fs::metadata(&layer.file).expect("a file"));
    let before = stamp();
    let again = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    assert!(again.layers.iter().all(|layer| layer.cached));
    assert_eq!(before, stamp());
}

#[test]
fn a_library_for_another_machine_is_noted() {
    let workspace = PackWorkspace::new();
    let own = std::env::current_exe().expect("a path");
    let mut bytes = fs::read(own).expect("a program")[..4096].to_vec();
    // The machine of a 64-bit ARM.
    bytes[18] = 183;
    let path = workspace.site().join("their/fast.so");
    fs::write(path, bytes).expect("a file");
    let packed = workspace.pack_into("cache", Interpreter::Node).expect("packed");
    let note = packed.notes.iter().find(|note| note.contains("fast.so"));
    let note = note.expect("a note");
    assert!(
        note.contains("fast.so` is built for aarch64, and the interpreter for x86_64"),
        "{note}"
    );
    assert_eq!(packed.manifest.machine.as_deref(), Some(std::env::consts::ARCH));
}
