//! Compat commands: their translations and their errors.

mod installed;
mod local_runs;
mod rejected;
mod semantics;
mod tracker;
mod translations;
mod workspace;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Checks that each promise has a row without empty cells, and that every named test exists.
#[test]
fn every_promise_of_the_older_systems_has_a_row_and_a_test() {
    let page = include_str!("../../../../../docs/moving/promises.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| 00"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for (document, promises) in [("000", 12), ("001", 13), ("002", 13), ("003", 14)] {
        for promise in 1..=promises {
            let id = format!("{document}.{promise}");
            assert!(rows.iter().any(|row| row[0] == id), "{id} has no row");
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Directories with tests of tf-yarn's promises.
    let paths = ["tests", "../ydl-core/tests", "../ydl-core/src", "../../python/tests"];
    let everything = sources(paths.map(|path| root.join(path)).to_vec());
    for row in &rows {
        assert!(row.len() >= 4 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        if row[0] >= "004" {
            // Rust and Python tests, some named by a prefix.
            for named in row[3].split('`').skip(1).step_by(2) {
                let found = match named.contains('/') || named == "ydl-core" {
                    true => root.join("../..").join(named).exists() || named == "ydl-core",
                    false => {
                        let name = named.trim_end_matches('…');
                        let kinds = ["fn", "def", "class"].iter();
                        let mut defined = kinds.map(|kind| format!("{kind} {name}"));
                        defined.any(|line| everything.contains(&line))
                    }
                };
                assert!(found, "there is no test `{named}`: {row:?}");
            }
            continue;
        }
        for named in row[3].split(", ") {
            let (file, test) = named.split_once("::").unwrap_or_else(|| panic!("{row:?}"));
            let paths = [root.join("tests"), root.join("../ydl-core/tests")];
            let text = |path: &PathBuf| {
                let whole = path.join(file);
                let alone = fs::read_to_string(whole.with_extension("rs")).unwrap_or_default();
                let parts = match whole.is_dir() {
                    true => sources(vec![whole]),
                    false => String::new(),
                };
                alone + &parts
            };
            let found = paths.iter().any(|path| text(path).contains(&format!("fn {test}(")));
            assert!(found, "there is no test `{named}`");
        }
    }
}

/// Returns the text of all sources in these directories.
fn sources(mut dirs: Vec<PathBuf>) -> String {
    let mut all = String::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|_| panic!("{}", dir.display())) {
            let path = entry.unwrap().path();
            match path.extension().and_then(|it| it.to_str()) {
                _ if path.is_dir() => dirs.push(path),
                Some("rs" | "py") => all += &fs::read_to_string(path).unwrap(),
                _ => {}
            }
        }
    }
    all
}
