use super::*;
use std::os::unix::fs::symlink;

fn write(dir: &Path, names: &[&str]) {
    for name in names {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "text").unwrap();
    }
}

/// Returns the shipped files as in a job file, with the notes.
fn shipped(dir: &Path, home: Option<&str>) -> (String, String) {
    let mut builder = JobFileBuilder::empty();
    ship(&mut builder, "train.py", dir, home);
    let notes = builder.notes.join("\n");
    builder.notes.clear();
    let files = builder.to_yaml("");
    let here = format!("{}/", dir.display());
    (files.trim_start_matches("# \n").replace(&here, ""), notes.replace(&here, ""))
}

#[test]
fn modules_and_packages_beside_a_script_are_shipped() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (dir, outside) = (dir.path(), outside.path());
    let inside = [
        "train.py",
        "model.py",
        "log.txt",
        "common/fit.py",
        "common/labels.txt",
        "common/__pycache__/fit.pyc",
        "common/old/a.ckpt",
        "data/images.rec",
        "venv/pyvenv.cfg",
        "venv/lib/os.py",
        ".git/hook.py",
        "drafts/try.py",
        "src/pkg/mod.py",
        "src/raw/big.bin",
    ];
    write(dir, &inside);
    write(outside, &["lib/util.py", "disk/images.rec"]);
    symlink(outside.join("lib"), dir.join("lib")).unwrap();
    symlink(outside.join("disk"), dir.join("disk")).unwrap();
    symlink(outside, dir.join("common/outside")).unwrap();
    symlink("nowhere", dir.join("broken.py")).unwrap();
    fs::write(dir.join(IGNORE_FILE), "# not needed\n\n*.ckpt\ndrafts/\nsrc/raw\n").unwrap();
    let (files, notes) = shipped(dir, None);
    assert_eq!(
        files,
        "files:\n  - {common: {source: common, ignore: [\"*.ckpt\", /outside, __pycache__]}}\n  - lib\n  - model.py\n  \
         - {src: {source: src, ignore: [/raw]}}\n"
    );
    assert_eq!(
        notes,
        "modules beside `train.py` are shipped: `common/`, `lib/`, `model.py`, `src/` (5 files, 20 bytes); those in \
         `.ydlignore` are not"
    );
    // Of a home directory only modules are shipped.
    let (files, _) = shipped(dir, dir.to_str());
    assert_eq!(files, "files: [model.py]\n");
}

#[test]
fn a_directory_above_the_limit_is_not_shipped() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["model.py", "zoo/net.py"]);
    let big = fs::File::create(dir.path().join("zoo/net.params")).unwrap();
    big.set_len(BYTES_MAX).unwrap();
    let (files, notes) = shipped(dir.path(), None);
    assert_eq!(files, "");
    assert_eq!(
        notes,
        "modules beside `train.py` are not shipped: they have more than 128 MB or 5000 files, mostly in `zoo`; list what the \
         job does not need in `.ydlignore`, or name what it needs with `--files`"
    );
    fs::write(dir.path().join(IGNORE_FILE), "*.params\n").unwrap();
    let (files, _) = shipped(dir.path(), None);
    assert_eq!(files, "files: [model.py, {zoo: {source: zoo, ignore: [\"*.params\"]}}]\n");
    // Data is not counted.
    fs::remove_file(dir.path().join("zoo/net.py")).unwrap();
    fs::remove_file(dir.path().join(IGNORE_FILE)).unwrap();
    let (files, _) = shipped(dir.path(), None);
    assert_eq!(files, "files: [model.py]\n");
}

#[test]
fn an_ignore_file_with_negations_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["model.py"]);
    fs::write(dir.path().join(IGNORE_FILE), "!model.py\n").unwrap();
    let (files, notes) = shipped(dir.path(), None);
    assert_eq!(files, "files: [model.py]\n");
    assert!(notes.starts_with("`.ydlignore` is not used: patterns with `!`"), "{notes}");
}
