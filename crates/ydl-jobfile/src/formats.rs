//! Formats of values: how a value is read, printed and described.

use super::{
    fields::{Map, Reader},
    keys::Section,
    nearest::nearest,
    tree::Node,
    units::{Rejection, size_mib, size_text, span, span_text},
    write::{Printed, flow, list, text},
};
use std::{collections::BTreeMap, fmt::Display};
use ydl_core::Span;

/// Target of a job: its values are checked against it.
#[derive(Debug, Default)]
pub struct Context {
    /// Base of relative paths; absolute.
    pub base: String,
    /// The job is for a cluster, not for one machine.
    pub cluster: bool,
}

/// Format of a value of type `V`.
pub trait Format<V> {
    /// Reads a value; `place` is unchanged if the value is invalid, which is reported.
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut V);

    /// Prints a value such that it reads back as the same.
    fn print(&self, value: &V) -> Printed;
}

/// Value on one line. An optional value is not printed if it is absent.
pub struct Scalar<V> {
    /// Type in the reference.
    pub kind: &'static str,
    /// Type in Python.
    pub python: &'static str,
    /// Parser.
    pub parse: fn(&str, &Context) -> Result<V, Rejection>,
    /// Printer.
    pub print: fn(&V) -> String,
}

impl<V> Scalar<V> {
    pub fn kind(&self) -> String {
        self.kind.to_owned()
    }

    pub fn python(&self) -> String {
        self.python.to_owned()
    }

    /// Reads a value; reports and returns `None` if it is invalid.
    pub fn value(&self, reader: &mut Reader, node: &Node, path: &str) -> Option<V> {
        let context = reader.context.clone();
        reader.value_of(node, path, |text| (self.parse)(text, &context))
    }
}

impl<V> Format<V> for Scalar<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut V) {
        if let Some(value) = self.value(reader, node, path) {
            *place = value;
        }
    }

    fn print(&self, value: &V) -> Printed {
        Printed::Line((self.print)(value))
    }
}

impl<V> Format<Option<V>> for Scalar<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut Option<V>) {
        if let Some(value) = self.value(reader, node, path) {
            *place = Some(value);
        }
    }

    fn print(&self, value: &Option<V>) -> Printed {
        value.as_ref().map_or(Printed::Omitted, |value| Printed::Line((self.print)(value)))
    }
}

/// Time.
pub const TIME: Scalar<Span> = Scalar {
    kind: "time",
    python: "Union[str, timedelta]",
    parse: |text, _| span(text),
    print: |span| span_text(*span),
};

/// Time, or `none`.
pub const TIME_OR_NONE: Scalar<Option<Span>> = Scalar {
    kind: "time or `none`",
    python: "Union[str, timedelta]",
    parse: |text, _| if text == "none" { Ok(None) } else { span(text).map(Some) },
    print: |span| span.map_or("none".to_owned(), span_text),
};

/// Size in MiB.
pub const SIZE: Scalar<u64> = Scalar {
    kind: "size",
    python: "str",
    parse: |text, _| size_mib(text),
    print: |mib| size_text(*mib),
};

/// Whole number, from 0.
pub const COUNT: Scalar<u32> = whole();

/// Whole number of any resource.
pub const AMOUNT: Scalar<u64> = whole();

const fn whole<N: TryFrom<u64> + Display>() -> Scalar<N> {
    Scalar { kind: "count", python: "int", parse: |text, _| count(text), print: N::to_string }
}

/// Whole number, from 1.
pub const POSITIVE: Scalar<u32> = Scalar {
    parse: |text, _| match count(text)? {
        0 => Err(("0 is below the minimum".into(), "the minimum is 1".into())),
        n => Ok(n),
    },
    ..COUNT
};

/// `true` or `false`.
pub const BOOL: Scalar<bool> = Scalar {
    kind: "`true` or `false`",
    python: "bool",
    parse: |text, _| boolean(text),
    print: bool::to_string,
};

/// Any text.
pub const TEXT: Scalar<String> = text_of("text", |text, _| Ok(text.to_owned()));

/// Name without spaces, such as that of a queue, label, host or principal.
pub const NAME: Scalar<String> = text_of("text", |text, _| {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err((format!("`{text}` is not a valid name"), String::new()));
    }
    Ok(text.to_owned())
});

/// Returns the format of text with a parser of its own.
pub const fn text_of(
    kind: &'static str,
    parse: fn(&str, &Context) -> Result<String, Rejection>,
) -> Scalar<String> {
    Scalar { kind, python: "str", parse, print: |value| text(value) }
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

/// One of several words.
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Choice<T> {
    pub fn kind(&self) -> String {
        alternatives(self.0.iter().map(|(word, _)| *word))
    }

    pub fn python(&self) -> String {
        "str".to_owned()
    }

    /// Parses a word, and suggests a similar one if it is unknown.
    pub fn parse(&self, text: &str) -> Result<T, Rejection> {
        if let Some((_, value)) = self.0.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let hint = match nearest(text, self.0.iter().map(|(word, _)| *word)) {
            Some(word) => format!("did you mean `{word}`?"),
            None => {
                let all: Vec<_> = self.0.iter().map(|(word, _)| format!("`{word}`")).collect();
                format!("expected one of {}", all.join(", "))
            }
        };
        Err((format!("invalid value `{text}`"), hint))
    }

    /// Returns the word of a value.
    pub fn word(&self, value: T) -> &'static str {
        self.0.iter().find(|(_, known)| *known == value).map_or("", |(word, _)| word)
    }
}

