//! Dependencies between modules: checks the sources against the code map of ARCHITECTURE.md. Cargo checks dependencies
//! between crates.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The heading of the code map in ARCHITECTURE.md.
const CODE_MAP: &str = "## Code map of `crates/ydl/src`";

/// Modules of the agent that other modules may use: shared formats.
const AGENT_SHARES: [&str; 1] = ["bootstrap"];

/// The modules of the code map, each with the other modules it may use.
fn code_map() -> BTreeMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = fs::read_to_string(path).expect("ARCHITECTURE.md");
    let (_, map) = text.split_once(CODE_MAP).expect("a code map");
    let rows = map.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let names = |cell: &str| {
        let quoted = cell.split('`').skip(1).step_by(2);
        let args = quoted.flat_map(str::split_whitespace);
        args.map(|name| name.trim_end_matches('/').to_owned()).collect::<Vec<_>>()
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

/// Returns the absolute module paths that a source names by `crate::…` or `super::…`. `module` is its own path.
fn used(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut used = Vec::new();
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    for (at, _) in code.match_indices("crate::") {
        path_tree(&code[at + 7..], &[], &mut used);
    }
    for (at, _) in code.match_indices("super::") {
        if code[..at].ends_with("super::") {
            continue;
        }
        let mut rest = &code[at..];
        let mut above = module;
        while let Some(after) = rest.strip_prefix("super::") {
            rest = after;
            above = above.split_last().map_or(above, |(_, above)| above);
        }
        path_tree(rest, above, &mut used);
    }
    used
}

/// Parses a path, or a braced tree of them, and adds each whole path below `above`; returns the rest of the text.
fn path_tree<'a>(text: &'a str, above: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.is_empty() {
            rest = path_tree(rest, above, found).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after.trim_start(),
                None => break,
            }
            if rest.starts_with('}') {
                break;
            }
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = [above, &[name.to_owned()]].concat();
    if let Some(inner) = rest.strip_prefix("::") {
        return path_tree(inner, &path, found);
    }
    found.push(path);
    // An alias names nothing else.
    let alias = rest.trim_start().strip_prefix("as ").map(str::trim_start);
    alias.map_or(rest, |alias| alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The module of the code map that a path belongs to: the innermost of those that contain it.
fn owner<'a>(map: &'a BTreeMap<String, Vec<String>>, path: &[String]) -> Option<&'a str> {
    let contains = |name: &&String| {
        let parts: Vec<_> = name.split('/').collect();
        path.len() >= parts.len() && path.iter().zip(&parts).all(|(one, other)| one == other)
    };
    map.keys().filter(contains).max_by_key(|name| name.len()).map(String::as_str)
}

#[test]
fn modules_use_only_modules_allowed_by_the_code_map() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let map = code_map();
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "the sources were not found");
    let mut violations = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("a file below the sources");
        let mut path: Vec<String> = inside
            .with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        path.pop_if(|name| name == "mod");
        if path == ["lib"] || path == ["main"] {
            continue;
        }
        let Some(module) = owner(&map, &path) else {
            violations.push(format!("{} is not in the code map", inside.display()));
            continue;
        };
        let text = fs::read_to_string(&file).expect("a source");
        for target in used(&text, &path) {
            let Some(other) = owner(&map, &target) else {
                continue;
            };
            // A module that may use another may use its submodules.
            let inside_of = |name: &str| other == name || other.starts_with(&format!("{name}/"));
            let part = target.get(1).map_or("", String::as_str);
            let allowed = inside_of(module)
                || (map[module].iter().any(|name| inside_of(name))
                    && (other != "agent" || AGENT_SHARES.contains(&part)));
            if !allowed {
                violations.push(format!("{} uses `{}`", inside.display(), target.join("::")));
            }
        }
    }
    assert!(violations.is_empty(), "not allowed by ARCHITECTURE.md:\n{}", violations.join("\n"));
}

#[test]
fn paths_are_parsed_from_nested_lists_and_relative_uses() {
    let own: Vec<String> = ["client", "mirror", "tail"].map(str::to_owned).into();
    let text = "use crate::{cli, client::{jobs::{self, Job as J}, mirror::Mirror}, terminal};\n\
        // crate::master::api\nuse super::super::stage::Place;\nfn f() { super::job::open(crate::logs::read()) }";
    let mut paths: Vec<_> = used(text, &own).iter().map(|path| path.join("::")).collect();
    paths.sort();
    let expected = [
        "cli",
        "client::jobs::Job",
        "client::jobs::self",
        "client::mirror::Mirror",
        "client::mirror::job::open",
        "client::stage::Place",
        "logs::read",
        "terminal",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn the_core_depends_on_serde_only_and_has_no_std() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ydl-core");
    let manifest = fs::read_to_string(core.join("Cargo.toml")).expect("the core's manifest");
    let dependencies = manifest.split("[dependencies]").nth(1).expect("a table of dependencies");
    let own = dependencies.split('[').next().unwrap_or_default();
    let names: Vec<_> = own.lines().filter(|line| line.contains('=')).collect();
    assert_eq!(names.len(), 1, "the core depends on more than serde: {names:?}");
    let tour = fs::read_to_string(core.join("src/lib.rs")).expect("the core's tour");
    assert!(tour.contains("#![no_std]"), "the core has no clock and no I/O because it has no std");
}
