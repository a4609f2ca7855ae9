//! Parser for configuration files: properties in file order, includes followed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use roxmltree::{Document, Error, Node, ParsingOptions};

use super::table::{ConfigError, Origin};

/// Maximum file size; the largest defaults of Hadoop have a tenth of it.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of XML nodes in one file.
const NODES_MAX: u32 = 1 << 20;
/// Maximum include depth.
const DEPTH_MAX: usize = 8;
/// Maximum number of files read in total. Bounds files that include each other many times.
const FILES_MAX: usize = 128;
/// Maximum size that entity expansion may add to a file.
const ENTITY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of attributes of one element; a property has three.
const ATTRIBUTES_MAX: usize = 256;
/// Maximum number of namespace declarations in one file; XInclude needs one.
const NAMESPACES_MAX: usize = 64;

/// A raw `<property>` element.
#[derive(Clone, Debug)]
pub(super) struct Property {
    /// `None`: no name; Hadoop ignores it, and a warning is recorded.
    pub name: Option<String>,
    /// `None`: no `<value>`.
    pub value: Option<String>,
    /// Marked `<final>`: later files must not override it.
    pub locked: bool,
    pub origin: Origin,
}

/// Reads files and counts them.
pub(super) struct XmlReader<'a> {
    /// Search path for relative includes, after the directory of the including file.
    directories: &'a [PathBuf],
    read: usize,
    /// The stack of files being read.
    open: Vec<PathBuf>,
}

impl<'a> XmlReader<'a> {
    pub(crate) fn new(directories: &'a [PathBuf]) -> Self {
        Self { directories, read: 0, open: Vec::new() }
    }

    pub(crate) fn read(&mut self, path: &Path) -> Result<Vec<Property>, ConfigError> {
        let mut properties = Vec::new();
        self.file(path, &mut properties)?;
        Ok(properties)
    }

    #[cfg(any(test, fuzzing))]
    pub fn text(&mut self, path: &Path, text: &str) -> Result<Vec<Property>, ConfigError> {
        let mut properties = Vec::new();
        self.document(path, text, &mut properties)?;
        Ok(properties)
    }

    fn file(&mut self, path: &Path, out: &mut Vec<Property>) -> Result<(), ConfigError> {
        let text = text_of(path)?;
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.read += 1;
        self.open.push(real);
        let result = self.document(path, &text, out);
        self.open.pop();
        result
    }

