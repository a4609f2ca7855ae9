//! YAML as a tree of located values.

use super::diagnostic::{Diagnostic, Location};
use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag};
use std::collections::BTreeMap;

/// Maximum number of nodes and characters after expanding aliases, which could otherwise grow exponentially.
const WEIGHT_MAX: usize = 2 << 20;
/// Maximum nesting.
const DEPTH_MAX: usize = 32;

/// Value and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Location.
    pub at: Location,
    /// Value.
    pub value: Value,
}

/// Value of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// Text. Unquoted (`plain`) text may also be a number or a boolean.
    Scalar {
        /// Text.
        text: String,
        /// Set for unquoted text.
        plain: bool,
    },
    /// List.
    List(Vec<Node>),
    /// Map with unique keys, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// Key of a map entry and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Location.
    pub at: Location,
    /// Name.
    pub name: String,
}

impl Node {
    /// Creates an empty map.
    pub fn map(at: Location) -> Node {
        Node { at, value: Value::Map(Vec::new()) }
    }

    /// Creates quoted text.
    pub fn text(at: Location, text: impl Into<String>) -> Node {
        Node { at, value: Value::Scalar { text: text.into(), plain: false } }
    }

    /// Creates a value as read from unquoted text.
    pub fn plain(at: Location, text: impl Into<String>) -> Node {
        Node { at, value: scalar(text.into(), true) }
    }

    /// Returns the type for messages, such as `a list`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Scalar { .. } => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    fn weight(&self) -> usize {
        1 + match &self.value {
            Value::Null => 0,
            Value::Scalar { text, .. } => text.len(),
            Value::List(items) => items.iter().map(Node::weight).sum(),
            Value::Map(entries) => entries.iter().map(|(k, v)| k.name.len() + v.weight()).sum(),
        }
    }
}

fn scalar(text: String, plain: bool) -> Value {
    if plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    Value::Scalar { text, plain }
}

/// Parses one document; `Ok(None)` if it is empty. Recoverable errors are added to `diagnostics`.
pub(crate) fn parse(
    text: &str,
    location: impl Fn(usize, usize) -> Location,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Option<Node>, Diagnostic> {
    let mut builder = TreeBuilder {
        location: &location,
        diagnostics,
        open: Vec::new(),
        anchors: BTreeMap::new(),
        weight: 0,
        root: None,
    };
    let mut documents = 0;
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| invalid_yaml(&error, &location))?;
        let at = builder.at(&span);
        match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    let what = "unexpected second document";
                    return Err(
                        Diagnostic::new(at, what).hint("put the other job into its own file")
                    );
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                builder.reject_tag(&at, tag.as_deref());
                let value = scalar(text.into_owned(), style == ScalarStyle::Plain);
                builder.complete(Node { at, value }, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                builder.reject_tag(&at, tag.as_deref());
                builder.begin(Node { at, value: Value::List(Vec::new()) }, anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                builder.reject_tag(&at, tag.as_deref());
                builder.begin(Node::map(at), anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.end()?,
            Event::Alias(anchor) => builder.alias(at, anchor)?,
            _ => {}
        }
    }
    Ok(builder.root.filter(|root| root.value != Value::Null))
}

fn invalid_yaml(error: &ScanError, location: &impl Fn(usize, usize) -> Location) -> Diagnostic {
    let mark = error.marker();
    let (what, hint) = match error.kind() {
        ErrorKind::SimpleKeyExpected => ("expected `:` after a key".to_owned(), ""),
        ErrorKind::MappingValueNotAllowed => {
            (error.info(), "check the indentation, or quote text that contains `: `")
        }
        _ => (error.info(), ""),
    };
    let what = format!("invalid YAML: {what}");
    Diagnostic::new(location(mark.line(), mark.col() + 1), what).hint(hint)
}

/// Collection whose end has not been read.
struct OpenCollection {
    node: Node,
    anchor: usize,
    /// In a map: the key of the next value.
    key: Option<Key>,
    /// In a map: values of `<<`. Applied last, because own entries take precedence.
    merges: Vec<Node>,
}

struct TreeBuilder<'a, P> {
    location: &'a P,
    diagnostics: &'a mut Vec<Diagnostic>,
    open: Vec<OpenCollection>,
    anchors: BTreeMap<usize, Node>,
    weight: usize,
    root: Option<Node>,
}

