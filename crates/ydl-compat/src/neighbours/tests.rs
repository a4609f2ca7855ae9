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
        "src/mod.py",
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
        "modules beside `train.py` are shipped: `common/`, `lib/`, `model.py`, `src/` (5 files, 20 bytes); keys and \
         what `.ydlignore` lists are not"
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
fn an_unusable_ignore_file_ships_nothing() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["model.py", "pkg/fit.py", "pkg/.env"]);
    fs::write(dir.path().join(IGNORE_FILE), "!model.py\n").unwrap();
    let (files, notes) = shipped(dir.path(), None);
    assert_eq!(files, "");
    assert_eq!(
        notes,
        "modules beside `train.py` are not shipped, because `.ydlignore` cannot be used: patterns with `!` are not supported"
    );
    // Not a readable text.
    fs::write(dir.path().join(IGNORE_FILE), [0xff]).unwrap();
    let (files, notes) = shipped(dir.path(), None);
    assert_eq!(files, "");
    assert!(notes.contains("`.ydlignore` cannot be used: "), "{notes}");
}

#[test]
fn a_directory_without_modules_directly_in_it_is_not_shipped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(
        dir,
        &["deploy/token.txt", "deploy/tools/renew.py", "pkg/__init__.py", "pkg/deep/fit.py"],
    );
    // A directory with the name of a module does not count.
    write(dir, &["odd/x.py/y.py", "odd/token.txt", "pkg/a.py/.env"]);
    let (files, notes) = shipped(dir, None);
    assert_eq!(files, "files: [{pkg: {source: pkg, ignore: [\".*\"]}}]\n");
    assert!(notes.contains("`pkg/` (2 files, "), "{notes}");
}

#[test]
fn keys_and_hidden_files_are_never_shipped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, &["pkg/fit.py", "aws_credentials.py", "Secrets.py", "pkg/terraform.tfstate.backup"]);
    write(dir, &["pkg/.env", "pkg/server.pem", "pkg/deep/server.key", "pkg/Credentials.JSON"]);
    write(dir, &["pkg/id_rsa", "pkg/id_ed25519.pub", "pkg/me.keytab", "secret_keys/__init__.py"]);
    let (files, notes) = shipped(dir, None);
    let ignored = r#""*.key", "*.keytab", "*.pem", "*.tfstate*", ".*", /Credentials.JSON, "id_ed25519*", "id_rsa*""#;
    assert_eq!(files, format!("files:\n  - {{pkg: {{source: pkg, ignore: [{ignored}]}}}}\n"));
    assert!(notes.contains("`pkg/` (1 file, "), "{notes}");
}