    fn document(
        &mut self,
        path: &Path,
        text: &str,
        out: &mut Vec<Property>,
    ) -> Result<(), ConfigError> {
        let mut position = SourcePosition::new(path, text);
        if text.trim().is_empty() {
            return Err(position.malformed(0, "the file is empty"));
        }
        let checked = check_entities(text).and_then(|()| check_elements(text));
        checked.map_err(|(at, why)| position.malformed(at, why))?;
        let options =
            ParsingOptions { allow_dtd: true, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
        let document = match Document::parse_with_options(text, options) {
            Ok(document) => document,
            Err(Error::UnclosedRootNode | Error::UnexpectedEndOfStream) => {
                return Err(position.malformed(text.len(), "unexpected end of file"));
            }
            Err(error) => {
                return Err(ConfigError::Malformed {
                    path: path.to_owned(),
                    line: error.pos().row,
                    why: error.to_string(),
                });
            }
        };
        let root = document.root_element();
        if root.tag_name().name() != "configuration" {
            let why = format!(
                "expected `<configuration>`, found `<{}>`",
                shorten(root.tag_name().name())
            );
            return Err(position.malformed(root.range().start, why));
        }
        self.children(root, &mut position, out)
    }

    /// Collects the properties of an element and of nested configurations and includes. Walks with
    /// an explicit stack, since a hostile file can nest deeper than the call stack.
    fn children(
        &mut self,
        parent: Node,
        position: &mut SourcePosition,
        out: &mut Vec<Property>,
    ) -> Result<(), ConfigError> {
        let mut stack: Vec<Node> = parent.children().collect();
        stack.reverse();
        while let Some(node) = stack.pop() {
            if !node.is_element() {
                continue;
            }
            match node.tag_name().name() {
                "property" => out.push(property(node, position)),
                "configuration" => {
                    let at = stack.len();
                    stack.extend(node.children());
                    stack[at..].reverse();
                }
                "include" => {
                    if let Some(fallback) = self.include(node, position, out)? {
                        let at = stack.len();
                        stack.extend(fallback.children());
                        stack[at..].reverse();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Follows an include. Returns the fallback element if it must be read instead.
    fn include<'n, 'i>(
        &mut self,
        node: Node<'n, 'i>,
        position: &mut SourcePosition,
        out: &mut Vec<Property>,
    ) -> Result<Option<Node<'n, 'i>>, ConfigError> {
        let at = node.range().start;
        let Some(href) = node.attribute("href").map(str::trim) else {
            return Err(position.malformed(at, "include without `href`"));
        };
        let shown = shorten(href);
        let target = match href.split_once(':') {
            Some(("file", rest)) => format!("/{}", rest.trim_start_matches('/')),
            Some((scheme, _)) if !scheme.contains('/') => {
                let why = format!("cannot include `{shown}`: only local files are supported");
                return Err(position.malformed(at, why));
            }
            _ => href.to_owned(),
        };
        let fallback = node
            .children()
            .find(|child| child.is_element() && child.tag_name().name() == "fallback");
        let Some(path) = self.locate(&position.path, &target) else {
            return match fallback {
                Some(_) => Ok(fallback),
                None => {
                    Err(position.malformed(at, format!("cannot include `{shown}`: file not found")))
                }
            };
        };
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let why = if self.open.contains(&real) {
            format!("cannot include `{shown}`: circular include")
        } else if self.open.len() >= DEPTH_MAX {
            format!("cannot include `{shown}`: nested more than {DEPTH_MAX} levels deep")
        } else if self.read >= FILES_MAX {
            format!("cannot include `{shown}`: more than {FILES_MAX} files in total")
        } else {
            self.file(&path, out)?;
            return Ok(None);
        };
        Err(position.malformed(at, why))
    }

    /// Locates an included file: next to the including one, then in the configuration directories.
    fn locate(&self, from: &Path, target: &str) -> Option<PathBuf> {
        let sibling = from.parent().unwrap_or(Path::new("")).join(target);
        if sibling.exists() {
            return Some(sibling);
        }
        self.directories.iter().map(|directory| directory.join(target)).find(|path| path.exists())
    }
}

/// Parses a property in either form: with child elements or with attributes.
fn property(node: Node, position: &mut SourcePosition) -> Property {
    let mut name = node.attribute("name").map(|name| name.trim().to_owned());
    let mut value = node.attribute("value").map(str::to_owned);
    let mut locked = node.attribute("final").is_some_and(is_true);
    for child in node.children().filter(Node::is_element) {
        match child.tag_name().name() {
            "name" => name = Some(text_in(child).trim().to_owned()),
            "value" => value = Some(text_in(child)),
            "final" => locked = is_true(&text_in(child)),
            _ => {}
        }
    }
    Property {
        name: name.filter(|name| !name.is_empty()),
        value,
        locked,
        origin: Origin::File {
            path: Arc::clone(&position.shared),
            line: position.line(node.range().start),
        },
    }
}

fn is_true(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case("true")
}

/// Returns the text directly inside an element; comments may split it.
fn text_in(node: Node) -> String {
    node.children().filter(Node::is_text).filter_map(|text| text.text()).collect()
}

/// Maps offsets to line numbers. Counting continues from the previous query, because counting from
/// the start each time would be quadratic; queries come in mostly ascending order.
struct SourcePosition<'t> {
    path: PathBuf,
    shared: Arc<Path>,
    text: &'t [u8],
    at: usize,
    line: u32,
}

impl<'t> SourcePosition<'t> {
    fn new(path: &Path, text: &'t str) -> Self {
        Self { path: path.to_owned(), shared: path.into(), text: text.as_bytes(), at: 0, line: 1 }
    }

    fn line(&mut self, offset: usize) -> u32 {
        let offset = offset.min(self.text.len());
        if offset < self.at {
            (self.at, self.line) = (0, 1);
        }
        let passed = self.text[self.at..offset].iter();
        self.line += passed.filter(|byte| **byte == b'\n').count() as u32;
        self.at = offset;
        self.line
    }

    fn malformed(&mut self, offset: usize, why: impl Into<String>) -> ConfigError {
        ConfigError::Malformed { path: self.path.clone(), line: self.line(offset), why: why.into() }
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    // Checked first: opening a FIFO would block until a writer connects.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("not a file")));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let why = format!("larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(unreadable(io::Error::other(why)));
    }
    let start = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let text = String::from_utf8(bytes.split_off(start)).map_err(|error| {
        let valid_end = error.utf8_error().valid_up_to();
        let lines = error.as_bytes()[..valid_end].iter();
        ConfigError::Malformed {
            path: path.to_owned(),
            line: 1 + lines.filter(|byte| **byte == b'\n').count() as u32,
            why: "not UTF-8".into(),
        }
    })?;
    Ok(text)
}

/// Rejects entities that reference other entities or expand to too large a text. The parser would
/// expand both without a limit.
fn check_entities(text: &str) -> Result<(), (usize, String)> {
    let Some(first) = text.find("<!ENTITY") else {
        return Ok(());
    };
    // Quoted values may contain brackets, so the last possible end of the declarations is used.
    let end = text[first..].rfind("]>").map_or(text.len(), |length| first + length);
    let declared = &text[first..end];
    if declared.contains('&') {
        return Err((first, "entity references another entity".into()));
    }
    let uses = text.matches('&').count();
    if uses.saturating_mul(declared.len()) > ENTITY_BYTES_MAX {
        return Err((first, "entity expansion is too large".into()));
    }
    Ok(())
}

/// Rejects elements with too many attributes or namespaces. The parser compares each of them with
/// all others, which takes quadratic time.
fn check_elements(text: &str) -> Result<(), (usize, String)> {
    if text.matches("xmlns").count() > NAMESPACES_MAX {
        return Err((0, "too many namespaces".into()));
    }
    for (at, _) in text.match_indices('<') {
        // Quoted values may contain anything but the start of an element.
        let (mut quote, mut attributes) = (None, 0);
        for &byte in &text.as_bytes()[at + 1..] {
            match (quote, byte) {
                (_, b'<') | (None, b'>') => break,
                // Comments, declarations and instructions have no attributes.
                (None, b'!' | b'?') if attributes == 0 => break,
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'=') => attributes += 1,
                (Some(open), _) if open == byte => quote = None,
                _ => {}
            }
        }
        if attributes > ATTRIBUTES_MAX {
            return Err((at, "element with too many attributes".into()));
        }
    }
    Ok(())
}

/// Shortens text from a file for a message.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
