//! Environments that cannot be packed, and notes about those that can.

use super::workspace::{Bench, hashes, said, write};
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
fn what_cannot_travel_says_why() {
    let check = |change: &dyn Fn(&Bench), expected: &str| {
        let bench = Bench::new();
        change(&bench);
        let report = bench.pack_into("cache", Interpreter::Node).expect_err("refused");
        assert!(report.what.contains(expected), "{report}");
        assert!(report.hint.is_some(), "{report}");
    };
    check(
        &|bench| {
            let link = bench.venv().join("bin/python");
            fs::remove_file(&link).expect("removed");
            symlink("/nowhere/python3", &link).expect("a link");
        },
        "its interpreter `/nowhere/python3` does not exist",
    );
    check(
        &|bench| symlink("/usr/share", bench.site().join("shared")).expect("a link"),
        "leads out of the directory to `/usr/share`",
    );
    check(
        &|bench| {
            bench.put("_theirs_editable_loader.py", "install('theirs', '/home/me/build')\n");
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
fn links_that_lead_nowhere_are_told_of() {
    let bench = Bench::new();
    let their = bench.site().join("their");
    symlink("gone", their.join("dangling")).expect("a link");
    symlink("circle", their.join("circle")).expect("a link");
    // The second time nothing is packed, and it is still true.
    for _ in 0..2 {
        let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
        let [note] = packed.notes.as_slice() else {
            panic!("one note: {packed:?}");
        };
        assert!(note.contains("/their/circle` and another lead nowhere"), "{note}");
    }
}

#[test]
fn layers_go_into_a_directory_or_nowhere() {
    let bench = Bench::bare();
    write(&bench.path("tools/bin/tool"), "#!/bin/sh\n");
    write(&bench.path("taken"), "mine");
    let pack = |to: &str| {
        let mut command = Command::new(ydl_testkit::ydl());
        command.args(["pack", "-o", to, "tools"]);
        command.env("XDG_CACHE_HOME", bench.path("cache"));
        let output = command.current_dir(bench.path("")).output().expect("ydl");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let (code, told) = pack("taken");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("`taken` is a file, and layers are put into a directory"), "{told}");
    assert!(!bench.path("cache").exists(), "found before anything is packed");
    // Where a layer cannot be put, nothing half-done stays.
    fs::create_dir_all(bench.path("out/packages.tar.gz/in the way")).expect("a directory");
    let (code, told) = pack("out");
    assert_eq!(code, Some(123), "{told}");
    let left = fs::read_dir(bench.path("out")).expect("a list");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["packages.tar.gz"]);
    let (code, told) = pack("new/dir");
    assert_eq!(code, Some(0), "{told}");
    assert!(bench.path("new/dir/local.tar.gz").is_file());
}

#[test]
fn what_is_no_environment_of_its_own_says_why() {
    let bench = Bench::bare();
    let report = bench.pack_at(Path::new("/usr"), "cache", Interpreter::Auto);
    let report = report.expect_err("refused");
    assert!(report.what.contains("`/usr` cannot be packed: it is the system"), "{report}");
    assert!(report.hint.is_some(), "{report}");
}

/// A library that needs what it is told, looks for it where it is told, and has one function.
fn library(path: &Path, words: &[String]) {
    let dir = path.parent().expect("a directory");
    fs::create_dir_all(dir).expect("a directory");
    let source = path.with_extension("c");
    write(&source, "#include <math.h>\ndouble f(double x) { return exp(x); }\n");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(path).arg(&source);
    said(&compile.args(words).arg("-lm").output().expect("cc is there"));
    fs::remove_file(source).expect("removed");
}

#[test]
fn what_asks_for_a_newer_c_library_or_looks_at_places_of_this_machine_is_told_of() {
    let bench = Bench::new();
    let venv = bench.venv();
    library(&venv.join("lib/libown.so"), &[]);
    let elsewhere = bench.path("elsewhere");
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
    library(&bench.site().join("their/a.so"), &link(&venv.join("lib"), "-lown"));
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let (major, minor) = packed.manifest.glibc.expect("a version");
    assert!((major, minor) >= (2, 2), "{packed:?}");
    let file = packed.manifest.glibc_file.clone().expect("a file");
    assert!(file.ends_with(".so"), "{file}");
    let python = packed.manifest.python.as_ref().expect("an interpreter");
    assert!(python.packages_need_library_path, "its own `lib` is looked for");
    assert_eq!(packed.notes, Vec::<String>::new());
    library(&bench.site().join("their/b.so"), &link(&elsewhere, "-lother"));
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let note = packed.notes.first().expect("a note");
    let place = elsewhere.display();
    assert!(note.contains("their/b.so` looks for libraries in"), "{note}");
    assert!(note.contains(&format!("`{place}`")), "{note}");
    let there = bench.arrive(&packed);
    let lib = there.env["LD_LIBRARY_PATH"].clone();
    assert!(Path::new(&lib).join("libown.so").is_file(), "{lib}");
    let loads = "import ctypes, their; ctypes.CDLL(their.__path__[0] + '/a.so')";
    assert_eq!(there.python(loads), "");
}

#[test]
fn names_of_any_bytes_arrive() {
    let bench = Bench::new();
    let odd = OsStr::from_bytes(b"\xff not text\n.bin");
    fs::write(bench.site().join("their").join(odd), "odd").expect("a file");
    bench.put("their/mödül.py", "word = 'ü'\n");
    bench.put("their/data file.txt", "spaces");
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let there = bench.arrive(&packed);
    let code = "import os, their, their.mödül
names = sorted(os.listdir(os.fsencode(their.__path__[0])))
print(b'\\xff not text\\n.bin' in names, b'data file.txt' in names, their.mödül.word)";
    assert_eq!(there.python(code), "True True ü");
}

/// Runs `ydl pack` as an unprivileged user, even if the test runs as root. Returns its exit code and its output.
fn packed_by_another(bench: &Bench, what: &Path) -> (Option<i32>, String) {
    let dir = bench.dir.path();
    let ydl = dir.join("ydl");
    // Copied by another process: a fork of this one could hold the file open for writing (`ETXTBSY`).
    let mut copy = Command::new("cp");
    said(&copy.arg(ydl_testkit::ydl()).arg(&ydl).output().expect("cp is there"));
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
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told)
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let bench = Bench::bare();
    let tool = bench.path("tools/bin/tool");
    write(&tool, "#!/bin/sh\n");
    let secret = bench.path("tools/secret key");
    write(&secret, "x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("a mode");
    let (code, told) = packed_by_another(&bench, &bench.path("tools"));
    assert_eq!(code, Some(2), "{told}");
    let expected = format!("cannot read `{}`: permission denied", secret.display());
    assert!(told.contains(&expected), "{told}");
    assert!(told.contains("hint: make it readable"), "{told}");
}

#[test]
fn an_interpreter_that_may_not_be_looked_at_is_no_missing_one() {
    let bench = Bench::new();
    let hidden = bench.path("hidden");
    write(&hidden.join("bin/python3"), "");
    for name in ["python", "python3"] {
        let link = bench.venv().join("bin").join(name);
        fs::remove_file(&link).expect("removed");
        symlink(hidden.join("bin/python3"), &link).expect("a link");
    }
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).expect("a mode");
    for pyvenv in [true, false] {
        if !pyvenv {
            fs::remove_file(bench.venv().join("pyvenv.cfg")).expect("removed");
        }
        let (code, told) = packed_by_another(&bench, &bench.venv());
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("hidden/bin/python3` "), "{told}");
        let permission = told.contains("permission denied") || told.contains("is not readable");
        assert!(permission && !told.contains("is not there"), "{told}");
    }
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn who_packs_the_same_at_the_same_time_gets_the_same() {
    let bench = Bench::new();
    bench.editable();
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| bench.pack_into("cache", Interpreter::Node))).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|packed| packed.expect("no panic").expect("packed")).collect()
    });
    let first = &all[0];
    for other in &all {
        assert_eq!(hashes(first), hashes(other));
    }
    let fresh = |name: &str| {
        let layers = all.iter().flat_map(|packed| &packed.layers);
        layers.filter(|layer| layer.name == name && !layer.cached).count()
    };
    assert_eq!((fresh("packages"), fresh("local")), (1, 1), "one packs, the others wait");
    bench.arrive(first).python("import mine, their");
}

#[test]
fn an_archive_that_is_being_sent_is_not_touched() {
    let bench = Bench::new();
    let packed = bench.pack_into("cache", Interpreter::Node).expect("packed");
    let layer = packed.layers.first().expect("a layer");
    let stamp = || ydl_pack::FileStamp::of(&fs::metadata(&layer.file).expect("a file"));
    let before = stamp();
    let again = bench.pack_into("cache", Interpreter::Node).expect("packed");
    assert!(again.layers.iter().all(|layer| layer.cached));
    assert_eq!(before, stamp());
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
    assert!(note.contains("it is made for aarch64, the interpreter for x86_64"), "{note}");
    assert_eq!(packed.manifest.machine.as_deref(), Some(std::env::consts::ARCH));
}
