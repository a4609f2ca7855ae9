//! Parser for the part of Java's serialisation used by the index of an indexed file: objects,
//! strings, enums, lists and maps. Everything else is skipped, and nothing is executed.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum nesting depth; the index has six levels.
const DEPTH_MAX: usize = 40;
/// Maximum number of values, which limits the memory.
const VALUES_MAX: usize = 2_000_000;
/// Number of the first handle.
const FIRST_HANDLE: u32 = 0x7e_0000;

/// Error for an invalid stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidStream(pub &'static str);

/// Value; values that can be referenced are in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JavaValue {
    Null,
    Number(i64),
    Node(usize),
}

#[derive(Debug)]
pub(super) enum JavaNode {
    Text(String),
    Object {
        fields: BTreeMap<Arc<str>, JavaValue>,
        /// Values that the class wrote besides its fields: the items of a list, the keys and values
        /// of a map.
        extra: Vec<JavaValue>,
    },
    /// Array, enum or class; its content is not needed.
    Other,
}

/// All nodes of a stream, in order of appearance.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<JavaNode>,
}

impl Graph {
    /// Reads the first object of a stream.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, JavaValue), InvalidStream> {
        let mut reader = StreamReader {
            bytes,
            at: 0,
            graph: Self::default(),
            handles: Vec::new(),
            classes: Vec::new(),
            values: 0,
        };
        if reader.take(4)? != [0xac, 0xed, 0, 5] {
            return Err(InvalidStream("index is not a Java stream"));
        }
        let root = match reader.content(0)? {
            Content::Value(value) => value,
            Content::Block | Content::End => return Err(InvalidStream("index without an object")),
        };
        Ok((reader.graph, root))
    }

    pub(crate) fn text(&self, value: JavaValue) -> Option<&str> {
        match self.node(value)? {
            JavaNode::Text(text) => Some(text),
            JavaNode::Object { .. } | JavaNode::Other => None,
        }
    }

    pub(crate) fn field(&self, value: JavaValue, name: &str) -> Option<JavaValue> {
        match self.node(value)? {
            JavaNode::Object { fields, .. } => fields.get(name).copied(),
            JavaNode::Text(_) | JavaNode::Other => None,
        }
    }

    /// Returns the items of a list, or alternating keys and values of a map.
    pub(crate) fn items(&self, value: JavaValue) -> &[JavaValue] {
        match self.node(value) {
            Some(JavaNode::Object { extra, .. }) => extra,
            _ => &[],
        }
    }

    fn node(&self, value: JavaValue) -> Option<&JavaNode> {
        match value {
            JavaValue::Node(at) => self.nodes.get(at),
            JavaValue::Null | JavaValue::Number(_) => None,
        }
    }
}

/// Class description in the stream.
#[derive(Debug, Default)]
struct Class {
    name: String,
    flags: u8,
    /// Types and names. Names are shared by all objects of the class.
    fields: Vec<(u8, Arc<str>)>,
    parent: Option<usize>,
}

#[derive(Clone, Copy)]
enum StreamHandle {
    Node(usize),
    Class(usize),
}

/// Element at the position of an object.
enum Content {
    Value(JavaValue),
    /// Bytes that a class wrote itself.
    Block,
    /// End of the data that a class wrote itself.
    End,
}

struct StreamReader<'a> {
    bytes: &'a [u8],
    at: usize,
    graph: Graph,
    handles: Vec<StreamHandle>,
    classes: Vec<Class>,
    values: usize,
}

