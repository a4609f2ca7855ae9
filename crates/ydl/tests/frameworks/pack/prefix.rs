//! An interpreter with everything around it, as conda makes it.

use super::workspace::{Bench, said, write};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use ydl_core::spec::Interpreter;
use ydl_testkit::packed_mxnet_environments;

/// Where it is: conda takes no names with spaces.
fn prefix(bench: &Bench) -> PathBuf {
    bench.dir.path().join("prefix")
}

/// An environment as conda leaves it: packages of its own with their records, one of pip's, texts and scripts that name
/// the place.
fn conda(bench: &Bench) -> String {
    let prefix = prefix(bench);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(packed_mxnet_environments().join("bare")).arg(&prefix);
    said(&copy.output().expect("cp is there"));
    let here = prefix.display().to_string();
    let put = |name: &str, text: &str| write(&prefix.join(name), text);
    let library = fs::read_dir(prefix.join("lib")).expect("a list").flatten();
    let mut library = library.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let library = library.find(|name| name.starts_with("python3."));
    let library = library.expect("a standard library");
    let at = |name: &str| format!("lib/{library}/site-packages/{name}");
    put("conda-meta/history", &format!("# cmd: conda create --prefix {here}\n"));
    put(
        "conda-meta/tool-1.json",
        r#"{"name": "tool", "paths_data": {"paths": [{"_path": "lib/libtool.so", "file_mode": "binary"}]}}"#,
    );
    put("lib/libtool.so", "a library");
    put("etc/tool.conf", &format!("root = {here}/share\n"));
    put("share/tool/data", "data");
    put(&at("theirs/__init__.py"), &format!("place = '{here}'\n"));
    put(&at("theirs-1.dist-info/INSTALLER"), "conda\n");
    put(&at("theirs-1.dist-info/RECORD"), "theirs/__init__.py,,\n");
    put(&at("pure.py"), "word = 'pure'\n");
    put(&at("pure-1.dist-info/INSTALLER"), "pip\n");
    put(&at("pure-1.dist-info/METADATA"), "Name: pure\nVersion: 1\n");
    put(&at("pure-1.dist-info/RECORD"), "pure.py,,\npure-1.dist-info/METADATA,,\n");
    write(&bench.path("project/mine.py"), "word = 'mine'\n");
    put(&at("mine.pth"), &format!("{}\n", bench.path("project").display()));
    for (name, text) in [
        ("tool", format!("#!{here}/bin/python\nimport pure\nprint(pure.word)\n")),
        ("shell", "#!/bin/sh\necho shell\n".to_owned()),
        ("calls", format!("#!{here}/bin/shell\n")),
        ("says", format!("#!/bin/sh\necho {here}/share\n")),
    ] {
        put(&format!("bin/{name}"), &text);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(prefix.join("bin").join(name), mode).expect("a mode");
    }
    here
}

#[test]
fn an_environment_of_condas_works_at_another_path_and_names_that() {
    let bench = Bench::bare();
    let old = conda(&bench);
    let prefix = prefix(&bench);
    let refused = bench.pack_at(&prefix, "cache", Interpreter::Node);
    let refused = refused.expect_err("it needs its interpreter");
    assert!(refused.what.contains("without its interpreter"), "{refused}");
    let packed = bench.pack_at(&prefix, "cache", Interpreter::Auto);
    let packed = packed.expect("packed");
    let names: Vec<_> = packed.layers.iter().map(|layer| layer.name).collect();
    assert_eq!(names, ["interpreter", "packages", "local"]);
    let expected = format!(
        "`lib/libtool.so` of the environment looks for its own files below `{old}`, where they are not on a node"
    );
    assert_eq!(packed.notes, [expected]);
    assert!(packed.layers[1].known.bytes < 10_000, "what pip installed is by itself");
    assert!(packed.layers[2].known.bytes < 10_000, "and so is the user's own");
    let anew = bench.pack_at(&prefix, "other-cache", Interpreter::Auto);
    assert_eq!(super::hashes(&packed), super::hashes(&anew.expect("packed")));

    fs::rename(&prefix, prefix.with_extension("gone")).expect("a rename");
    let there = bench.arrive(&packed);
    let code = "import sys, os, json, ctypes, ssl, mine, pure, theirs
print(sys.prefix == sys.base_prefix == os.environ['CONDA_PREFIX'] == theirs.place, mine.word, pure.word)";
    assert_eq!(there.python(code), "True mine pure");
    assert!(!there.env.contains_key("VIRTUAL_ENV"));
    let prefix = Path::new(&there.env["CONDA_PREFIX"]);
    let read = |name: &str| fs::read_to_string(prefix.join(name)).expect("a file");
    let here = prefix.display();
    assert_eq!(read("etc/tool.conf"), format!("root = {here}/share\n"));
    assert_eq!(read("share/tool/data"), "data");
    assert_eq!(said(&there.run(&["tool"])), "pure");
    assert_eq!(said(&there.run(&["calls"])), "shell");
    assert_eq!(said(&there.run(&["says"])), format!("{here}/share"));
    // What is compiled into the standard library is found where it is, and so is byte code.
    let told = there.run(&["python", "-v", "-B", "-c", "import json, pure"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    for name in ["json/__init__.py", "pure.py"] {
        let mut lines = told.lines();
        let used = lines.any(|line| line.contains(" matches ") && line.ends_with(name));
        assert!(used, "the byte code of {name} is not used: {told}");
    }
}
