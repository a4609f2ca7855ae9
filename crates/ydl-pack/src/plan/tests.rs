//! Round trips of plans through archives.

use super::*;
use std::os::unix::fs::symlink;

fn packed(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    Plan::of(dir).expect("a plan").write(&mut bytes).expect("an archive");
    bytes
}

fn fill(dir: &Path, names: &[&str]) {
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    for name in names {
        fs::write(dir.join(name), format!("this is {name}")).expect("a file");
    }
    symlink("sub", dir.join("alias")).expect("a link");
}

#[test]
fn equal_content_gives_equal_archives() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    fill(&one, &["b", "a", "sub/c"]);
    fill(&two, &["sub/c", "a", "b"]);
    assert_eq!(packed(&one), packed(&two), "order and times do not matter");
    fs::set_permissions(two.join("a"), fs::Permissions::from_mode(0o755)).expect("a mode");
    assert_ne!(packed(&one), packed(&two), "the mode matters");
}

#[test]
fn ignored_files_are_left_out() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    fill(&one, &["a", "sub/c"]);
    fill(&two, &["a", "a.log", "sub/c", "sub/c.log", "secret"]);
    fs::create_dir(two.join("sub/cache")).expect("a directory");
    let ignore = ["*.log", "/secret", "cache/"].map(str::to_owned);
    let mut bytes = Vec::new();
    Plan::without(&two, &ignore).expect("a plan").write(&mut bytes).expect("an archive");
    assert_eq!(bytes, packed(&one));
}

#[test]
fn archives_round_trip() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path().join("in");
    fill(&dir, &["a", "sub/c"]);
    let long = "x".repeat(200);
    fs::write(dir.join("sub").join(&long), "long").expect("a file");
    fs::write(scratch.path().join("out-there"), "outside").expect("a file");
    symlink("../out-there", dir.join("followed")).expect("a link");
    symlink(dir.join("a"), dir.join("sub/up")).expect("a link");
    symlink("nowhere", dir.join("dangling")).expect("a link");
    let out = scratch.path().join("out");
    tar::Archive::new(packed(&dir).as_slice()).unpack(&out).expect("unpacked");
    let read = |name: &str| fs::read_to_string(out.join(name)).expect("a file");
    assert_eq!(read("sub/c"), "this is sub/c");
    assert_eq!(read("alias/c"), "this is sub/c");
    assert_eq!(read("followed"), "outside");
    assert!(!out.join("followed").is_symlink());
    assert_eq!(fs::read_link(out.join("sub/up")).expect("a link"), Path::new("../a"));
    assert_eq!(read(&format!("sub/{long}")), "long");
    assert!(!out.join("dangling").is_symlink());
}

#[test]
fn dangling_links_are_skipped_with_a_note() {
    let dir = tempfile::tempdir().expect("a directory");
    fill(dir.path(), &["a"]);
    assert_eq!(Plan::of(dir.path()).expect("a plan").notes(), [""; 0]);
    let notes = || {
        let plan = Plan::of(dir.path()).expect("a plan");
        let names: Vec<_> = plan.entries.keys().map(|name| name.display().to_string()).collect();
        assert_eq!(names, ["a", "alias", "sub"]);
        plan.notes().join("\n")
    };
    let link = |to: &str, name: &str| symlink(to, dir.path().join(name)).expect("a link");
    link("nowhere", "dangling");
    assert!(notes().starts_with("skipping the dangling link `"), "{}", notes());
    assert!(notes().ends_with("/dangling`"), "{}", notes());
    link("two", "one");
    link("one", "two");
    assert!(notes().starts_with("skipping 3 dangling links, such as `"), "{}", notes());
}

#[test]
fn a_link_to_a_directory_outside_is_rejected() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path().join("in");
    fill(&dir, &[]);
    fs::create_dir(scratch.path().join("elsewhere")).expect("a directory");
    symlink("../elsewhere", dir.join("away")).expect("a link");
    let report = Plan::of(&dir).expect_err("an error");
    assert!(report.what.contains("a link to the outside directory"), "{report}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    let scratch = tempfile::tempdir().expect("a directory");
    fill(scratch.path(), &["a"]);
    let plan = Plan::of(scratch.path()).expect("a plan");
    fs::write(scratch.path().join("a"), "something longer than before").expect("a file");
    let error = plan.write(io::sink()).expect_err("a changed file");
    assert!(error.to_string().contains("changed while it was read"), "{error}");
}

#[test]
fn new_byte_code_does_not_change_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let key = || Plan::of(dir.path()).unwrap().key("");
    put("a.py", "x = 1\n");
    let before = key();
    put("__pycache__/a.cpython-311.pyc", "byte code");
    assert_eq!(key(), before);
    put("__pycache__/gone.cpython-311.pyc", "byte code");
    let with_orphan = key();
    assert_ne!(with_orphan, before, "byte code without a source is content");
    put("a.py", "x = 12\n");
    assert_ne!(key(), with_orphan);
}
