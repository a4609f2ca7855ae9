//! What a client can ask, in each dialect.

use super::reader::{C10dParseError, C10dReader, Pair, wrong};

/// How the commands of a link are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// torch 2.2 and later: says so with its first command.
    Validated,
    /// Before that, and nothing said yet that only one of the next two would say.
    Legacy,
    /// torch 2.1.
    Extended,
    /// torch 2.0 and earlier.
    Watching,
}

/// A whole command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum C10dCommand<'a> {
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
enum C10dOpcode {
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
const OPCODES: [C10dOpcode; 19] = {
    use C10dOpcode::*;
    [
        Validate, Set, CompareSet, Get, Add, Check, Wait, Count, Delete, Append, GetMany, SetMany,
        Cancel, Ping, Push, Pop, Length, List, Barrier,
    ]
};

/// What follows the number of the first command, from torch 2.2 on.
pub(super) const MAGIC: [u8; 4] = 0x3c85_f7ce_u32.to_le_bytes();

/// A command as it was read.
#[derive(Debug)]
pub(super) struct DecodedCommand<'a> {
    pub(super) command: C10dCommand<'a>,
    /// What its link speaks, as far as is known now.
    pub(super) dialect: Dialect,
    pub(super) length: usize,
}

/// The first command of these bytes, on a link that speaks so; `None` before anything was said.
pub(super) fn read(
    dialect: Option<Dialect>,
    bytes: &[u8],
) -> Result<DecodedCommand<'_>, C10dParseError> {
    let mut reader = C10dReader::new(bytes);
    let number = reader.byte()?;
    let (verb, dialect) = match dialect {
        Some(Dialect::Validated) => match OPCODES.get(usize::from(number)) {
            Some(C10dOpcode::Validate) => return Err(wrong("duplicate VALIDATE command")),
            Some(verb) => (*verb, Dialect::Validated),
            None => return Err(unknown(number)),
        },
        Some(dialect) => old(dialect, bytes, C10dOpcode::Delete)?,
        // An old client begins with a zero too, when it sets a key; but no key is as long as the magic would say.
        None if number == 0
            && C10dReader::new(&bytes[1..]).array::<4>().map_err(after_one)? == MAGIC =>
        {
            (C10dOpcode::Validate, Dialect::Validated)
        }
        // The old watch speaks on a link of its own, on which nothing else is said.
        None => old(Dialect::Legacy, bytes, C10dOpcode::Watch)?,
    };
    Ok(DecodedCommand { command: arguments(verb, &mut reader)?, dialect, length: reader.at() })
}

fn after_one(stop: C10dParseError) -> C10dParseError {
    match stop {
        C10dParseError::Incomplete(least) => C10dParseError::Incomplete(least + 1),
        C10dParseError::Invalid(rejection) => C10dParseError::Invalid(rejection),
    }
}

fn unknown(number: u8) -> C10dParseError {
    wrong(format!("unknown command `{number}`"))
}

/// Before 2.2 the first seven are the same. Then the two dialects part, and nothing but the commands themselves tells
/// which one it is. `7` with a key is a watch or a deletion: see above. `8` with a key is a deletion, or an append with
/// its value behind: as no client says anything before it has its answer, what comes with the key tells, and a client
/// that appends sends both at once.
fn old(
    dialect: Dialect,
    bytes: &[u8],
    seven: C10dOpcode,
) -> Result<(C10dOpcode, Dialect), C10dParseError> {
    use Dialect::{Extended, Watching};
    let mut reader = C10dReader::new(bytes);
    let number = reader.byte()?;
    let same = |number: u8| OPCODES[usize::from(number) + 1];
    Ok(match (dialect, number) {
        (_, 0..=6) => (same(number), dialect),
        (Watching, 7) => (C10dOpcode::Watch, Watching),
        (Watching, 8) => (C10dOpcode::Delete, Watching),
        (Extended, 7..=11) => (same(number), Extended),
        (Dialect::Legacy, 7) => match seven {
            C10dOpcode::Watch => (C10dOpcode::Watch, Watching),
            verb => (verb, Extended),
        },
        (Dialect::Legacy, 8) => {
            reader.key()?;
            match bytes.len() > reader.at() {
                true => (C10dOpcode::Append, Extended),
                false => (C10dOpcode::Delete, Watching),
            }
        }
        (Dialect::Legacy, 9..=11) => (same(number), Extended),
        _ => return Err(unknown(number)),
    })
}

fn arguments<'a>(
    verb: C10dOpcode,
    reader: &mut C10dReader<'a>,
) -> Result<C10dCommand<'a>, C10dParseError> {
    Ok(match verb {
        C10dOpcode::Validate => {
            let _: [u8; 4] = reader.array()?;
            C10dCommand::Validate
        }
        C10dOpcode::Set => C10dCommand::Set(reader.key()?, reader.value()?),
        C10dOpcode::CompareSet => C10dCommand::CompareSet {
            key: reader.key()?,
            expected: reader.value()?,
            desired: reader.value()?,
        },
        C10dOpcode::Get => C10dCommand::Get(reader.key()?),
        C10dOpcode::Add => C10dCommand::Add(reader.key()?, reader.number()?),
        C10dOpcode::Check => C10dCommand::Check(reader.keys()?),
        C10dOpcode::Wait => C10dCommand::Wait(reader.keys()?),
        C10dOpcode::Count => C10dCommand::Count,
        C10dOpcode::Delete => C10dCommand::Delete(reader.key()?),
        C10dOpcode::Append => C10dCommand::Append(reader.key()?, reader.value()?),
        C10dOpcode::GetMany => C10dCommand::GetMany(reader.keys()?),
        C10dOpcode::SetMany => C10dCommand::SetMany(reader.pairs()?),
        C10dOpcode::Cancel => C10dCommand::Cancel,
        C10dOpcode::Ping => C10dCommand::Ping(reader.array()?),
        C10dOpcode::Push => C10dCommand::Push(reader.key()?, reader.value()?),
        C10dOpcode::Pop => C10dCommand::Pop(reader.key()?),
        C10dOpcode::Length => C10dCommand::Length(reader.key()?),
        C10dOpcode::List => C10dCommand::List,
        C10dOpcode::Barrier => C10dCommand::Barrier(reader.key()?, reader.number()?),
        C10dOpcode::Watch => C10dCommand::Watch(reader.key()?),
    })
}
