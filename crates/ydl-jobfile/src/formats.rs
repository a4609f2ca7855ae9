//! Formats of values: how a value is read, printed and described.

mod collections;

pub(crate) use collections::{Entries, List, OmitDefault, OneLine, TEXTS};

use super::{
    fields::Reader,
    nearest::nearest,
    printer::{YamlValue, text},
    tree::Node,
    units::{Rejection, size_mib, size_text, span, span_text},
};
use std::fmt::Display;
use ydl_core::Span;

/// Target of a job: its values are checked against it.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Base of relative paths; absolute.
    pub base: String,
    /// The job is for a cluster, not for one machine.
    pub cluster: bool,
}

/// Format of a value of type `V`.
pub(crate) trait Format<V> {
    /// Reads a value; `value` is unchanged if the new one is invalid, which is reported.
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut V);

    /// Prints a value such that it reads back as the same.
    fn print(&self, value: &V) -> YamlValue;
}

/// Description of a format.
pub(crate) trait Describe {
    /// Returns the type of values in the reference.
    fn kind(&self) -> String;

    /// Returns the type of values in Python.
    fn python(&self) -> String;
}

/// Value on one line. An optional value is not printed if it is absent.
pub(crate) struct Scalar<V> {
    /// Type in the reference.
    pub kind: &'static str,
    /// Type in Python.
    pub python: &'static str,
    /// Parser.
    pub parse: fn(&str, &Context) -> Result<V, Rejection>,
    /// Printer.
    pub print: fn(&V) -> String,
}

impl<V> Describe for Scalar<V> {
    fn kind(&self) -> String {
        self.kind.to_owned()
    }

    fn python(&self) -> String {
        self.python.to_owned()
    }
}

impl<V> Scalar<V> {
    /// Reads a value; reports and returns `None` if it is invalid.
    pub(crate) fn value(&self, reader: &mut Reader, node: &Node, path: &str) -> Option<V> {
        let context = reader.context.clone();
        reader.value_of(node, path, |text| (self.parse)(text, &context))
    }
}

impl<V> Format<V> for Scalar<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut V) {
        if let Some(new) = self.value(reader, node, path) {
            *value = new;
        }
    }

    fn print(&self, value: &V) -> YamlValue {
        YamlValue::Line((self.print)(value))
    }
}

impl<V> Format<Option<V>> for Scalar<V> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut Option<V>) {
        if let Some(new) = self.value(reader, node, path) {
            *value = Some(new);
        }
    }

    fn print(&self, value: &Option<V>) -> YamlValue {
        value.as_ref().map_or(YamlValue::Omitted, |value| YamlValue::Line((self.print)(value)))
    }
}

/// Time.
pub(crate) const TIME: Scalar<Span> = Scalar {
    kind: "time",
    python: "Union[str, timedelta]",
    parse: |text, _| span(text),
    print: |span| span_text(*span),
};

/// Time, or `none`.
pub(crate) const TIME_OR_NONE: Scalar<Option<Span>> = Scalar {
    kind: "time or `none`",
    python: "Union[str, timedelta]",
    parse: |text, _| if text == "none" { Ok(None) } else { span(text).map(Some) },
    print: |span| span.map_or("none".to_owned(), span_text),
};

/// Size in MiB.
pub(crate) const SIZE: Scalar<u64> = Scalar {
    kind: "size",
    python: "str",
    parse: |text, _| size_mib(text),
    print: |mib| size_text(*mib),
};

/// Whole number, from 0.
pub(crate) const COUNT: Scalar<u32> = count_of();

/// Whole number of any resource.
pub(crate) const AMOUNT: Scalar<u64> = count_of();

const fn count_of<N: TryFrom<u64> + Display>() -> Scalar<N> {
    Scalar { kind: "count", python: "int", parse: |text, _| count(text), print: N::to_string }
}

/// Whole number, from 1.
pub(crate) const POSITIVE: Scalar<u32> = Scalar {
    parse: |text, _| match count(text)? {
        0 => Err(("0 is below the minimum".into(), "the minimum is 1".into())),
        n => Ok(n),
    },
    ..COUNT
};

/// `true` or `false`.
pub(crate) const BOOL: Scalar<bool> = Scalar {
    kind: "`true` or `false`",
    python: "bool",
    parse: |text, _| boolean(text),
    print: bool::to_string,
};

/// Any text.
pub(crate) const TEXT: Scalar<String> = text_of("text", |text, _| Ok(text.to_owned()));

/// Name without spaces, such as that of a queue, label, host or principal.
pub(crate) const NAME: Scalar<String> = text_of("text", |text, _| {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err((format!("`{text}` is not a valid name"), String::new()));
    }
    Ok(text.to_owned())
});

/// Returns the format of text with a parser of its own.
pub(crate) const fn text_of(
    kind: &'static str,
    parse: fn(&str, &Context) -> Result<String, Rejection>,
) -> Scalar<String> {
    Scalar { kind, python: "str", parse, print: |value| text(value) }
}

/// Parses a whole number, from 0.
pub(crate) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, Rejection> {
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
pub(crate) fn boolean(text: &str) -> Result<bool, Rejection> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err((format!("`{text}` is neither `true` nor `false`"), String::new())),
    }
}

/// One of several words.
pub(crate) struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T> Describe for Choice<T> {
    fn kind(&self) -> String {
        alternatives(self.0.iter().map(|(word, _)| *word))
    }

    fn python(&self) -> String {
        "str".to_owned()
    }
}

impl<T: Copy + PartialEq> Choice<T> {
    /// Parses a word, and suggests a similar one if it is unknown.
    pub(crate) fn parse(&self, text: &str) -> Result<T, Rejection> {
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
    pub(crate) fn word(&self, value: T) -> &'static str {
        self.0.iter().find(|(_, known)| *known == value).map_or("", |(word, _)| word)
    }
}

/// Lists words as `` `a`, `b` or `c` ``.
pub(crate) fn alternatives<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<_> = words.map(|word| format!("`{word}`")).collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} or {last}", words.join(", ")) }
}

impl<T: Copy + PartialEq> Format<T> for Choice<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut T) {
        if let Some(new) = reader.value_of(node, path, |text| self.parse(text)) {
            *value = new;
        }
    }

    fn print(&self, value: &T) -> YamlValue {
        YamlValue::Line(self.word(*value).to_owned())
    }
}

impl<T: Copy + PartialEq> Format<Option<T>> for Choice<T> {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut Option<T>) {
        if let Some(new) = reader.value_of(node, path, |text| self.parse(text)) {
            *value = Some(new);
        }
    }

    fn print(&self, value: &Option<T>) -> YamlValue {
        value.map_or(YamlValue::Omitted, |value| YamlValue::Line(self.word(value).to_owned()))
    }
}