/// Lists words as `` `a`, `b` or `c` ``.
pub fn alternatives<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<_> = words.map(|word| format!("`{word}`")).collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} or {last}", words.join(", ")) }
}

impl<T: Copy + PartialEq> Format<T> for Choice<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut T) {
        if let Some(value) = reader.value_of(node, path, |text| self.parse(text)) {
            *place = value;
        }
    }

    fn print(&self, value: &T) -> Printed {
        Printed::Line(self.word(*value).to_owned())
    }
}

impl<T: Copy + PartialEq> Format<Option<T>> for Choice<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut Option<T>) {
        if let Some(value) = reader.value_of(node, path, |text| self.parse(text)) {
            *place = Some(value);
        }
    }

    fn print(&self, value: &Option<T>) -> Printed {
        value.map_or(Printed::Omitted, |value| Printed::Line(self.word(value).to_owned()))
    }
}

/// Format of a value that is not printed if it is the default of its type.
pub struct OmitDefault<F>(pub F);

impl<V: Default + PartialEq, F: Format<V>> Format<V> for OmitDefault<F> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut V) {
        self.0.read(reader, node, path, place);
    }

    fn print(&self, value: &V) -> Printed {
        if *value == V::default() { Printed::Omitted } else { self.0.print(value) }
    }
}

impl OmitDefault<Scalar<bool>> {
    pub fn kind(&self) -> String {
        self.0.kind()
    }

    pub fn python(&self) -> String {
        self.0.python()
    }
}

impl<T: Copy + PartialEq> OmitDefault<Choice<T>> {
    pub fn kind(&self) -> String {
        self.0.kind()
    }

    pub fn python(&self) -> String {
        self.0.python()
    }
}

/// List of values. An empty one is not printed.
pub struct List<V> {
    /// Type in the reference.
    pub kind: &'static str,
    /// Format of an item.
    pub item: Scalar<V>,
}

impl<V> List<V> {
    pub fn kind(&self) -> String {
        self.kind.to_owned()
    }

    pub fn python(&self) -> String {
        format!("Sequence[{}]", self.item.python)
    }
}

impl<V: PartialEq> Format<Vec<V>> for List<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut Vec<V>) {
        for item in reader.list(node, path) {
            place.extend(self.item.value(reader, item, path));
        }
    }

    fn print(&self, values: &Vec<V>) -> Printed {
        if values.is_empty() {
            return Printed::Omitted;
        }
        list(values.iter().map(|value| (self.item.print)(value)))
    }
}

/// Map of user-defined names to values. An empty one is not printed.
pub struct Entries<V> {
    /// Type in the reference.
    pub kind: &'static str,
    /// Format of a value.
    pub item: Scalar<V>,
}

/// Map of names to texts.
pub const TEXTS: Entries<String> = Entries { kind: "map of texts", item: TEXT };

impl<V> Entries<V> {
    pub fn kind(&self) -> String {
        self.kind.to_owned()
    }

    pub fn python(&self) -> String {
        "Mapping[str, object]".to_owned()
    }
}

impl<V> Format<BTreeMap<String, V>> for Entries<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut BTreeMap<String, V>) {
        for (name, node) in reader.entries(node, path) {
            if let Some(value) = self.item.value(reader, node, &format!("{path}.{}", name.name)) {
                place.insert(name.name.clone(), value);
            }
        }
    }

    fn print(&self, values: &BTreeMap<String, V>) -> Printed {
        let line =
            |(name, value): (&String, &V)| (name.clone(), Printed::Line((self.item.print)(value)));
        Printed::Block(values.iter().map(line).collect())
    }
}

/// Map with the keys of a section.
pub struct Nested<T: 'static>(pub &'static Section<T>);

impl<T> Nested<T> {
    pub fn kind(&self) -> String {
        "map".to_owned()
    }

    pub fn python(&self) -> String {
        "Keys".to_owned()
    }
}

impl<T> Format<T> for Nested<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut T) {
        let map = reader.map(node, path, self.0.path());
        reader.section(&map, self.0, place);
    }

    fn print(&self, value: &T) -> Printed {
        self.0.print(value)
    }
}

/// Map with the keys of a section, printed on one line.
pub struct Flow<T: 'static>(pub &'static Section<T>);

impl<T> Flow<T> {
    pub fn kind(&self) -> String {
        "map".to_owned()
    }

    pub fn python(&self) -> String {
        "Keys".to_owned()
    }
}

impl<T> Format<T> for Flow<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, place: &mut T) {
        Nested(self.0).read(reader, node, path, place);
    }

    fn print(&self, value: &T) -> Printed {
        Printed::Line(flow(&self.0.print(value)))
    }
}

impl Reader {
    /// Reads all keys of a section, in their order.
    pub fn section<T>(&mut self, map: &Map, section: &Section<T>, part: &mut T) {
        for field in section.fields {
            (field.read)(self, map, part);
        }
    }

    /// Reads the value of a key if it is present.
    pub fn read<V>(&mut self, map: &Map, name: &str, format: &impl Format<V>, place: &mut V) {
        if let Some(node) = map.find(name) {
            format.read(self, node, &map.key(name), place);
        }
    }
}
