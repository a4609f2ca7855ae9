//! Which room may use which: the table of ARCHITECTURE.md, checked by reading the sources.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rooms that everybody may use: words, errors, doors to the system.
const COMMON: [&str; 5] = ["env", "report", "os", "talk", "wire"];

/// A room, and the others it may use beside [`COMMON`] and itself.
const ROOMS: &[(&str, &[&str])] = &[
    // What every door to a job needs.
    (
        "commands",
        &[
            "backend",
            "cli",
            "data",
            "docker",
            "doors",
            "gpus",
            "hdfs",
            "jobfile",
            "jobs",
            "logs",
            "mirror",
            "pack",
            "preflight",
            "show",
            "stage",
        ],
    ),
    // Older systems' command lines become job files, and nothing else.
    ("doors", &["cli", "commands", "jobfile", "show"]),
    // Jobs on a cluster, seen from here; and whether one can run there.
    ("mirror", &["hdfs", "jobs", "logs", "show"]),
    ("preflight", &[]),
    ("cli", &[]),
    ("jobfile", &["jobs"]),
    ("jobs", &[]),
    ("show", &["agent", "logs"]),
    ("logs", &[]),
    // The master knows agents only by what they say.
    ("master", &["agent", "backend", "data", "docker", "hdfs", "jobs"]),
    ("backend", &["agent", "gpus", "hdfs", "jobs"]),
    // The agent knows nobody but the master's address.
    ("agent", &["data", "docker", "gpus", "hdfs", "jobs", "logs"]),
    ("wire", &[]),
    // What agents measure is part of what they say.
    ("talk", &["agent"]),
    ("os", &[]),
    // Devices of this node; whoever hands them out may use it.
    ("gpus", &[]),
    // The docker command of this machine.
    ("docker", &[]),
    // Files in HDFS; whoever talks to a cluster may use it.
    ("hdfs", &[]),
    // What inputs consist of, and how files come from there.
    ("data", &["hdfs"]),
    ("stage", &["hdfs", "jobs", "pack"]),
    // Environments become archives.
    ("pack", &["jobs"]),
];

/// Of the agent's room others may use only what is made to be shared.
const AGENT_SHARES: [&str; 2] = ["measure", "setting"];

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

/// The rooms that a source names by `crate::room`, with what follows.
fn used(text: &str) -> Vec<(String, String)> {
    let mut used = Vec::new();
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for (at, _) in code.match_indices("crate::") {
        let rest = code[at + 7..].trim_start();
        // A braced list names several rooms; each begins at the list's own level.
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
fn a_room_uses_only_the_rooms_it_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "the sources were not found");
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("a file below the sources");
        let room = inside.iter().next().expect("a name").to_string_lossy().replace(".rs", "");
        let Some((_, may)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            continue;
        };
        let text = fs::read_to_string(&file).expect("a source");
        for (other, part) in used(&text) {
            let known = ROOMS.iter().any(|(name, _)| *name == other);
            let allowed = other == room
                || COMMON.contains(&other.as_str())
                || (may.contains(&other.as_str())
                    && (other != "agent" || AGENT_SHARES.contains(&part.as_str())));
            if known && !allowed {
                wrong.push(format!("{} uses `{other}::{part}`", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "rooms that keep no distance:\n{}", wrong.join("\n"));
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
