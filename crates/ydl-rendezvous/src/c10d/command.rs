//! Commands of clients, in each dialect.

use super::reader::{C10dParseError, C10dReader, Pair, invalid};

/// Numbering of the commands on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// torch 2.2 and later. Starts with a VALIDATE command.
    Validated,
    /// torch 2.1 or earlier, not yet known to be one of the next two.
    BeforeTorch22,
    /// torch 2.1.
    Torch21,
    /// torch 2.0 and earlier.
    Torch20,
}

/// A complete command.
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

/// Opcodes by number, in the newest dialect.
const OPCODES: [C10dOpcode; 19] = {
    use C10dOpcode::*;
    [
        Validate, Set, CompareSet, Get, Add, Check, Wait, Count, Delete, Append, GetMany, SetMany,
        Cancel, Ping, Push, Pop, Length, List, Barrier,
    ]
};

/// Magic number that follows the VALIDATE opcode, in torch 2.2 and later.
pub(super) const MAGIC: [u8; 4] = 0x3c85_f7ce_u32.to_le_bytes();

/// A parsed command.
#[derive(Debug)]
pub(super) struct DecodedCommand<'a> {
    pub(super) command: C10dCommand<'a>,
    /// Dialect of the link, as far as detected.
    pub(super) dialect: Dialect,
    pub(super) length: usize,
}

/// Parses the first command in `bytes`. `dialect` is `None` before the first command of a link.
pub(super) fn parse(
    dialect: Option<Dialect>,
    bytes: &[u8],
) -> Result<DecodedCommand<'_>, C10dParseError> {
    let mut reader = C10dReader::new(bytes);
    let number = reader.byte()?;
    let (opcode, dialect) = match dialect {
        Some(Dialect::Validated) => match OPCODES.get(usize::from(number)) {
            Some(C10dOpcode::Validate) => return Err(invalid("duplicate VALIDATE command")),
            Some(opcode) => (*opcode, Dialect::Validated),
            None => return Err(unknown(number)),
        },
        Some(dialect) => legacy(dialect, bytes, C10dOpcode::Delete)?,
        // A legacy client that sets a key starts with zero too, but no key is as long as the magic number.
        None if number == 0
            && C10dReader::new(&bytes[1..]).array::<4>().map_err(one_byte_later)? == MAGIC =>
        {
            (C10dOpcode::Validate, Dialect::Validated)
        }
        // Legacy watches use a separate link, which carries no other command.
        None => legacy(Dialect::BeforeTorch22, bytes, C10dOpcode::Watch)?,
    };
    Ok(DecodedCommand { command: arguments(opcode, &mut reader)?, dialect, length: reader.at() })
}

fn one_byte_later(error: C10dParseError) -> C10dParseError {
    match error {
        C10dParseError::Incomplete(needed) => C10dParseError::Incomplete(needed + 1),
        C10dParseError::Invalid(rejection) => C10dParseError::Invalid(rejection),
    }
}

fn unknown(number: u8) -> C10dParseError {
    invalid(format!("unknown command `{number}`"))
}

/// Returns the opcode in a dialect before torch 2.2, and the dialect as far as it is known. The first seven
/// opcodes are the same in both dialects; later ones are distinguished by their arguments. `7` with a key is a watch
/// on a new link, and a delete otherwise. `8` with a key is an append if a value follows, and a delete otherwise: a
/// client that appends sends both at once, and none sends another command before it has its response.
fn legacy(
    dialect: Dialect,
    bytes: &[u8],
    opcode_7: C10dOpcode,
) -> Result<(C10dOpcode, Dialect), C10dParseError> {
    use Dialect::{Torch20, Torch21};
    let mut reader = C10dReader::new(bytes);
    let number = reader.byte()?;
    let same = |number: u8| OPCODES[usize::from(number) + 1];
    Ok(match (dialect, number) {
        (_, 0..=6) => (same(number), dialect),
        (Torch20, 7) => (C10dOpcode::Watch, Torch20),
        (Torch20, 8) => (C10dOpcode::Delete, Torch20),
        (Torch21, 7..=11) => (same(number), Torch21),
        (Dialect::BeforeTorch22, 7) => match opcode_7 {
            C10dOpcode::Watch => (C10dOpcode::Watch, Torch20),
            opcode => (opcode, Torch21),
        },
        (Dialect::BeforeTorch22, 8) => {
            reader.key()?;
            match bytes.len() > reader.at() {
                true => (C10dOpcode::Append, Torch21),
                false => (C10dOpcode::Delete, Torch20),
            }
        }
        (Dialect::BeforeTorch22, 9..=11) => (same(number), Torch21),
        _ => return Err(unknown(number)),
    })
}

fn arguments<'a>(
    opcode: C10dOpcode,
    reader: &mut C10dReader<'a>,
) -> Result<C10dCommand<'a>, C10dParseError> {
    Ok(match opcode {
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
