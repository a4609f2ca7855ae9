//! Prints jobs and trees as job files that read back as the same job or tree.

use super::{
    keys::JOB,
    tree::{Key, Node, Value},
};
use std::fmt::Write;
use ydl_core::JobSpec;

/// Prints a job with all defaults.
pub fn show(spec: &JobSpec) -> String {
    let mut page = Page::default();
    page.printed(0, &JOB.print(spec));
    page.0
}

/// Prints a tree.
pub fn written(root: &Node) -> String {
    let mut page = Page::default();
    page.node(0, root);
    page.0
}

/// Printed value of a key.
pub enum Printed {
    /// The key is not printed.
    Omitted,
    /// Value on the line of the key.
    Line(String),
    /// List with an item per line. An empty one is not printed.
    Items(Vec<String>),
    /// Map with an entry per line. An empty one is not printed.
    Block(Vec<(String, Printed)>),
}

impl Printed {
    fn is_omitted(&self) -> bool {
        match self {
            Printed::Omitted => true,
            Printed::Line(_) => false,
            Printed::Items(items) => items.is_empty(),
            Printed::Block(entries) => entries.iter().all(|(_, value)| value.is_omitted()),
        }
    }
}

/// Prints a value on one line.
pub fn flow(value: &Printed) -> String {
    match value {
        Printed::Omitted => "null".to_owned(),
        Printed::Line(line) => line.clone(),
        Printed::Items(items) => format!("[{}]", items.join(", ")),
        Printed::Block(entries) => {
            let entries = entries.iter().filter(|(_, value)| !value.is_omitted());
            let entries: Vec<_> =
                entries.map(|(key, value)| format!("{}: {}", text(key), flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Prints a list on one line.
pub fn list(items: impl Iterator<Item = String>) -> Printed {
    Printed::Line(flow(&Printed::Items(items.collect())))
}

#[derive(Default)]
struct Page(String);

impl Page {
    /// Prints the entries of a block.
    fn printed(&mut self, depth: usize, block: &Printed) {
        let Printed::Block(entries) = block else {
            return;
        };
        for (key, value) in entries.iter().filter(|(_, value)| !value.is_omitted()) {
            match value {
                Printed::Omitted => {}
                Printed::Line(line) => self.line(depth, &text(key), line),
                Printed::Items(items) => {
                    self.open(depth, &text(key));
                    items.iter().for_each(|item| self.item(depth + 1, item));
                }
                Printed::Block(_) => {
                    self.open(depth, &text(key));
                    self.printed(depth + 1, value);
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
        Value::Scalar { text: said, plain } => match said.as_str() {
            "true" | "false" if *plain => said.clone(),
            _ => text(said),
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
pub fn text(text: &str) -> String {
    let letter = |c: char| c.is_ascii_alphanumeric() || "_./+=@%-".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_./".contains(c));
    let null = matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false");
    if begins && text.chars().all(letter) && !null {
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
