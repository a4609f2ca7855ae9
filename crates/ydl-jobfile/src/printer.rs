//! Prints jobs and trees as job files that read back as the same job or tree.

use super::{
    formats::Format,
    keys::JOB,
    tree::{Key, Node, Value},
};
use std::fmt::Write;
use ydl_core::JobSpec;

/// Prints a job with all defaults.
pub fn show(spec: &JobSpec) -> String {
    let mut page = Page::default();
    page.block(0, &JOB.print(spec));
    page.0
}

/// Prints a tree.
pub fn print_tree(root: &Node) -> String {
    let mut page = Page::default();
    page.node(0, root);
    page.0
}

/// YamlValue value of a key.
pub(crate) enum YamlValue {
    /// The key is not printed.
    Omitted,
    /// Value on the line of the key.
    Line(String),
    /// List with an item per line. An empty one is not printed.
    Items(Vec<String>),
    /// Map with an entry per line. An empty one is not printed.
    Block(Vec<(String, YamlValue)>),
}

impl YamlValue {
    fn is_omitted(&self) -> bool {
        match self {
            YamlValue::Omitted => true,
            YamlValue::Line(_) => false,
            YamlValue::Items(items) => items.is_empty(),
            YamlValue::Block(entries) => entries.iter().all(|(_, value)| value.is_omitted()),
        }
    }
}

/// Prints a value on one line.
pub(crate) fn flow(value: &YamlValue) -> String {
    match value {
        YamlValue::Omitted => "null".to_owned(),
        YamlValue::Line(line) => line.clone(),
        YamlValue::Items(items) => format!("[{}]", items.join(", ")),
        YamlValue::Block(entries) => {
            let entries = entries.iter().filter(|(_, value)| !value.is_omitted());
            let entries: Vec<_> =
                entries.map(|(key, value)| format!("{}: {}", text(key), flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Prints a list on one line.
pub(crate) fn list(items: impl Iterator<Item = String>) -> YamlValue {
    YamlValue::Line(flow(&YamlValue::Items(items.collect())))
}

#[derive(Default)]
struct Page(String);

impl Page {
    /// Prints the entries of a block.
    fn block(&mut self, depth: usize, block: &YamlValue) {
        let YamlValue::Block(entries) = block else {
            return;
        };
        for (key, value) in entries.iter().filter(|(_, value)| !value.is_omitted()) {
            match value {
                YamlValue::Omitted => {}
                YamlValue::Line(line) => self.line(depth, &text(key), line),
                YamlValue::Items(items) => {
                    self.open(depth, &text(key));
                    items.iter().for_each(|item| self.item(depth + 1, item));
                }
                YamlValue::Block(_) => {
                    self.open(depth, &text(key));
                    self.block(depth + 1, value);
                }
            }
        }
    }

    /// Prints the entries of a map, small ones on one line.
    fn node(&mut self, depth: usize, node: &Node) {
        let Value::Map(entries) = &node.value else {
            return;
        };
        for (key, value) in entries {
            let short = flow_node(value);
            let holds_maps = |inner: &[(Key, Node)]| {
                let mut values = inner.iter().map(|(_, value)| &value.value);
                values.any(|value| matches!(value, Value::Map(_)))
            };
            match &value.value {
                Value::Map(inner) if short.len() > FLOW_MAX || holds_maps(inner) => {
                    self.open(depth, &text(&key.name));
                    self.node(depth + 1, value);
                }
                Value::List(items) if short.len() > FLOW_MAX => {
                    self.open(depth, &text(&key.name));
                    for item in items {
                        self.item(depth + 1, &flow_node(item));
                    }
                }
                _ => self.line(depth, &text(&key.name), &short),
            }
        }
    }

    fn line(&mut self, depth: usize, key: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{:1$}{key}: {value}", "", depth * 2);
    }

    fn open(&mut self, depth: usize, key: &str) {
        let _ = writeln!(self.0, "{:1$}{key}:", "", depth * 2);
    }

    fn item(&mut self, depth: usize, value: &str) {
        let _ = writeln!(self.0, "{:1$}- {value}", "", depth * 2);
    }
}

/// Maximum length of values in flow style.
const FLOW_MAX: usize = 96;

fn flow_node(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_string(),
        Value::Scalar { text: value, plain } => match value.as_str() {
            "true" | "false" if *plain => value.clone(),
            _ => text(value),
        },
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(flow_node).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let entry =
                |(key, value): &(Key, Node)| format!("{}: {}", text(&key.name), flow_node(value));
            let entries: Vec<_> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Prints text, quoted where YAML would interpret it.
pub(crate) fn text(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./+=@%-".contains(c);
    let has_plain_start =
        text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_./".contains(c));
    let is_keyword = matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false");
    if has_plain_start && text.chars().all(is_plain) && !is_keyword {
        return text.to_string();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // YAML interprets some of these as line breaks.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
