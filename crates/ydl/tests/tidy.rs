//! Which module may use which: the code map of ARCHITECTURE.md, checked by reading the sources. What another crate may
//! use is checked by Cargo.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The heading of the code map in ARCHITECTURE.md.
const CODE_MAP: &str = "## Code map of `crates/ydl/src`";

/// Modules of the agent that others may use: formats that both sides share.
const AGENT_SHARES: [&str; 1] = ["bootstrap"];

/// The modules of the code map, each with the other modules it may use.
fn code_map() -> BTreeMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = fs::read_to_string(path).expect("ARCHITECTURE.md");
    let (_, map) = text.split_once(CODE_MAP).expect("a code map");
    let rows = map.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let names = |cell: &str| {
        let quoted = cell.split('`').skip(1).step_by(2);
        let words = quoted.flat_map(str::split_whitespace);
        words.map(|name| name.trim_end_matches('/').to_owned()).collect::<Vec<_>>()
    };
    let mut modules = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').collect();
        let [_, module, _, may_use, _] = cells[..] else { panic!("three cells: {row}") };
        for name in names(module) {
            modules.insert(name, names(may_use));
        }
    }
    modules
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Modules that a source names by `crate::module`, each with the next path segment.
fn used(text: &str) -> Vec<(String, String)> {
    let mut used = Vec::new();
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for (at, _) in code.match_indices("crate::") {
        let rest = code[at + 7..].trim_start();
        // A braced list names several modules; each begins at the list's own level.
        let names: Vec<String> = if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut names = vec![String::new()];
            for c in list.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => names.push(String::new()),
                    _ => {}
                }
                if let Some(last) = names.last_mut().filter(|_| c != ',' || depth > 0) {
                    last.push(c);
                }
            }
            names
        } else {
            vec![rest.chars().take(60).collect()]
        };
        for name in names {
            let words: Vec<_> = name.split("::").map(str::trim).collect();
            let word = |n: usize| {
                let text = words.get(n).copied().unwrap_or_default();
                text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
            };
            used.push((word(0), word(1)));
        }
    }
    used
}

#[test]
fn modules_use_only_the_modules_that_the_code_map_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let map = code_map();
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "the sources were not found");
    let mut violations = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("a file below the sources");
        let module = inside.iter().next().expect("a name").to_string_lossy().replace(".rs", "");
        if ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        let Some(may_use) = map.get(&module) else {
            violations.push(format!("{} is not in the code map", inside.display()));
            continue;
        };
        let text = fs::read_to_string(&file).expect("a source");
        for (other, part) in used(&text) {
            let allowed = other == module
                || (may_use.contains(&other)
                    && (other != "agent" || AGENT_SHARES.contains(&part.as_str())));
            if map.contains_key(&other) && !allowed {
                violations.push(format!("{} uses `{other}::{part}`", inside.display()));
            }
        }
    }
    assert!(violations.is_empty(), "not allowed by ARCHITECTURE.md:\n{}", violations.join("\n"));
}

#[test]
fn the_core_keeps_its_distance() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ydl-core");
    let manifest = fs::read_to_string(core.join("Cargo.toml")).expect("the core's manifest");
    let dependencies = manifest.split("[dependencies]").nth(1).expect("a table of dependencies");
    let own = dependencies.split('[').next().unwrap_or_default();
    let names: Vec<_> = own.lines().filter(|line| line.contains('=')).collect();
    assert_eq!(names.len(), 1, "the core depends on serde alone: {names:?}");
    let tour = fs::read_to_string(core.join("src/lib.rs")).expect("the core's tour");
    assert!(tour.contains("#![no_std]"), "the core has no clock and no I/O because it has no std");
}
