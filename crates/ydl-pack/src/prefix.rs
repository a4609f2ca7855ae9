//! Interpreters with their whole installation, as made by conda, and files of any environment that contain its path.
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

/// Maximum size of a text that is searched for paths; longer files are data.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Files that locate themselves at run time, whatever path was compiled in.
const RELOCATABLE: [&str; 2] = ["bin/python", "lib/libpython"];

/// Moves the packages of pip and similar tools out of `all`.
pub(super) fn part(all: &mut Plan, root: &Path, site: &Path) -> Plan {
    let mut packages = BTreeSet::new();
    let inside = |name: &&PathBuf| name.parent() == Some(site) && ends(name, ".dist-info");
    for info in all.entries.keys().filter(inside) {
        let installer = read(&root.join(info).join("INSTALLER")).unwrap_or_default();
        if installer.trim() != "conda" {
            packages.extend(record(root, site, info));
        }
    }
    let is_package = |name: &PathBuf| {
        packages.contains(name) || source_of(name).is_some_and(|it| packages.contains(&it))
    };
    // A directory with other files must be composed file by file, since both layers have a part of it.
    let mut theirs = BTreeSet::new();
    let mut shared = BTreeSet::new();
    for (name, entry) in &all.entries {
        if !matches!(entry.what, EntryKind::Directory) {
            let to = match is_package(name) {
                true => &mut theirs,
                false => &mut shared,
            };
            let above = name.ancestors().skip(1);
            to.extend(above.map(Path::to_path_buf));
        }
    }
    let mut installation = Plan::default();
    let names: Vec<PathBuf> = all.entries.keys().cloned().collect();
    for name in names {
        let Some(entry) = all.entries.get(&name) else {
            continue;
        };
        let (stays, goes) = match entry.what {
            EntryKind::Directory => (theirs.contains(&name), shared.contains(&name)),
            _ => (is_package(&name), false),
        };
        if !stays || goes {
            let entry = entry.clone();
            installation.put(name.clone(), entry.mode, entry.what);
        }
        if !stays {
            all.entries.remove(&name);
        }
    }
    installation
}

/// Text files that contain one of these paths. In a virtual environment `site` is skipped: pip embeds no paths there.
pub(super) fn naming(plan: &Plan, places: &[String], site: Option<&Path>) -> Vec<String> {
    let texts: Vec<(&PathBuf, &EntryKind)> = plan
        .entries
        .iter()
        .filter(|(name, entry)| {
            let small = match &entry.what {
                EntryKind::File { was, .. } => was.bytes <= TEXT_BYTES_MAX,
                EntryKind::Bytes(_) => true,
                EntryKind::Directory | EntryKind::ByteCode { .. } | EntryKind::Link { .. } => false,
            };
            let known = ends(name, ".pyc") || ends(name, ".so") || ends(name, ".a");
            small && !known && site.is_none_or(|site| !name.starts_with(site))
        })
        .map(|(name, entry)| (name, &entry.what))
        .collect();
    let names = |(_, what): &&(&PathBuf, &EntryKind)| {
        let text = match what {
            EntryKind::File { from, .. } => read(from),
            EntryKind::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
            EntryKind::Directory | EntryKind::ByteCode { .. } | EntryKind::Link { .. } => None,
        };
        // Files with a zero byte are not text.
        let text = text.filter(|text| !text.contains('\0'));
        text.is_some_and(|text| {
            let mut places = places.iter();
            places.any(|place| replace_path(&text, place, "").is_some())
        })
    };
    let each = texts.len().div_ceil(cores()).max(1);
    thread::scope(|scope| {
        let parts = texts.chunks(each).map(|part| {
            scope.spawn(move || {
                let named = part.iter().filter(names);
                let named = named.filter_map(|(name, _)| Some(name.to_str()?.to_owned()));
                named.collect::<Vec<_>>()
            })
        });
        let parts: Vec<_> = parts.collect();
        // A chunk that ended in the middle of a character contained no match.
        let parts = parts.into_iter().filter_map(|part| part.join().ok());
        parts.flatten().collect()
    })
}

/// Binaries into which conda wrote its path.
pub(super) fn written_into(root: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    let all = fs::read_dir(root.join("conda-meta"));
    for entry in all.into_iter().flatten().flatten() {
        let text = fs::read(entry.path()).unwrap_or_default();
        let said: Value = serde_json::from_slice(&text).unwrap_or_default();
        let paths = said["paths_data"]["paths"].as_array();
        for path in paths.into_iter().flatten() {
            let name = path["_path"].as_str().unwrap_or_default();
            let finds_itself = RELOCATABLE.iter().any(|own| name.starts_with(own));
            let binary = path["file_mode"] == "binary" && !ends(Path::new(name), ".pyc");
            if binary && !finds_itself && root.join(name).is_file() {
                found.insert(name.to_owned());
            }
        }
    }
    found.into_iter().collect()
}

/// Warnings about a conda environment.
pub(super) fn notes(root: &Path, written_into: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(first) = written_into.first() {
        let others = match written_into.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        notes.push(format!(
            "`{first}`{others} of the environment looks for its own files below `{}`, where they are not on a node",
            root.display()
        ));
    }
    let scripts = fs::read_dir(root.join("etc/conda/activate.d"));
    let mut scripts = scripts.into_iter().flatten().flatten();
    if scripts.any(|script| ends(&script.path(), ".sh")) {
        let what = "scripts that conda runs at activation, in `etc/conda/activate.d`, do not run on a node";
        notes.push(what.to_owned());
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
        put(&at("space/theirs.py"), "");
        put(&at("pure/a.py"), "");
        put(&at("pure/__pycache__/a.cpython-311.pyc"), "");
        put(&at("space/pure.py"), "");
        put(&at("pure-1.dist-info/INSTALLER"), "pip\n");
        let record = "pure/a.py,,\n\"space/pure.py\",,\n../../../bin/pure,,\n";
        put(&at("pure-1.dist-info/RECORD"), record);
        put("bin/pure", "");
        let mut all = Plan::of(dir.path()).expect("a plan");
        let installation = part(&mut all, dir.path(), site);
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
        assert!(installed.contains(&at("space/theirs.py")));
        assert!(all.entries.contains_key(Path::new("bin/pure")));
        assert!(installation.entries.contains_key(Path::new("bin/python3.11")));
    }

    #[test]
    fn texts_with_embedded_paths_are_found_and_data_is_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = "/opt/env".to_owned();
        write(&dir.path().join("etc/a.conf"), "root=/opt/env/x\n");
        write(&dir.path().join("etc/b.conf"), "root=/opt/envy/x\n");
        write(&dir.path().join("etc/c.bin"), "\0/opt/env");
        write(&dir.path().join("site/d.py"), "'/opt/env'");
        let plan = Plan::of(dir.path()).expect("a plan");
        let places = [place];
        assert_eq!(naming(&plan, &places, None), ["etc/a.conf", "site/d.py"]);
        let outside = naming(&plan, &places, Some(Path::new("site")));
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
        let found = written_into(dir.path());
        assert_eq!(found, ["lib/libcrypto.so.3"]);
        let said = notes(Path::new("/opt/env"), &found);
        assert_eq!(
            said,
            [
                "`lib/libcrypto.so.3` of the environment looks for its own files below `/opt/env`, where they are not on a node"
            ]
        );
    }
}
