//! What a client can ask, in each dialect.

use super::read::{Pair, Reader, Stop, wrong};

/// How the commands of a link are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// torch 2.2 and later: says so with its first command.
    Validated,
    /// Before that, and nothing said yet that only one of the next two would say.
    Old,
    /// torch 2.1.
    Extended,
    /// torch 2.0 and earlier.
    Watching,
}

/// A whole command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Validate,
    Set(&'a [u8], &'a [u8]),
    CompareSet { key: &'a [u8], expected: &'a [u8], desired: &'a [u8] },
    Get(&'a [u8]),
    Add(&'a [u8], i64),
    Check(Vec<&'a [u8]>),
    Wait(Vec<&'a [u8]>),
    Count,
    Delete(&'a [u8]),
    Append(&'a [u8], &'a [u8]),
    GetMany(Vec<&'a [u8]>),
    SetMany(Vec<Pair<'a>>),
    Cancel,
    Ping([u8; 4]),
    Push(&'a [u8], &'a [u8]),
    Pop(&'a [u8]),
    Length(&'a [u8]),
    List,
    Barrier(&'a [u8], i64),
    Watch(&'a [u8]),
}

#[derive(Clone, Copy)]
enum Verb {
    Validate,
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    Count,
    Delete,
    Append,
    GetMany,
    SetMany,
    Cancel,
    Ping,
    Push,
    Pop,
    Length,
    List,
    Barrier,
    Watch,
}

/// By number, in the newest dialect.
const VERBS: [Verb; 19] = {
    use Verb::*;
    [
        Validate, Set, CompareSet, Get, Add, Check, Wait, Count, Delete, Append, GetMany, SetMany,
        Cancel, Ping, Push, Pop, Length, List, Barrier,
    ]
};

/// What follows the number of the first command, from torch 2.2 on.
pub(super) const MAGIC: [u8; 4] = 0x3c85_f7ce_u32.to_le_bytes();

/// A command as it was read.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) command: Command<'a>,
    /// What its link speaks, as far as is known now.
    pub(super) dialect: Dialect,
    pub(super) length: usize,
}

/// The first command of these bytes, on a link that speaks so; `None` before anything was said.
pub(super) fn read(dialect: Option<Dialect>, bytes: &[u8]) -> Result<Read<'_>, Stop> {
    let mut reader = Reader::new(bytes);
    let number = reader.byte()?;
    let (verb, dialect) = match dialect {
        Some(Dialect::Validated) => match VERBS.get(usize::from(number)) {
            Some(Verb::Validate) => return Err(wrong("a link was validated twice")),
            Some(verb) => (*verb, Dialect::Validated),
            None => return Err(unknown(number)),
        },
        Some(dialect) => old(dialect, bytes, Verb::Delete)?,
        // An old client begins with a zero too, when it sets a key; but no key is as long as the magic would say.
        None if number == 0
            && Reader::new(&bytes[1..]).array::<4>().map_err(after_one)? == MAGIC =>
        {
            (Verb::Validate, Dialect::Validated)
        }
        // The old watch speaks on a link of its own, on which nothing else is said.
        None => old(Dialect::Old, bytes, Verb::Watch)?,
    };
    Ok(Read { command: arguments(verb, &mut reader)?, dialect, length: reader.at() })
}

fn after_one(stop: Stop) -> Stop {
    match stop {
        Stop::Short(least) => Stop::Short(least + 1),
        Stop::Wrong(refusal) => Stop::Wrong(refusal),
    }
}

fn unknown(number: u8) -> Stop {
    wrong(format!("there is no command `{number}`"))
}

/// Before 2.2 the first seven are the same. Then the two dialects part, and nothing but the commands themselves tells
/// which one it is. `7` with a key is a watch or a deletion: see above. `8` with a key is a deletion, or an append with
/// its value behind: as no client says anything before it has its answer, what comes with the key tells, and a client
/// that appends sends both at once.
fn old(dialect: Dialect, bytes: &[u8], seven: Verb) -> Result<(Verb, Dialect), Stop> {
    use Dialect::{Extended, Watching};
    let mut reader = Reader::new(bytes);
    let number = reader.byte()?;
    let same = |number: u8| VERBS[usize::from(number) + 1];
    Ok(match (dialect, number) {
        (_, 0..=6) => (same(number), dialect),
        (Watching, 7) => (Verb::Watch, Watching),
        (Watching, 8) => (Verb::Delete, Watching),
        (Extended, 7..=11) => (same(number), Extended),
        (Dialect::Old, 7) => match seven {
            Verb::Watch => (Verb::Watch, Watching),
            verb => (verb, Extended),
        },
        (Dialect::Old, 8) => {
            reader.key()?;
            match bytes.len() > reader.at() {
                true => (Verb::Append, Extended),
                false => (Verb::Delete, Watching),
            }
        }
        (Dialect::Old, 9..=11) => (same(number), Extended),
        _ => return Err(unknown(number)),
    })
}

fn arguments<'a>(verb: Verb, reader: &mut Reader<'a>) -> Result<Command<'a>, Stop> {
    Ok(match verb {
        Verb::Validate => {
            let _: [u8; 4] = reader.array()?;
            Command::Validate
        }
        Verb::Set => Command::Set(reader.key()?, reader.value()?),
        Verb::CompareSet => Command::CompareSet {
            key: reader.key()?,
            expected: reader.value()?,
            desired: reader.value()?,
        },
        Verb::Get => Command::Get(reader.key()?),
        Verb::Add => Command::Add(reader.key()?, reader.number()?),
        Verb::Check => Command::Check(reader.keys()?),
        Verb::Wait => Command::Wait(reader.keys()?),
        Verb::Count => Command::Count,
        Verb::Delete => Command::Delete(reader.key()?),
        Verb::Append => Command::Append(reader.key()?, reader.value()?),
        Verb::GetMany => Command::GetMany(reader.keys()?),
        Verb::SetMany => Command::SetMany(reader.pairs()?),
        Verb::Cancel => Command::Cancel,
        Verb::Ping => Command::Ping(reader.array()?),
        Verb::Push => Command::Push(reader.key()?, reader.value()?),
        Verb::Pop => Command::Pop(reader.key()?),
        Verb::Length => Command::Length(reader.key()?),
        Verb::List => Command::List,
        Verb::Barrier => Command::Barrier(reader.key()?, reader.number()?),
        Verb::Watch => Command::Watch(reader.key()?),
    })
}
