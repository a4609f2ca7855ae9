//! Notes and errors of a translation, readers of its nodes, and a builder of maps.

use ydl_jobfile::{Diagnostic, Key, Location, Node, Value, nearest};

/// Notes and errors of a translation.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub notes: Vec<String>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Returns the value of a key, if the node is a map that has it.
pub(crate) fn find<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let found = entries.iter().find(|(key, _)| key.name == name);
    found.map(|(_, value)| value)
}

/// Returns the text of a scalar.
pub(crate) fn text_of(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::Null => Some(""),
        Value::List(_) | Value::Map(_) => None,
    }
}

impl Context {
    pub(crate) fn note(&mut self, what: String) {
        self.notes.push(what);
    }

    pub(crate) fn note_at(&mut self, at: &Location, what: &str) {
        match at {
            Location::File { line, .. } => self.note(format!("line {line}: {what}")),
            Location::Flag(_) | Location::Whole => self.note(what.to_owned()),
        }
    }

    pub(crate) fn error(&mut self, at: &Location, what: impl Into<String>, hint: &str) {
        self.diagnostics.push(Diagnostic::new(at.clone(), what).hint(hint));
    }

    /// Returns the entries of a map. An unknown key is an error that suggests the nearest known one.
    pub(crate) fn known_entries<'a>(
        &mut self,
        node: &'a Node,
        path: &str,
        known: &[&'static str],
    ) -> Vec<(&'a Key, &'a Node)> {
        let mut all = Vec::new();
        for (key, value) in self.entries(node, path) {
            if known.contains(&key.name.as_str()) {
                all.push((key, value));
                continue;
            }
            let map = match path {
                "" => "a skein specification".to_owned(),
                path => format!("`{path}`"),
            };
            let hint = match nearest(&key.name, known.iter().copied()) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => format!("known keys: `{}`", known.join("`, `")),
            };
            let what = format!("unknown key `{}` in {map}", key.name);
            self.error(&key.at, what, &hint);
        }
        all
    }

    /// Returns the entries of a map whose keys are names.
    pub(crate) fn entries<'a>(&mut self, node: &'a Node, path: &str) -> Vec<(&'a Key, &'a Node)> {
        match &node.value {
            Value::Map(entries) => entries.iter().map(|(key, value)| (key, value)).collect(),
            Value::Null => Vec::new(),
            Value::Scalar { .. } | Value::List(_) => {
                let what = format!("`{path}` is {}, expected a map", node.kind());
                self.error(&node.at, what, "");
                Vec::new()
            }
        }
    }

    pub(crate) fn text(&mut self, node: &Node, path: &str) -> Option<String> {
        if let Some(text) = text_of(node) {
            return Some(text.to_owned());
        }
        let what = format!("`{path}` is {}, expected text", node.kind());
        self.error(&node.at, what, "");
        None
    }

    /// Returns a list of texts; a single text is a list, too.
    pub(crate) fn strings(&mut self, node: &Node, path: &str) -> Vec<String> {
        match &node.value {
            Value::Null => Vec::new(),
            Value::List(items) => {
                let texts = items.iter().filter_map(|item| self.text(item, path));
                texts.collect()
            }
            Value::Scalar { text, .. } => vec![text.clone()],
            Value::Map(_) => {
                let what = format!("`{path}` is a map, expected a list");
                self.error(&node.at, what, "");
                Vec::new()
            }
        }
    }

    pub(crate) fn boolean(&mut self, node: &Node, path: &str) -> Option<bool> {
        match text_of(node).map(str::to_lowercase).as_deref() {
            Some("true" | "yes" | "on") => Some(true),
            Some("false" | "no" | "off" | "") => Some(false),
            _ => {
                let what = format!("`{path}`: expected `true` or `false`");
                self.error(&node.at, what, "");
                None
            }
        }
    }
}

/// Builder of a map of the job file.
#[derive(Debug)]
pub(crate) struct MapBuilder {
    at: Location,
    entries: Vec<(Key, Node)>,
}

impl MapBuilder {
    pub(crate) fn at(at: &Location) -> MapBuilder {
        MapBuilder { at: at.clone(), entries: Vec::new() }
    }

    pub(crate) fn put(&mut self, name: &str, value: Node) {
        let key = Key { at: value.at.clone(), name: name.to_owned() };
        self.entries.push((key, value));
    }

    /// Sets a value in place of an earlier one.
    pub(crate) fn replace(&mut self, name: &str, value: Node) {
        self.entries.retain(|(key, _)| key.name != name);
        self.put(name, value);
    }

    /// Adds a value to the map of that name, which is created if missing.
    pub(crate) fn put_in(&mut self, map: &str, name: &str, value: Node) {
        if !self.entries.iter().any(|(key, _)| key.name == map) {
            self.put(map, Node::map(value.at.clone()));
        }
        let at = value.at.clone();
        let inner = self.entries.iter_mut().find(|(key, _)| key.name == map);
        if let Some((_, Node { value: Value::Map(inner), .. })) = inner {
            let name = name.to_owned();
            inner.push((Key { at, name }, value));
        }
    }

    pub(crate) fn node(self) -> Node {
        Node { at: self.at, value: Value::Map(self.entries) }
    }
}
