//! Prefixes with an interpreter, as conda creates them.

use super::workspace::{PackWorkspace, stdout_of, write};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use ydl_core::spec::Interpreter;
use ydl_testkit::packed_mxnet_environments;

/// Returns the path of the prefix. Conda does not allow spaces in it.
fn prefix(workspace: &PackWorkspace) -> PathBuf {
    workspace.dir.path().join("prefix")
}

/// Creates an environment like conda's: packages with records, one installed by pip, and texts and scripts that contain
/// its path.
fn conda(workspace: &PackWorkspace) -> String {
    let prefix = prefix(workspace);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(packed_mxnet_environments().join("bare")).arg(&prefix);
    stdout_of(&copy.output().expect("cp is found"));
    let root = prefix.display().to_string();
    let put = |name: &str, text: &str| write(&prefix.join(name), text);
    let library = fs::read_dir(prefix.join("lib")).expect("a list").flatten();
    let mut library = library.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let library = library.find(|name| name.starts_with("python3."));
    let library = library.expect("a standard library");
    let at = |name: &str| format!("lib/{library}/site-packages/{name}");
    put("conda-meta/history", &format!("# cmd: conda create --prefix {root}\n"));
    put(
        "conda-meta/tool-1.json",
        r#"{"name": "tool", "paths_data": {"paths": [{"_path": "lib/libtool.so", "file_mode": "binary"}]}}"#,
    );
    put("lib/libtool.so", "a library");
    put("etc/tool.conf", &format!("root = {root}/share\n"));
    put("share/tool/data", "data");
    put(&at("theirs/__init__.py"), &format!("place = '{root}'\n"));
    put(&at("theirs-1.dist-info/INSTALLER"), "conda\n");
    put(&at("theirs-1.dist-info/RECORD"), "theirs/__init__.py,,\n");
    put(&at("pure.py"), "word = 'pure'\n");
    put(&at("pure-1.dist-info/INSTALLER"), "pip\n");
    put(&at("pure-1.dist-info/METADATA"), "Name: pure\nVersion: 1\n");
    put(&at("pure-1.dist-info/RECORD"), "pure.py,,\npure-1.dist-info/METADATA,,\n");
    write(&workspace.path("project/mine.py"), "word = 'mine'\n");
    put(&at("mine.pth"), &format!("{}\n", workspace.path("project").display()));
    for (name, text) in [
        ("tool", format!("#!{root}/bin/python\nimport pure\nprint(pure.word)\n")),
        ("shell", "#!/bin/sh\necho shell\n".to_owned()),
        ("calls", format!("#!{root}/bin/shell\n")),
        ("says", format!("#!/bin/sh\necho {root}/share\n")),
    ] {
        put(&format!("bin/{name}"), &text);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(prefix.join("bin").join(name), mode).expect("a mode");
    }
    root
}

#[test]
fn a_relocated_conda_environment_works_and_names_its_new_path() {
    let workspace = PackWorkspace::empty();
    let old = conda(&workspace);
    let prefix = prefix(&workspace);
    let refused = workspace.pack_at(&prefix, "cache", Interpreter::Node);
    let refused = refused.expect_err("it needs its interpreter");
    assert!(refused.what.contains("without its interpreter"), "{refused}");
    let packed = workspace.pack_at(&prefix, "cache", Interpreter::Auto);
    let packed = packed.expect("packed");
    let names: Vec<_> = packed.layers.iter().map(|layer| layer.name).collect();
    assert_eq!(names, ["interpreter", "packages", "local"]);
    let expected = format!(
        "`lib/libtool.so` of the environment contains its path `{old}`, which does not exist on the nodes"
    );
    assert_eq!(packed.notes, [expected]);
    // The interpreter with its libraries is by far the largest layer.
    let sizes: Vec<_> = packed.layers.iter().map(|layer| layer.info.bytes).collect();
    assert!(sizes[1] * 10 < sizes[0] && sizes[2] * 10 < sizes[0], "{sizes:?}");
    let repeated = workspace.pack_at(&prefix, "other-cache", Interpreter::Auto);
    assert_eq!(super::hashes(&packed), super::hashes(&repeated.expect("packed")));

    fs::rename(&prefix, prefix.with_extension("gone")).expect("a rename");
    let node = workspace.unpack_on_node(&packed);
    let code = "import sys, os, json, ctypes, ssl, mine, pure, theirs
print(sys.prefix == sys.base_prefix == os.environ['CONDA_PREFIX'] == theirs.place, mine.word, pure.word)";
    assert_eq!(node.python(code), "True mine pure");
    assert!(!node.env.contains_key("VIRTUAL_ENV"));
    let prefix = Path::new(&node.env["CONDA_PREFIX"]);
    let read = |name: &str| fs::read_to_string(prefix.join(name)).expect("a file");
    let root = prefix.display();
    assert_eq!(read("etc/tool.conf"), format!("root = {root}/share\n"));
    assert_eq!(read("share/tool/data"), "data");
    assert_eq!(stdout_of(&node.run(&["tool"])), "pure");
    assert_eq!(stdout_of(&node.run(&["calls"])), "shell");
    assert_eq!(stdout_of(&node.run(&["says"])), format!("{root}/share"));
    // The standard library is found, and byte code is used.
    let output = node.run(&["python", "-v", "-B", "-c", "import json, pure"]);
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    for name in ["json/__init__.py", "pure.py"] {
        let mut lines = output.lines();
        let used = lines.any(|line| line.contains(" matches ") && line.ends_with(name));
        assert!(used, "the byte code of {name} is not used: {output}");
    }
}
