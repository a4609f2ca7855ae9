//! Interpreters with their whole installation, as created by conda, and files of any environment that contain its path.
//!
//! Conda's libraries find each other by relative paths, so everything that conda installed stays together. Packages that pip
//! installed next to it bring their own libraries and form a layer, as in a virtual environment.

use super::{
    archive::cores,
    local::{read, record, source_of},
    plan::{EntryKind, Plan, ends},
};
use crate::manifest::replace_path;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
};

/// Maximum size of a text that is searched for paths; larger files are data.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Files that locate themselves at run time and ignore the compiled-in path.
const RELOCATABLE: [&str; 2] = ["bin/python", "lib/libpython"];

/// Moves the installation out of `all` and returns it. The packages of pip and similar tools remain in `all`.
pub(super) fn split_installation(all: &mut Plan, root: &Path, site: &Path) -> Plan {
    let mut packages = BTreeSet::new();
    let inside = |name: &&PathBuf| name.parent() == Some(site) && ends(name, ".dist-info");
    for info in all.entries.keys().filter(inside) {
        let installer = read(&root.join(info).join("INSTALLER")).unwrap_or_default();
        if installer.trim() != "conda" {
            packages.extend(record(root, site, info));
        }
    }
    let is_package = |name: &PathBuf| {
        packages.contains(name) || source_of(name).is_some_and(|source| packages.contains(&source))
    };
    // A directory with files of both is part of both layers.
    let mut package_dirs = BTreeSet::new();
    let mut installation_dirs = BTreeSet::new();
    for (name, entry) in &all.entries {
        if !matches!(entry.kind, EntryKind::Directory) {
            let dirs = match is_package(name) {
                true => &mut package_dirs,
                false => &mut installation_dirs,
            };
            dirs.extend(name.ancestors().skip(1).map(Path::to_path_buf));
        }
    }
    let mut installation = Plan::default();
    let names: Vec<PathBuf> = all.entries.keys().cloned().collect();
    for name in names {
        let Some(entry) = all.entries.get(&name) else {
            continue;
        };
        let (in_packages, in_installation) = match entry.kind {
            EntryKind::Directory => {
                (package_dirs.contains(&name), installation_dirs.contains(&name))
            }
            _ => (is_package(&name), false),
        };
        if !in_packages || in_installation {
            let entry = entry.clone();
            installation.put(name.clone(), entry.mode, entry.kind);
        }
        if !in_packages {
            all.entries.remove(&name);
        }
    }
    installation
}

