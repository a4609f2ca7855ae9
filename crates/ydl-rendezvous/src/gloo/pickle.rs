//! Parses the Python objects that workers send, without executing them.
//!
//! A pickle is a program. Only the opcodes for strings, bytes, small numbers, pairs, lists and dictionaries are
//! supported, as written by pickle protocols 4 and 5. Any other opcode is an error. Memoized values can be referenced
//! only if they are scalars, so that the result cannot grow beyond the input.

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PickleValue {
    Text(String),
    Bytes(Vec<u8>),
    Number(u16),
    Pair(Box<(PickleValue, PickleValue)>),
    List(Vec<PickleValue>),
    Dictionary(Vec<(PickleValue, PickleValue)>),
}

/// Maximum length of a pickle. Each value takes some bytes of it, so this bounds the memory in use.
const BYTES_MAX: usize = 64 << 10;

/// Maximum nesting depth. Workers send a pair with a dictionary of lists of pairs.
const DEPTH_MAX: usize = 8;

struct PickleReader<'a>(&'a [u8]);

impl<'a> PickleReader<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    /// Reads bytes prefixed with a one-byte length.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.bytes(usize::from(length))
    }

    fn short_text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.short()?).ok()
    }
}

const PROTO: u8 = 0x80;
const FRAME: u8 = 0x95;
const MEMOIZE: u8 = 0x94;
const SHORT_BINUNICODE: u8 = 0x8c;
const STACK_GLOBAL: u8 = 0x93;
const TUPLE2: u8 = 0x86;

/// A value and its nesting depth.
struct PickleItem {
    value: PickleValue,
    depth: usize,
}

/// The stack of the pickle machine.
#[derive(Default)]
struct PickleStack {
    items: Vec<PickleItem>,
    /// Start positions of lists and dictionaries under construction.
    marks: Vec<usize>,
    /// Memoized values; `None` for containers.
    memo: Vec<Option<PickleValue>>,
}

impl PickleStack {
    fn push(&mut self, value: PickleValue) {
        self.items.push(PickleItem { value, depth: 0 });
    }

    /// Pops an item above the last mark.
    fn pop(&mut self) -> Option<PickleItem> {
        let floor = self.marks.last().copied().unwrap_or(0);
        (self.items.len() > floor).then(|| self.items.pop())?
    }

    fn pair(&mut self) -> Option<()> {
        let (second, first) = (self.pop()?, self.pop()?);
        let depth = first.depth.max(second.depth) + 1;
        let value = PickleValue::Pair(Box::new((first.value, second.value)));
        self.items.push(PickleItem { value, depth });
        (depth <= DEPTH_MAX).then_some(())
    }

    /// Moves the last `count` items into the list or dictionary below them.
    fn append(&mut self, count: usize) -> Option<()> {
        let items = self.items.split_off(self.items.len().checked_sub(count)?);
        let mut into = self.pop()?;
        into.depth = items.iter().map(|item| item.depth + 1).fold(into.depth, usize::max);
        let mut items = items.into_iter().map(|item| item.value);
        match &mut into.value {
            PickleValue::List(list) => list.extend(items),
            PickleValue::Dictionary(pairs) => {
                while let Some(key) = items.next() {
                    pairs.push((key, items.next()?));
                }
            }
            _ => return None,
        }
        let within_limit = into.depth <= DEPTH_MAX;
        self.items.push(into);
        within_limit.then_some(())
    }

    fn append_to_mark(&mut self) -> Option<()> {
        let mark = self.marks.pop()?;
        self.append(self.items.len().checked_sub(mark)?)
    }

    fn memoize(&mut self) -> Option<()> {
        let value = &self.items.last()?.value;
        let scalar =
            matches!(value, PickleValue::Text(_) | PickleValue::Bytes(_) | PickleValue::Number(_));
        self.memo.push(scalar.then(|| value.clone()));
        Some(())
    }
}

/// Parses a pickle of a single value.
pub(super) fn parse(bytes: &[u8]) -> Option<PickleValue> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let mut bytes = PickleReader(bytes);
    let mut stack = PickleStack::default();
    loop {
        match bytes.byte()? {
            PROTO => drop(bytes.byte().filter(|protocol| (2..=5).contains(protocol))?),
            FRAME => drop(bytes.bytes(8)?),
            b'}' => stack.push(PickleValue::Dictionary(Vec::new())),
            b']' => stack.push(PickleValue::List(Vec::new())),
            b'(' => stack.marks.push(stack.items.len()),
            SHORT_BINUNICODE => stack.push(PickleValue::Text(bytes.short_text()?.to_owned())),
            b'C' => stack.push(PickleValue::Bytes(bytes.short()?.to_vec())),
            b'K' => stack.push(PickleValue::Number(u16::from(bytes.byte()?))),
            b'M' => {
                let number = bytes.bytes(2)?.try_into().ok()?;
                stack.push(PickleValue::Number(u16::from_le_bytes(number)));
            }
            TUPLE2 => stack.pair()?,
            b'a' => stack.append(1)?,
            b's' => stack.append(2)?,
            b'e' | b'u' => stack.append_to_mark()?,
            MEMOIZE => stack.memoize()?,
            b'h' => {
                let index = usize::from(bytes.byte()?);
                let value = stack.memo.get(index)?.clone()?;
                stack.push(value);
            }
            b'.' => break,
            _ => return None,
        }
    }
    let value = stack.pop()?.value;
    (stack.items.is_empty() && bytes.0.is_empty()).then_some(value)
}

/// Returns the module and the name of the class of a pickled instance, from the start of a protocol 4 or 5 pickle.
pub(super) fn class(bytes: &[u8]) -> Option<(&str, &str)> {
    let mut bytes = PickleReader(bytes);
    let mut names = [""; 2];
    (bytes.byte()? == PROTO).then_some(())?;
    bytes.byte()?;
    (bytes.byte()? == FRAME).then_some(())?;
    bytes.bytes(8)?;
    for name in &mut names {
        (bytes.byte()? == SHORT_BINUNICODE).then_some(())?;
        *name = bytes.short_text()?;
        (bytes.byte()? == MEMOIZE).then_some(())?;
    }
    (bytes.byte()? == STACK_GLOBAL).then_some((names[0], names[1]))
}
