//! Formats of lists and maps.

use super::{Describe, Format, Scalar, TEXT};
use crate::{
    fields::Reader,
    keys::{Field, Section},
    printer::{YamlValue, flow, list},
    tree::Node,
};
use std::collections::BTreeMap;

/// Format of a value that is not printed if it is the default of its type.
pub(crate) struct OmitDefault<F>(pub F);

impl<V: Default + PartialEq, F: Format<V>> Format<V> for OmitDefault<F> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut V) {
        self.0.read(reader, node, path, value);
    }

    fn print(&self, value: &V) -> YamlValue {
        if *value == V::default() { YamlValue::Omitted } else { self.0.print(value) }
    }
}

impl<F: Describe> Describe for OmitDefault<F> {
    fn kind(&self) -> String {
        self.0.kind()
    }

    fn python(&self) -> String {
        self.0.python()
    }
}

/// List of values. An empty one is not printed.
pub(crate) struct List<V> {
    /// Type in the reference.
    pub kind: &'static str,
    /// Format of an item.
    pub item: Scalar<V>,
}

impl<V> Describe for List<V> {
    fn kind(&self) -> String {
        self.kind.to_owned()
    }

    fn python(&self) -> String {
        format!("Sequence[{}]", self.item.python)
    }
}

impl<V: PartialEq> Format<Vec<V>> for List<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut Vec<V>) {
        for item in reader.list(node, path) {
            value.extend(self.item.value(reader, item, path));
        }
    }

    fn print(&self, values: &Vec<V>) -> YamlValue {
        if values.is_empty() {
            return YamlValue::Omitted;
        }
        list(values.iter().map(|value| (self.item.print)(value)))
    }
}

/// Map of user-defined names to values. An empty one is not printed.
pub(crate) struct Entries<V> {
    /// Type in the reference.
    pub kind: &'static str,
    /// Format of a value.
    pub item: Scalar<V>,
}

/// Map of names to texts.
pub(crate) const TEXTS: Entries<String> = Entries { kind: "map of texts", item: TEXT };

impl<V> Describe for Entries<V> {
    fn kind(&self) -> String {
        self.kind.to_owned()
    }

    fn python(&self) -> String {
        "Mapping[str, object]".to_owned()
    }
}

impl<V> Format<BTreeMap<String, V>> for Entries<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut BTreeMap<String, V>) {
        for (name, node) in reader.entries(node, path) {
            let path = format!("{path}.{}", name.name);
            if let Some(item) = self.item.value(reader, node, &path) {
                value.insert(name.name.clone(), item);
            }
        }
    }

    fn print(&self, values: &BTreeMap<String, V>) -> YamlValue {
        let line = |(name, value): (&String, &V)| {
            (name.clone(), YamlValue::Line((self.item.print)(value)))
        };
        YamlValue::Block(values.iter().map(line).collect())
    }
}

impl<T> Describe for Section<T> {
    fn kind(&self) -> String {
        "map".to_owned()
    }

    fn python(&self) -> String {
        "Keys".to_owned()
    }
}

impl<T> Format<T> for Section<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut T) {
        let map = reader.map(node, path, self.path());
        reader.section(&map, self, value);
    }

    fn print(&self, part: &T) -> YamlValue {
        let print = |field: &Field<T>| (field.key.name().to_owned(), (field.print)(part));
        YamlValue::Block(self.fields.iter().map(print).collect())
    }
}

/// Format of a map that is printed on one line.
pub(crate) struct OneLine<F>(pub F);

impl<V, F: Format<V>> Format<V> for OneLine<F> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut V) {
        self.0.read(reader, node, path, value);
    }

    fn print(&self, value: &V) -> YamlValue {
        YamlValue::Line(flow(&self.0.print(value)))
    }
}

impl<F: Describe> Describe for OneLine<F> {
    fn kind(&self) -> String {
        self.0.kind()
    }

    fn python(&self) -> String {
        self.0.python()
    }
}
