//! Reads values from the tree and collects diagnostics.

use super::{
    diagnostic::{Diagnostic, Location},
    keys,
    nearest::nearest,
    tree::{Key, Node, Value},
    units::Rejection,
};
use std::collections::BTreeSet;

/// Reads a tree and collects diagnostics; invalid values are replaced by defaults.
#[derive(Default)]
pub struct Reader {
    /// The job is for a cluster, not for one machine.
    pub cluster: bool,
    pub diagnostics: Vec<Diagnostic>,
    /// Keys with a diagnostic. Further diagnostics of these keys are suppressed.
    pub reported: BTreeSet<String>,
}

/// A map with a fixed set of keys.
pub struct Map<'a> {
    /// Path in diagnostics, such as `roles.worker`.
    pub path: String,
    entries: &'a [(Key, Node)],
}

impl<'a> Map<'a> {
    pub fn find(&self, name: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// Returns the full path of a key of this map.
    pub fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }
}

impl Reader {
    /// Adds a diagnostic about the value of a key.
    pub fn reject(
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
    pub fn map<'a>(&mut self, node: &'a Node, path: &str, table: &str) -> Map<'a> {
        let entries = self.entries(node, path);
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
        let meant = synonym
            .map(|known| known.name())
            .or_else(|| nearest(&key.name, keys::below(table).map(|known| known.name())));
        let hint = match meant {
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

    /// Reads a map with user-defined keys.
    pub fn entries<'a>(&mut self, node: &'a Node, path: &str) -> &'a [(Key, Node)] {
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
                self.reject(&node.at, path, format!("expected a map, found {}", node.kind()), "");
                &[]
            }
        }
    }

    /// Reads the items of a list; empty if the key is missing.
    pub fn list<'a>(&mut self, map: &Map<'a>, name: &str) -> &'a [Node] {
        let Some(node) = map.find(name) else {
            return &[];
        };
        match &node.value {
            Value::List(items) => items,
            Value::Null => {
                self.no_value(node, &map.key(name));
                &[]
            }
            Value::Scalar { text, .. } => {
                let hint = format!("write `{name}: [{text}]`");
                self.reject(&node.at, &map.key(name), "expected a list, found text", hint);
                &[]
            }
            Value::Map(_) => {
                self.reject(&node.at, &map.key(name), "expected a list, found a map", "");
                &[]
            }
        }
    }

    fn no_value(&mut self, node: &Node, path: &str) {
        self.reject(&node.at, path, "missing value", "add a value, or remove the key");
    }

    /// Reads text as written, even if it looks like a number.
    pub fn text_of(&mut self, node: &Node, path: &str) -> Option<String> {
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

    pub fn text(&mut self, map: &Map, name: &str) -> Option<String> {
        self.text_of(map.find(name)?, &map.key(name))
    }

    /// Reads a scalar with `read`.
    pub fn value<T>(
        &mut self,
        map: &Map,
        name: &str,
        read: impl Fn(&str) -> Result<T, Rejection>,
    ) -> Option<T> {
        let node = map.find(name)?;
        self.value_of(node, &map.key(name), read)
    }

    pub fn value_of<T>(
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

/// Parses a whole number, from 0.
pub fn count<T: TryFrom<u64>>(text: &str) -> Result<T, Rejection> {
    let invalid = || (format!("`{text}` is not a count"), "write a whole number".to_string());
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    let number: Option<u64> = text.parse().ok();
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| (format!("`{text}` is too large"), String::new()))
}

/// Parses `true` or `false`.
pub fn boolean(text: &str) -> Result<bool, Rejection> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err((format!("`{text}` is neither `true` nor `false`"), String::new())),
    }
}

/// Returns a parser for one of several words.
pub fn choice<T: Copy>(options: &[(&'static str, T)]) -> impl Fn(&str) -> Result<T, Rejection> {
    move |text| {
        if let Some((_, value)) = options.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let hint = match nearest(text, options.iter().map(|(word, _)| *word)) {
            Some(word) => format!("did you mean `{word}`?"),
            None => {
                let all: Vec<_> = options.iter().map(|(word, _)| format!("`{word}`")).collect();
                format!("expected one of {}", all.join(", "))
            }
        };
        Err((format!("invalid value `{text}`"), hint))
    }
}

/// Returns a parser for `none` or a value of `read`.
pub fn or_none<T>(
    read: impl Fn(&str) -> Result<T, Rejection>,
) -> impl Fn(&str) -> Result<Option<T>, Rejection> {
    move |text| {
        if text == "none" { Ok(None) } else { read(text).map(Some) }
    }
}