impl<P: Fn(usize, usize) -> Location> TreeBuilder<'_, P> {
    fn at(&self, span: &Span) -> Location {
        (self.location)(span.start.line(), span.start.col() + 1)
    }

    fn reject_tag(&mut self, at: &Location, tag: Option<&Tag>) {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            let what = format!("unsupported tag `{}`", tag.original());
            self.diagnostics.push(Diagnostic::new(at.clone(), what));
        }
    }

    fn add_weight(&mut self, at: &Location, weight: usize) -> Result<(), Diagnostic> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > WEIGHT_MAX {
            let what = "the job is too large after expanding aliases";
            return Err(Diagnostic::new(at.clone(), what));
        }
        Ok(())
    }

    fn begin(&mut self, node: Node, anchor: usize) -> Result<(), Diagnostic> {
        self.add_weight(&node.at, 1)?;
        if self.open.len() >= DEPTH_MAX {
            let what = format!("nested more than {DEPTH_MAX} levels deep");
            return Err(Diagnostic::new(node.at, what));
        }
        self.open.push(OpenCollection { node, anchor, key: None, merges: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Diagnostic> {
        let Some(mut open) = self.open.pop() else {
            return Ok(());
        };
        if let Value::Map(entries) = &mut open.node.value {
            open.merges.into_iter().try_for_each(|other| merge(entries, other))?;
        }
        self.add_to_parent(open.node, open.anchor)
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Diagnostic> {
        self.add_weight(&node.at, node.weight())?;
        self.add_to_parent(node, anchor)
    }

    fn alias(&mut self, at: Location, anchor: usize) -> Result<(), Diagnostic> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(Diagnostic::new(at, "recursive alias"));
        };
        // Checked before the copy, so that a small file cannot exhaust memory.
        let weight = target.weight();
        self.add_weight(&at, weight)?;
        let node = Node { at, ..self.anchors[&anchor].clone() };
        self.add_to_parent(node, 0)
    }

    fn add_to_parent(&mut self, node: Node, anchor: usize) -> Result<(), Diagnostic> {
        if anchor != 0 {
            self.add_weight(&node.at, node.weight())?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut parent.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match parent.key.take() {
                None => parent.key = Some(key(node)?),
                Some(key) if key.name == "<<" => parent.merges.push(node),
                Some(key) => {
                    if let Some((first, _)) = entries.iter().find(|(k, _)| k.name == key.name) {
                        let what = format!("duplicate key `{}`", key.name);
                        let first = match first.at {
                            Location::File { line, .. } => format!("first defined on line {line}"),
                            _ => String::new(),
                        };
                        self.diagnostics.push(Diagnostic::new(key.at, what).hint(first));
                        return Ok(());
                    }
                    entries.push((key, node));
                }
            },
            Value::Null | Value::Scalar { .. } => {}
        }
        Ok(())
    }
}

fn key(node: Node) -> Result<Key, Diagnostic> {
    match node.value {
        Value::Scalar { text, .. } => Ok(Key { at: node.at, name: text }),
        Value::Null => Ok(Key { at: node.at, name: String::new() }),
        Value::List(_) | Value::Map(_) => Err(Diagnostic::new(node.at, "keys must be text")),
    }
}

/// Applies `<<: *other`: adds entries of the other map that are missing.
fn merge(entries: &mut Vec<(Key, Node)>, node: Node) -> Result<(), Diagnostic> {
    match node.value {
        Value::Map(others) => {
            for (key, value) in others {
                if !entries.iter().any(|(own, _)| own.name == key.name) {
                    entries.push((key, value));
                }
            }
            Ok(())
        }
        Value::List(items) => items.into_iter().try_for_each(|item| merge(entries, item)),
        Value::Null | Value::Scalar { .. } => {
            Err(Diagnostic::new(node.at, "`<<` requires a map or a list of maps")
                .hint("`<<: *name`"))
        }
    }
}

/// Returns the location of a key such as `roles.worker.memory`, or of its nearest ancestor.
pub(crate) fn locate(root: &Node, path: &str) -> Location {
    let (mut node, mut rest, mut at) = (root, path, &root.at);
    'down: while let Value::Map(entries) = &node.value {
        // Names may contain dots, so the path is matched against existing keys, not split.
        for (key, value) in entries {
            let Some(after) = rest.strip_prefix(key.name.as_str()) else {
                continue;
            };
            let is_last = after.is_empty();
            if !is_last && !after.starts_with('.') {
                continue;
            }
            let simple = matches!(value.value, Value::Scalar { .. } | Value::List(_));
            at = if is_last && simple { &value.at } else { &key.at };
            if is_last {
                break 'down;
            }
            (node, rest) = (value, &after[1..]);
            continue 'down;
        }
        break;
    }
    at.clone()
}
