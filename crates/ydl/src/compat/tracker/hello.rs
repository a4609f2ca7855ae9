//! First message of a Rabit worker to its tracker.

/// Maximum length of a worker's name and of a command.
const TEXT_MAX: usize = 4096;

/// First message of a worker.
pub(crate) struct WorkerHello {
    /// Earlier rank, or -1.
    pub rank: i32,
    pub name: Vec<u8>,
    pub command: Vec<u8>,
}

impl WorkerHello {
    /// Parses the message, or returns `None` while it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<WorkerHello>, String> {
        let mut rest = bytes;
        let (Some(rank), Some(_world)) = (number(&mut rest), number(&mut rest)) else {
            return Ok(None);
        };
        let (Some(name), Some(command)) = (text(&mut rest)?, text(&mut rest)?) else {
            return Ok(None);
        };
        Ok(Some(WorkerHello { rank, name, command }))
    }
}

fn number(rest: &mut &[u8]) -> Option<i32> {
    let (first, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_le_bytes(*first))
}

fn text(rest: &mut &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(length) = number(rest) else {
        return Ok(None);
    };
    let length = usize::try_from(length).ok().filter(|it| *it <= TEXT_MAX);
    let length = length.ok_or("not a Rabit worker")?;
    if rest.len() < length {
        return Ok(None);
    }
    let (text, after) = rest.split_at(length);
    *rest = after;
    Ok(Some(text.to_vec()))
}