impl<'a> StreamReader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], InvalidStream> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(InvalidStream("truncated index"))?;
        self.at += length;
        Ok(taken)
    }

    fn number(&mut self, length: usize) -> Result<u64, InvalidStream> {
        let bytes = self.take(length)?;
        Ok(bytes.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte)))
    }

    fn text(&mut self, length: u64) -> Result<String, InvalidStream> {
        let length =
            usize::try_from(length).map_err(|_| InvalidStream("text in the index too long"))?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn short_text(&mut self) -> Result<String, InvalidStream> {
        let length = self.number(2)?;
        self.text(length)
    }

    fn count(&mut self) -> Result<(), InvalidStream> {
        self.values += 1;
        match self.values > VALUES_MAX {
            true => Err(InvalidStream("index too large")),
            false => Ok(()),
        }
    }

    fn add(&mut self, node: JavaNode) -> Result<usize, InvalidStream> {
        self.count()?;
        self.graph.nodes.push(node);
        let at = self.graph.nodes.len() - 1;
        self.handles.push(StreamHandle::Node(at));
        Ok(at)
    }

    /// Reads one element.
    fn content(&mut self, depth: usize) -> Result<Content, InvalidStream> {
        if depth > DEPTH_MAX {
            return Err(InvalidStream("index nested too deeply"));
        }
        self.count()?;
        let mut tag = self.number(1)?;
        while tag == 0x79 {
            self.handles.clear();
            tag = self.number(1)?;
        }
        let value = match tag {
            0x70 => JavaValue::Null,
            0x71 => self.reference()?,
            0x72 | 0x7d => {
                self.at -= 1;
                self.class(depth + 1)?;
                JavaValue::Null
            }
            0x73 => JavaValue::Node(self.object(depth)?),
            0x74 => {
                let length = self.number(2)?;
                let text = self.text(length)?;
                JavaValue::Node(self.add(JavaNode::Text(text))?)
            }
            0x7c => {
                let length = self.number(8)?;
                let text = self.text(length)?;
                JavaValue::Node(self.add(JavaNode::Text(text))?)
            }
            0x75 => JavaValue::Node(self.array(depth)?),
            0x76 => {
                self.class(depth + 1)?;
                JavaValue::Node(self.add(JavaNode::Other)?)
            }
            0x77 | 0x7a => {
                let length = self.number(if tag == 0x77 { 1 } else { 4 })?;
                self.take(length as usize)?;
                return Ok(Content::Block);
            }
            0x78 => return Ok(Content::End),
            0x7e => {
                self.class(depth + 1)?;
                let at = self.add(JavaNode::Other)?;
                self.value(depth + 1)?;
                JavaValue::Node(at)
            }
            _ => return Err(InvalidStream("unknown element in the index")),
        };
        Ok(Content::Value(value))
    }

    fn value(&mut self, depth: usize) -> Result<JavaValue, InvalidStream> {
        match self.content(depth)? {
            Content::Value(value) => Ok(value),
            Content::Block | Content::End => Err(InvalidStream("missing value in the index")),
        }
    }

    fn handle(&mut self) -> Result<StreamHandle, InvalidStream> {
        let number = self.number(4)? as u32;
        let at = number.checked_sub(FIRST_HANDLE);
        let handle = at.and_then(|at| self.handles.get(at as usize));
        handle.copied().ok_or(InvalidStream("dangling reference in the index"))
    }

    fn reference(&mut self) -> Result<JavaValue, InvalidStream> {
        Ok(match self.handle()? {
            StreamHandle::Node(at) => JavaValue::Node(at),
            StreamHandle::Class(_) => JavaValue::Null,
        })
    }

    /// Reads a class description; `None` for a null reference.
    fn class(&mut self, depth: usize) -> Result<Option<usize>, InvalidStream> {
        if depth > DEPTH_MAX {
            return Err(InvalidStream("index nested too deeply"));
        }
        self.count()?;
        match self.number(1)? {
            0x70 => return Ok(None),
            0x71 => {
                return match self.handle()? {
                    StreamHandle::Class(at) => Ok(Some(at)),
                    StreamHandle::Node(_) => Err(InvalidStream("invalid class in the index")),
                };
            }
            0x72 => {}
            _ => return Err(InvalidStream("invalid class in the index")),
        }
        let name = self.short_text()?;
        self.take(8)?;
        self.classes.push(Class { name, ..Class::default() });
        let at = self.classes.len() - 1;
        self.handles.push(StreamHandle::Class(at));
        let flags = self.number(1)? as u8;
        let mut fields = Vec::new();
        for _ in 0..self.number(2)? {
            self.count()?;
            let kind = self.number(1)? as u8;
            let name = self.short_text()?;
            if matches!(kind, b'L' | b'[') {
                self.value(depth + 1)?;
            }
            fields.push((kind, name.into()));
        }
        self.extra(depth, None)?;
        let parent = self.class(depth + 1)?;
        // A class that is its own ancestor would cause an endless loop.
        let class = &mut self.classes[at];
        class.flags = flags;
        class.fields = fields;
        class.parent = parent.filter(|parent| *parent != at);
        Ok(Some(at))
    }

    /// Reads the data that a class wrote itself, up to its end, and adds the values to the node.
    fn extra(&mut self, depth: usize, node: Option<usize>) -> Result<(), InvalidStream> {
        loop {
            match self.content(depth + 1)? {
                Content::End => return Ok(()),
                Content::Block => {}
                Content::Value(value) => {
                    let node = node.and_then(|node| self.graph.nodes.get_mut(node));
                    if let Some(JavaNode::Object { extra, .. }) = node {
                        extra.push(value);
                    }
                }
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<usize, InvalidStream> {
        let class = self.class(depth + 1)?;
        let node = self.add(JavaNode::Object { fields: BTreeMap::new(), extra: Vec::new() })?;
        // From the oldest ancestor down. Too many ancestors mean a cycle.
        let mut hierarchy = Vec::new();
        let mut next = class;
        while let Some(at) = next {
            hierarchy.push(at);
            if hierarchy.len() > DEPTH_MAX {
                return Err(InvalidStream("class in the index with too many ancestors"));
            }
            next = self.classes[at].parent;
        }
        for at in hierarchy.into_iter().rev() {
            self.part(depth, node, at)?;
        }
        Ok(node)
    }

    /// Reads the part of an object that one class of its hierarchy wrote.
    fn part(&mut self, depth: usize, node: usize, class: usize) -> Result<(), InvalidStream> {
        let flags = self.classes[class].flags;
        let (serializable, externalizable) = (flags & 2 != 0, flags & 4 != 0);
        let (writes, in_blocks) = (flags & 1 != 0, flags & 8 != 0);
        if externalizable && !in_blocks {
            return Err(InvalidStream("unreadable externalizable object in the index"));
        }
        if serializable {
            for field in 0..self.classes[class].fields.len() {
                let kind = self.classes[class].fields[field].0;
                let value = self.primitive_or_value(kind, depth)?;
                let name = Arc::clone(&self.classes[class].fields[field].1);
                if let Some(JavaNode::Object { fields, .. }) = self.graph.nodes.get_mut(node) {
                    fields.insert(name, value);
                }
            }
        }
        if (serializable && writes) || externalizable {
            self.extra(depth, Some(node))?;
        }
        Ok(())
    }

    fn primitive_or_value(&mut self, kind: u8, depth: usize) -> Result<JavaValue, InvalidStream> {
        self.count()?;
        if matches!(kind, b'L' | b'[') {
            return self.value(depth + 1);
        }
        let length = primitive_length(kind)?;
        let bits = self.number(length)?;
        let unused = 64 - 8 * length as u32;
        Ok(JavaValue::Number(((bits << unused) as i64) >> unused))
    }

    /// Skips an array.
    fn array(&mut self, depth: usize) -> Result<usize, InvalidStream> {
        let class = self.class(depth + 1)?;
        let node = self.add(JavaNode::Other)?;
        let length = self.number(4)? as usize;
        let name = class.map(|at| self.classes[at].name.as_bytes());
        let kind = name.and_then(|name| name.get(1).copied());
        match kind {
            Some(b'L' | b'[') => {
                for _ in 0..length {
                    self.value(depth + 1)?;
                }
            }
            Some(kind) => {
                let bytes = primitive_length(kind)?.checked_mul(length);
                self.take(bytes.unwrap_or(usize::MAX))?;
            }
            None => return Err(InvalidStream("array in the index without an element type")),
        }
        Ok(node)
    }
}

fn primitive_length(kind: u8) -> Result<usize, InvalidStream> {
    match kind {
        b'B' | b'Z' => Ok(1),
        b'C' | b'S' => Ok(2),
        b'I' | b'F' => Ok(4),
        b'J' | b'D' => Ok(8),
        _ => Err(InvalidStream("field in the index of an unknown type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endlessly_nested_stream_is_rejected() {
        // A class description nested in a class description, and so on.
        let mut bytes = vec![0xac, 0xed, 0, 5];
        for _ in 0..100_000 {
            bytes.extend([0x76, 0x72, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
        }
        assert_eq!(Graph::read(&bytes).unwrap_err(), InvalidStream("index nested too deeply"));
    }

    #[test]
    fn a_class_that_is_its_own_ancestor_is_rejected() {
        let class = |name: u8| {
            let mut bytes = vec![0x72, 0, 1, name, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x78];
            bytes.extend([0x71, 0, 0x7e, 0, 0]);
            bytes
        };
        let mut bytes = vec![0xac, 0xed, 0, 5, 0x73];
        bytes.extend(&class(b'a')[..16]);
        bytes.extend(class(b'b'));
        assert_eq!(
            Graph::read(&bytes).unwrap_err(),
            InvalidStream("class in the index with too many ancestors")
        );
    }

    #[test]
    fn field_names_are_shared_between_objects() {
        // An array of two objects of a class with one field; the second one references the class.
        let mut bytes = vec![0xac, 0xed, 0, 5, 0x75, 0x72, 0, 2, b'[', b'L'];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x78, 0x70, 0, 0, 0, 2]);
        bytes.extend([0x73, 0x72, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1]);
        bytes.extend([b'B', 0, 4, b'n', b'a', b'm', b'e', 0x78, 0x70, 7]);
        bytes.extend([0x73, 0x71, 0, 0x7e, 0, 2, 8]);
        let (graph, _) = Graph::read(&bytes).unwrap();
        let names: Vec<&Arc<str>> = graph
            .nodes
            .iter()
            .filter_map(|node| match node {
                JavaNode::Object { fields, .. } => fields.keys().next(),
                JavaNode::Text(_) | JavaNode::Other => None,
            })
            .collect();
        assert_eq!(names.len(), 2);
        assert!(Arc::ptr_eq(names[0], names[1]));
    }

    #[test]
    fn a_stream_with_too_many_values_is_rejected() {
        let mut bytes = vec![0xac, 0xed, 0, 5, 0x75, 0x72, 0, 2, b'[', b'L'];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x78, 0x70]);
        bytes.extend((VALUES_MAX as u32).to_be_bytes());
        bytes.resize(bytes.len() + VALUES_MAX, 0x70);
        assert_eq!(Graph::read(&bytes).unwrap_err(), InvalidStream("index too large"));
    }

    #[test]
    fn declared_lengths_are_checked_before_allocation() {
        let header = [0xac, 0xed, 0, 5];
        let long_text = [0x7c, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        let mut array =
            vec![0x75, 0x72, 0, 2, b'[', b'J', 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x78, 0x70];
        array.extend([0x7f, 0xff, 0xff, 0xff]);
        for body in [&long_text[..], &array, &[0x7a, 0xff, 0xff, 0xff, 0xff]] {
            let bytes = [&header[..], body].concat();
            assert_eq!(Graph::read(&bytes).unwrap_err(), InvalidStream("truncated index"));
        }
    }
}