/// Returns the text files that contain one of the paths. In a virtual environment `site` is skipped: pip embeds no paths there.
pub(super) fn texts_with_path(plan: &Plan, paths: &[String], site: Option<&Path>) -> Vec<String> {
    let texts: Vec<(&PathBuf, &EntryKind)> = plan
        .entries
        .iter()
        .filter(|(name, entry)| {
            let is_small = match &entry.kind {
                EntryKind::File { stamp, .. } => stamp.bytes <= TEXT_BYTES_MAX,
                EntryKind::Bytes(_) => true,
                EntryKind::Directory | EntryKind::ByteCode { .. } | EntryKind::Link { .. } => false,
            };
            let is_binary = ends(name, ".pyc") || ends(name, ".so") || ends(name, ".a");
            is_small && !is_binary && site.is_none_or(|site| !name.starts_with(site))
        })
        .map(|(name, entry)| (name, &entry.kind))
        .collect();
    let contains_path = |(_, kind): &&(&PathBuf, &EntryKind)| {
        let text = match kind {
            EntryKind::File { from, .. } => read(from),
            EntryKind::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
            EntryKind::Directory | EntryKind::ByteCode { .. } | EntryKind::Link { .. } => None,
        };
        // Files with a zero byte are not text.
        let text = text.filter(|text| !text.contains('\0'));
        text.is_some_and(|text| {
            let mut paths = paths.iter();
            paths.any(|path| replace_path(&text, path, "").is_some())
        })
    };
    let chunk_length = texts.len().div_ceil(cores()).max(1);
    thread::scope(|scope| {
        let threads = texts.chunks(chunk_length).map(|chunk| {
            scope.spawn(move || {
                let matches = chunk.iter().filter(contains_path);
                let names = matches.filter_map(|(name, _)| Some(name.to_str()?.to_owned()));
                names.collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        // A thread that panicked found nothing.
        let names = threads.into_iter().filter_map(|thread| thread.join().ok());
        names.flatten().collect()
    })
}

/// Returns the binaries into which conda wrote its path.
pub(super) fn binaries_with_path(root: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    let all = fs::read_dir(root.join("conda-meta"));
    for entry in all.into_iter().flatten().flatten() {
        let text = fs::read(entry.path()).unwrap_or_default();
        let package: Value = serde_json::from_slice(&text).unwrap_or_default();
        let paths = package["paths_data"]["paths"].as_array();
        for path in paths.into_iter().flatten() {
            let name = path["_path"].as_str().unwrap_or_default();
            let is_relocatable = RELOCATABLE.iter().any(|own| name.starts_with(own));
            let is_binary = path["file_mode"] == "binary" && !ends(Path::new(name), ".pyc");
            if is_binary && !is_relocatable && root.join(name).is_file() {
                found.insert(name.to_owned());
            }
        }
    }
    found.into_iter().collect()
}

/// Returns warnings about a conda environment.
pub(super) fn notes(root: &Path, binaries: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(first) = binaries.first() {
        let others = match binaries.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        notes.push(format!(
            "`{first}`{others} of the environment contains its path `{}`, which does not exist on the nodes",
            root.display()
        ));
    }
    let scripts = fs::read_dir(root.join("etc/conda/activate.d"));
    let mut scripts = scripts.into_iter().flatten().flatten();
    if scripts.any(|script| ends(&script.path(), ".sh")) {
        let note = "conda's activation scripts in `etc/conda/activate.d` do not run on the nodes";
        notes.push(note.to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn conda_packages_stay_together_and_pip_packages_form_a_layer() {
        let dir = tempfile::tempdir().expect("a directory");
        let site = Path::new("lib/python3.11/site-packages");
        let put = |name: &str, text: &str| write(&dir.path().join(name), text);
        let at = |name: &str| format!("lib/python3.11/site-packages/{name}");
        put("bin/python3.11", "");
        put("lib/libblas.so", "");
        put(&at("numpy/core/x.so"), "");
        put(&at("numpy-1.dist-info/INSTALLER"), "conda\n");
        put(&at("numpy-1.dist-info/RECORD"), "numpy/core/x.so,,\n");
        put(&at("space/conda.py"), "");
        put(&at("pure/a.py"), "");
        put(&at("pure/__pycache__/a.cpython-311.pyc"), "");
        put(&at("space/pure.py"), "");
        put(&at("pure-1.dist-info/INSTALLER"), "pip\n");
        let record = "pure/a.py,,\n\"space/pure.py\",,\n../../../bin/pure,,\n";
        put(&at("pure-1.dist-info/RECORD"), record);
        put("bin/pure", "");
        let mut all = Plan::of(dir.path()).expect("a plan");
        let installation = split_installation(&mut all, dir.path(), site);
        let names = |plan: &Plan| -> Vec<String> {
            let names = plan.entries.keys().map(|name| name.display().to_string());
            names.filter(|name| name.starts_with("lib/python3.11/site-packages/")).collect()
        };
        let expected = [
            "pure",
            "pure/__pycache__",
            "pure/__pycache__/a.cpython-311.pyc",
            "pure/a.py",
            "space",
            "space/pure.py",
        ];
        assert_eq!(names(&all), expected.map(at));
        let installed = names(&installation);
        assert!(!installed.contains(&at("pure")), "{installed:?}");
        assert!(installed.contains(&at("numpy/core/x.so")));
        assert!(installed.contains(&at("space/conda.py")));
        assert!(all.entries.contains_key(Path::new("bin/pure")));
        assert!(installation.entries.contains_key(Path::new("bin/python3.11")));
    }

    #[test]
    fn texts_with_embedded_paths_are_found_and_data_is_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = "/opt/env".to_owned();
        write(&dir.path().join("etc/a.conf"), "root=/opt/env/x\n");
        write(&dir.path().join("etc/b.conf"), "root=/opt/envy/x\n");
        write(&dir.path().join("etc/c.bin"), "\0/opt/env");
        write(&dir.path().join("site/d.py"), "'/opt/env'");
        let plan = Plan::of(dir.path()).expect("a plan");
        let paths = [path];
        assert_eq!(texts_with_path(&plan, &paths, None), ["etc/a.conf", "site/d.py"]);
        let outside = texts_with_path(&plan, &paths, Some(Path::new("site")));
        assert_eq!(outside, ["etc/a.conf"]);
    }

    #[test]
    fn binaries_with_embedded_paths_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str| write(&dir.path().join(name), text);
        put("conda-meta/history", "==> 2026 <==\n");
        put(
            "conda-meta/openssl-3.json",
            r#"{"paths_data": {"paths": [
                {"_path": "lib/libcrypto.so.3", "file_mode": "binary", "prefix_placeholder": "/p"},
                {"_path": "bin/python3.11", "file_mode": "binary", "prefix_placeholder": "/p"},
                {"_path": "lib/gone.so", "file_mode": "binary", "prefix_placeholder": "/p"},
                {"_path": "lib/x.pc", "file_mode": "text", "prefix_placeholder": "/p"}]}}"#,
        );
        for name in ["lib/libcrypto.so.3", "bin/python3.11", "lib/x.pc"] {
            put(name, "");
        }
        let found = binaries_with_path(dir.path());
        assert_eq!(found, ["lib/libcrypto.so.3"]);
        assert_eq!(
            notes(Path::new("/opt/env"), &found),
            [
                "`lib/libcrypto.so.3` of the environment contains its path `/opt/env`, which does not exist on the nodes"
            ]
        );
    }
}
