//! Keywords of the Python package, generated from the table of keys.

use super::keys::{KeySpec, below};
use std::fmt::Write;

const HEAD: &str = "\
\"\"\"Keys of jobs and roles.

Generated from crates/ydl-jobfile/src/keys by `UPDATE_EXPECT=1 cargo test -p ydl --test cli jobfile`.
\"\"\"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Union

if TYPE_CHECKING:
    import os
    from datetime import timedelta
    from typing import Optional, Sequence

    from typing_extensions import TypedDict

PathLike = Union[str, \"os.PathLike[str]\"]
Keys = Mapping[str, Any]
";

/// Maximum length of a line.
const LINE_MAX: usize = 120;

/// Keys that the constructors of `Job` and `Role` name themselves.
const POSITIONAL: [&str; 4] = ["name", "roles", "roles.*.run", "roles.*.instances"];

/// Renders `python/ydl/_keys.py`.
pub fn python_keys() -> String {
    let mut module = HEAD.to_string();
    module.push_str("\nif TYPE_CHECKING:\n");
    for (name, parent) in [("Job", ""), ("Role", "roles.*")] {
        let keys: Vec<_> = below(parent).filter(|key| !POSITIONAL.contains(&key.path)).collect();
        types(&mut module, name, &keys);
    }
    for (name, parent) in [("JOB", ""), ("ROLE", "roles.*")] {
        let keys: Vec<_> = below(parent).filter(|key| !POSITIONAL.contains(&key.path)).collect();
        table(&mut module, name, &keys);
    }
    module
}

/// Appends the class with which type checkers check keywords.
fn types(module: &mut String, name: &str, keys: &[&KeySpec]) {
    let about = format!("Keywords of `{name}` that are keys of a job file.");
    // Writing to a string cannot fail.
    let _ = write!(
        module,
        "\n    class {name}Keys(TypedDict, total=False):\n        \"\"\"{about}\"\"\"\n\n"
    );
    for key in keys {
        let _ = writeln!(module, "        {}: Optional[{}]", key.name(), (key.python)());
    }
}

/// Appends the types of the keys, and their documentation.
fn table(module: &mut String, name: &str, keys: &[&KeySpec]) {
    let _ = write!(module, "\n{name}_KEYS: Dict[str, str] = {{\n");
    for key in keys {
        let _ = writeln!(module, "    \"{}\": \"{}\",", key.name(), (key.python)());
    }
    let _ = write!(module, "}}\n\n{name}_DOC = \"\"\"\n");
    for key in keys {
        let mut line = format!("{}:", key.name());
        for word in without_links(&key.description()).split_whitespace() {
            if line.len() + 1 + word.len() > LINE_MAX {
                let _ = writeln!(module, "{line}");
                line = "   ".to_owned();
            }
            line = format!("{line} {word}");
        }
        let _ = writeln!(module, "{line}");
    }
    module.push_str("\"\"\"\n");
}

/// Replaces links by their texts.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let link = after.split_once("](").and_then(|(name, target)| {
            (!name.contains(']')).then_some((name, target.split_once(')')?.1))
        });
        match link {
            Some((name, after)) => {
                plain.push_str(name);
                rest = after;
            }
            None => {
                plain.push('[');
                rest = after;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_by_their_texts() {
        assert_eq!(without_links("see [a b](../c.md#d); `[e]`"), "see a b; `[e]`");
        assert_eq!(without_links("`[registry/]name`, [x](y)"), "`[registry/]name`, x");
    }
}
