//! The two trees while one is made of the other.

use ydl_jobfile::{Diagnostic, Key, Location, Node, Value, nearest};

/// Notes and errors of a translation.
#[derive(Debug, Default)]
pub struct Desk {
    pub notes: Vec<String>,
    pub diagnostics: Vec<Diagnostic>,
}

/// The value of a key, if the node is a map that has it.
pub fn find<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let found = entries.iter().find(|(key, _)| key.name == name);
    found.map(|(_, value)| value)
}

/// The text of a scalar.
pub fn text_of(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::Null => Some(""),
        Value::List(_) | Value::Map(_) => None,
    }
}

impl Desk {
    pub fn note(&mut self, what: String) {
        self.notes.push(what);
    }

    pub fn note_at(&mut self, at: &Location, what: &str) {
        match at {
            Location::File { line, .. } => self.note(format!("line {line}: {what}")),
            Location::Flag(_) | Location::Whole => self.note(what.to_owned()),
        }
    }

    pub fn wrong(&mut self, at: &Location, what: impl Into<String>, hint: &str) {
        self.diagnostics.push(Diagnostic::new(at.clone(), what).hint(hint));
    }

    /// The entries of a map. What is not known there is refused, with the nearest that is.
    pub fn entries<'a>(
        &mut self,
        node: &'a Node,
        path: &str,
        known: &[&'static str],
    ) -> Vec<(&'a Key, &'a Node)> {
        let mut all = Vec::new();
        for (key, value) in self.any_entries(node, path) {
            if known.contains(&key.name.as_str()) {
                all.push((key, value));
                continue;
            }
            let whose = match path {
                "" => "a specification of skein's".to_owned(),
                path => format!("`{path}`"),
            };
            let hint = match nearest(&key.name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: `{}`", known.join("`, `")),
            };
            let what = format!("`{}` is no key of {whose}", key.name);
            self.wrong(&key.at, what, &hint);
        }
        all
    }

    /// The entries of a map whose keys are names.
    pub fn any_entries<'a>(&mut self, node: &'a Node, path: &str) -> Vec<(&'a Key, &'a Node)> {
        match &node.value {
            Value::Map(entries) => entries.iter().map(|(key, value)| (key, value)).collect(),
            Value::Null => Vec::new(),
            Value::Scalar { .. } | Value::List(_) => {
                let what = format!("`{path}` is {}, and should be a map", node.kind());
                self.wrong(&node.at, what, "");
                Vec::new()
            }
        }
    }

    pub fn text(&mut self, node: &Node, path: &str) -> Option<String> {
        if let Some(text) = text_of(node) {
            return Some(text.to_owned());
        }
        let what = format!("`{path}` is {}, and should be text", node.kind());
        self.wrong(&node.at, what, "");
        None
    }

    /// A list of texts; one text is a list, too.
    pub fn texts(&mut self, node: &Node, path: &str) -> Vec<String> {
        match &node.value {
            Value::Null => Vec::new(),
            Value::List(items) => {
                let texts = items.iter().filter_map(|item| self.text(item, path));
                texts.collect()
            }
            Value::Scalar { text, .. } => vec![text.clone()],
            Value::Map(_) => {
                let what = format!("`{path}` is a map, and should be a list");
                self.wrong(&node.at, what, "");
                Vec::new()
            }
        }
    }

    pub fn truth(&mut self, node: &Node, path: &str) -> Option<bool> {
        match text_of(node).map(str::to_lowercase).as_deref() {
            Some("true" | "yes" | "on") => Some(true),
            Some("false" | "no" | "off" | "") => Some(false),
            _ => {
                let what = format!("`{path}` is neither `true` nor `false`");
                self.wrong(&node.at, what, "");
                None
            }
        }
    }
}

/// A map of the job file while it is written.
#[derive(Debug)]
pub struct Tree {
    at: Location,
    entries: Vec<(Key, Node)>,
}

impl Tree {
    pub fn at(at: &Location) -> Tree {
        Tree { at: at.clone(), entries: Vec::new() }
    }

    pub fn put(&mut self, name: &str, value: Node) {
        let key = Key { at: value.at.clone(), name: name.to_owned() };
        self.entries.push((key, value));
    }

    /// Puts it in place of what was there.
    pub fn replace(&mut self, name: &str, value: Node) {
        self.entries.retain(|(key, _)| key.name != name);
        self.put(name, value);
    }

    /// Puts it into a map of that name, which is made where there is none.
    pub fn put_in(&mut self, map: &str, name: &str, value: Node) {
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

    pub fn node(self) -> Node {
        Node { at: self.at, value: Value::Map(self.entries) }
    }
}
