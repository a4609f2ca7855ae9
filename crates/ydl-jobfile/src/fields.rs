//! Reads values from the tree and collects diagnostics.

use super::{
    diagnostic::{Diagnostic, Location},
    formats::{Context, Format},
    keys::{self, Section},
    nearest::nearest,
    roles::PartialRestart,
    tree::{Key, Node, Value},
    units::Rejection,
};
use std::{collections::BTreeSet, rc::Rc};

/// Reads a tree and collects diagnostics; invalid values are replaced by defaults.
#[derive(Default)]
pub(crate) struct Reader {
    pub context: Rc<Context>,
    /// Restart policy of the job, which its roles complete.
    pub restart: PartialRestart,
    pub diagnostics: Vec<Diagnostic>,
    /// Keys with a diagnostic. Further diagnostics of these keys are suppressed.
    pub reported: BTreeSet<String>,
}

/// A map with a fixed set of keys.
pub(crate) struct Map<'a> {
    /// Path in diagnostics, such as `roles.worker`.
    pub path: String,
    entries: &'a [(Key, Node)],
}

impl<'a> Map<'a> {
    pub(crate) fn find(&self, name: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// Returns the full path of a key of this map.
    pub(crate) fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }
}

impl Reader {
    /// Adds a diagnostic about the value of a key.
    pub(crate) fn reject(
        &mut self,
        at: &Location,
        key: &str,
        what: impl AsRef<str>,
        hint: impl Into<String>,
    ) {
        self.reported.insert(key.to_string());
        self.diagnostics
            .push(Diagnostic::new(at.clone(), format!("`{key}`: {}", what.as_ref())).hint(hint));
    }

    /// Reads a map whose keys are the children of `table` in the table of keys.
    pub(crate) fn map<'a>(&mut self, node: &'a Node, path: &str, table: &str) -> Map<'a> {
        let entries = self.entries_or(node, path, || map_example(path, table));
        let map = Map { path: path.to_string(), entries };
        for (key, _) in entries {
            if !keys::below(table).any(|known| known.name() == key.name) {
                self.unknown(key, &map, table);
            }
        }
        map
    }

    fn unknown(&mut self, key: &Key, map: &Map, table: &str) {
        let mut what = format!("unknown key `{}`", key.name);
        match map.path.strip_prefix("roles.") {
            Some(role) if table == "roles.*" => what += &format!(" in role `{role}`"),
            _ if map.path.is_empty() => {}
            _ => what += &format!(" in `{}`", map.path),
        }
        let synonym = keys::below(table).find(|known| known.also.contains(&key.name.as_str()));
        let suggestion = synonym
            .map(|known| known.name())
            .or_else(|| nearest(&key.name, keys::below(table).map(|known| known.name())));
        let hint = match suggestion {
            Some(name) => {
                self.reported.insert(map.key(name));
                format!("did you mean `{name}`?")
            }
            None => {
                let all: Vec<_> =
                    keys::below(table).map(|key| format!("`{}`", key.name())).collect();
                format!("known keys: {}", all.join(", "))
            }
        };
        self.diagnostics.push(Diagnostic::new(key.at.clone(), what).hint(hint));
    }

    /// Reads all keys of a section, in their order.
    pub(crate) fn section<T>(&mut self, map: &Map, section: &Section<T>, part: &mut T) {
        for field in section.fields {
            (field.read)(self, map, part);
        }
    }

    /// Reads the value of a key if it is present.
    pub(crate) fn read<V>(
        &mut self,
        map: &Map,
        name: &str,
        format: &impl Format<V>,
        value: &mut V,
    ) {
        if let Some(node) = map.find(name) {
            format.read(self, node, &map.key(name), value);
        }
    }

    /// Reads a map with user-defined keys.
    pub(crate) fn entries<'a>(&mut self, node: &'a Node, path: &str) -> &'a [(Key, Node)] {
        self.entries_or(node, path, String::new)
    }

    /// Reads a map; a value of another type gets this hint.
    fn entries_or<'a>(
        &mut self,
        node: &'a Node,
        path: &str,
        hint: impl Fn() -> String,
    ) -> &'a [(Key, Node)] {
        match &node.value {
            Value::Map(entries) => entries,
            Value::Null => {
                self.no_value(node, path);
                &[]
            }
            Value::Scalar { .. } | Value::List(_) if path.is_empty() => {
                let what = format!("expected a map of keys, found {}", node.kind());
                self.diagnostics
                    .push(Diagnostic::new(node.at.clone(), what).hint("begin with `name: …`"));
                // Without a map nothing else can be checked.
                self.reported.insert(String::new());
                &[]
            }
            Value::Scalar { .. } | Value::List(_) => {
                self.reject(
                    &node.at,
                    path,
                    format!("expected a map, found {}", node.kind()),
                    hint(),
                );
                &[]
            }
        }
    }

    /// Reads the items of a list.
    pub(crate) fn list<'a>(&mut self, node: &'a Node, path: &str) -> &'a [Node] {
        match &node.value {
            Value::List(items) => items,
            Value::Null => {
                self.no_value(node, path);
                &[]
            }
            Value::Scalar { text, .. } => {
                let hint = format!("write `{}: [{text}]`", keys::last(path));
                self.reject(&node.at, path, "expected a list, found text", hint);
                &[]
            }
            Value::Map(_) => {
                self.reject(&node.at, path, "expected a list, found a map", "");
                &[]
            }
        }
    }

    fn no_value(&mut self, node: &Node, path: &str) {
        self.reject(&node.at, path, "missing value", "add a value, or remove the key");
    }

    /// Reads text as written, even if it looks like a number.
    pub(crate) fn text_of(&mut self, node: &Node, path: &str) -> Option<String> {
        match &node.value {
            Value::Scalar { text, .. } if text.contains('\0') => {
                self.reject(&node.at, path, "the text contains a NUL byte", "");
                None
            }
            Value::Scalar { text, .. } => Some(text.clone()),
            Value::Null => {
                self.no_value(node, path);
                None
            }
            Value::List(_) | Value::Map(_) => {
                self.reject(&node.at, path, format!("expected text, found {}", node.kind()), "");
                None
            }
        }
    }

    /// Reads a scalar with `read`; reports and returns `None` if it is invalid.
    pub(crate) fn value_of<T>(
        &mut self,
        node: &Node,
        path: &str,
        read: impl Fn(&str) -> Result<T, Rejection>,
    ) -> Option<T> {
        let text = self.text_of(node, path)?;
        match read(&text) {
            Ok(value) => Some(value),
            Err((what, hint)) => {
                self.reject(&node.at, path, what, hint);
                None
            }
        }
    }
}

/// Returns a hint with an example of a map, or an empty one.
fn map_example(path: &str, table: &str) -> String {
    let example = match table {
        "roles.*" => "{run: python train.py}",
        _ => keys::keys().find(|key| key.path == table).map_or("", |key| key.example),
    };
    match example.starts_with('{') {
        true => format!("write `{}: {example}`", keys::last(path)),
        false => String::new(),
    }
}
