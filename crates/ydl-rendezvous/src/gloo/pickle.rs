//! The few objects of Python's that workers send, read without running anything.
//!
//! A pickle is a program. Only those instructions are known here that texts, bytes, small numbers, tuples of two, lists
//! and dictionaries are made of, as Python's protocols 4 and 5 write them; any other ends the reading. What was noted for
//! later use can be used again only if it has no parts, so that nothing can become larger than what was sent.

/// What a pickle is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PickleValue {
    Text(String),
    Bytes(Vec<u8>),
    Number(u16),
    Pair(Box<(PickleValue, PickleValue)>),
    List(Vec<PickleValue>),
    Dictionary(Vec<(PickleValue, PickleValue)>),
}

/// Longer than any that a worker sends; as each value takes some bytes of it, this bounds everything here.
const BYTES_MAX: usize = 64 << 10;

/// Values within values: a dictionary of lists of pairs in a pair, and some more.
const DEPTH_MAX: usize = 8;

struct PickleReader<'a>(&'a [u8]);

impl<'a> PickleReader<'a> {
    fn some(&mut self, length: usize) -> Option<&'a [u8]> {
        let (some, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(some)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.some(1)?[0])
    }

    /// With its length in one byte before it.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.some(usize::from(length))
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

/// A value, and how many are within each other at its deepest.
struct PickleItem {
    value: PickleValue,
    depth: usize,
}

/// What a pickle builds its value on.
#[derive(Default)]
struct PickleStack {
    items: Vec<PickleItem>,
    /// Where lists and dictionaries begin to be gathered.
    marks: Vec<usize>,
    /// What can be used again; `None` if it has parts.
    noted: Vec<Option<PickleValue>>,
}

impl PickleStack {
    fn push(&mut self, value: PickleValue) {
        self.items.push(PickleItem { value, depth: 0 });
    }

    /// What is above the last mark, and never what is below.
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

    /// Puts the last so many items into the list or dictionary below them.
    fn gather(&mut self, count: usize) -> Option<()> {
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
        let shallow = into.depth <= DEPTH_MAX;
        self.items.push(into);
        shallow.then_some(())
    }

    fn gather_to_mark(&mut self) -> Option<()> {
        let mark = self.marks.pop()?;
        self.gather(self.items.len().checked_sub(mark)?)
    }

    fn note(&mut self) -> Option<()> {
        let value = &self.items.last()?.value;
        let whole =
            matches!(value, PickleValue::Text(_) | PickleValue::Bytes(_) | PickleValue::Number(_));
        self.noted.push(whole.then(|| value.clone()));
        Some(())
    }
}

/// The one value that a pickle makes, if it makes one.
pub(super) fn read(bytes: &[u8]) -> Option<PickleValue> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let mut bytes = PickleReader(bytes);
    let mut stack = PickleStack::default();
    loop {
        match bytes.byte()? {
            PROTO => drop(bytes.byte().filter(|protocol| (2..=5).contains(protocol))?),
            FRAME => drop(bytes.some(8)?),
            b'}' => stack.push(PickleValue::Dictionary(Vec::new())),
            b']' => stack.push(PickleValue::List(Vec::new())),
            b'(' => stack.marks.push(stack.items.len()),
            SHORT_BINUNICODE => stack.push(PickleValue::Text(bytes.short_text()?.to_owned())),
            b'C' => stack.push(PickleValue::Bytes(bytes.short()?.to_vec())),
            b'K' => stack.push(PickleValue::Number(u16::from(bytes.byte()?))),
            b'M' => {
                let number = bytes.some(2)?.try_into().ok()?;
                stack.push(PickleValue::Number(u16::from_le_bytes(number)));
            }
            TUPLE2 => stack.pair()?,
            b'a' => stack.gather(1)?,
            b's' => stack.gather(2)?,
            b'e' | b'u' => stack.gather_to_mark()?,
            MEMOIZE => stack.note()?,
            b'h' => {
                let slot = usize::from(bytes.byte()?);
                let value = stack.noted.get(slot)?.clone()?;
                stack.push(value);
            }
            b'.' => break,
            _ => return None,
        }
    }
    let value = stack.pop()?.value;
    (stack.items.is_empty() && bytes.0.is_empty()).then_some(value)
}

/// The class whose instance a pickle is, as protocols 4 and 5 begin with it: module and name.
pub(super) fn class(bytes: &[u8]) -> Option<(&str, &str)> {
    let mut bytes = PickleReader(bytes);
    let mut names = [""; 2];
    (bytes.byte()? == PROTO).then_some(())?;
    bytes.byte()?;
    (bytes.byte()? == FRAME).then_some(())?;
    bytes.some(8)?;
    for name in &mut names {
        (bytes.byte()? == SHORT_BINUNICODE).then_some(())?;
        *name = bytes.short_text()?;
        (bytes.byte()? == MEMOIZE).then_some(())?;
    }
    (bytes.byte()? == STACK_GLOBAL).then_some((names[0], names[1]))
}
