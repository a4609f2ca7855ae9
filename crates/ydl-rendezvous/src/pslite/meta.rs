//! What goes in the first frame of a ps-lite message.

use super::wire::{ProtoReader, put_bytes, put_flag, put_int32, wrong};
use crate::Rejection;

/// What ps-lite writes where it has no number.
pub const EMPTY: i32 = i32::MAX;
/// As many as a message of ours can list; a node lists one, itself.
const NODES_MAX: usize = 1 << 16;

/// What a message is for, when it is not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsCommand {
    Terminate,
    AddNode,
    Barrier,
    Ack,
    Heartbeat,
}

impl PsCommand {
    const ALL: [PsCommand; 5] = [
        PsCommand::Terminate,
        PsCommand::AddNode,
        PsCommand::Barrier,
        PsCommand::Ack,
        PsCommand::Heartbeat,
    ];

    fn number(self) -> i32 {
        match self {
            PsCommand::Terminate => 1,
            PsCommand::AddNode => 2,
            PsCommand::Barrier => 3,
            PsCommand::Ack => 4,
            PsCommand::Heartbeat => 5,
        }
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsRole {
    Server,
    Worker,
    Scheduler,
}

impl PsRole {
    fn number(self) -> i32 {
        match self {
            PsRole::Server => 0,
            PsRole::Worker => 1,
            PsRole::Scheduler => 2,
        }
    }
}

/// One node, as messages describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsNode {
    pub role: PsRole,
    /// [`EMPTY`] until the scheduler has given it one.
    pub id: i32,
    pub host: String,
    pub port: i32,
    /// It has taken the place of one that was there before.
    pub is_recovery: bool,
    pub customer: i32,
}

/// The part of a message that makes it one of control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsControl {
    pub command: PsCommand,
    pub nodes: Vec<PsNode>,
    /// For whom a barrier is: 1 the scheduler, 2 the servers, 4 the workers, or a sum of these.
    pub group: i32,
}

/// A message without its arrays, as far as a scheduler looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsMeta {
    /// `None` for data, which goes from node to node.
    pub control: Option<PsControl>,
    pub request: bool,
    pub app: Option<i32>,
    pub timestamp: Option<i32>,
    pub customer: i32,
}

impl PsMeta {
    /// ProtoReader that are not known are passed over, as protocol buffers ask.
    pub fn read(bytes: &[u8]) -> Result<PsMeta, Rejection> {
        let mut meta =
            PsMeta { control: None, request: false, app: None, timestamp: None, customer: EMPTY };
        let mut fields = ProtoReader(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                3 => meta.control = read_control(value.bytes()?)?,
                4 => meta.request = value.flag()?,
                7 => meta.app = Some(value.int32()?),
                8 => meta.timestamp = Some(value.int32()?),
                10 => meta.customer = value.int32()?,
                _ => {}
            }
        }
        Ok(meta)
    }

    /// In the order and with the defaults that ps-lite writes.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_int32(&mut out, 1, EMPTY);
        if let Some(control) = &self.control {
            put_bytes(&mut out, 3, &write_control(control));
        }
        put_flag(&mut out, 4, self.request);
        put_flag(&mut out, 5, false);
        put_flag(&mut out, 6, false);
        if let Some(app) = self.app {
            put_int32(&mut out, 7, app);
        }
        if let Some(timestamp) = self.timestamp {
            put_int32(&mut out, 8, timestamp);
        }
        put_int32(&mut out, 10, self.customer);
        put_flag(&mut out, 12, false);
        put_int32(&mut out, 13, 0);
        out
    }
}

/// `None` where the command says that there is none.
fn read_control(bytes: &[u8]) -> Result<Option<PsControl>, Rejection> {
    let (mut number, mut nodes, mut group) = (0, Vec::new(), 0);
    let mut fields = ProtoReader(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => number = value.int32()?,
            2 if nodes.len() < NODES_MAX => nodes.push(read_node(value.bytes()?)?),
            2 => return Err(wrong()),
            3 => group = value.int32()?,
            _ => {}
        }
    }
    if number == 0 {
        return Ok(None);
    }
    let command = PsCommand::ALL
        .into_iter()
        .find(|command| command.number() == number)
        .ok_or_else(|| Rejection::new(format!("unknown ps-lite command {number}")))?;
    Ok(Some(PsControl { command, nodes, group }))
}

fn read_node(bytes: &[u8]) -> Result<PsNode, Rejection> {
    let (mut role, mut id, mut port, mut customer) = (None, EMPTY, 0, EMPTY);
    let (mut host, mut is_recovery) = (String::new(), false);
    let mut fields = ProtoReader(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => role = Some(value.int32()?),
            2 => id = value.int32()?,
            3 => host = String::from_utf8(value.bytes()?.to_vec()).map_err(|_| wrong())?,
            4 => port = value.int32()?,
            5 => is_recovery = value.flag()?,
            10 => customer = value.int32()?,
            _ => {}
        }
    }
    let role = [PsRole::Server, PsRole::Worker, PsRole::Scheduler]
        .into_iter()
        .find(|known| Some(known.number()) == role)
        .ok_or_else(|| Rejection::new("unknown ps-lite node role"))?;
    Ok(PsNode { role, id, host, port, is_recovery, customer })
}

fn write_control(control: &PsControl) -> Vec<u8> {
    let mut out = Vec::new();
    put_int32(&mut out, 1, control.command.number());
    for node in &control.nodes {
        let mut of = Vec::new();
        put_int32(&mut of, 1, node.role.number());
        put_int32(&mut of, 2, node.id);
        put_bytes(&mut of, 3, node.host.as_bytes());
        put_int32(&mut of, 4, node.port);
        put_flag(&mut of, 5, node.is_recovery);
        put_int32(&mut of, 10, node.customer);
        put_bytes(&mut out, 2, &of);
    }
    if control.command == PsCommand::Barrier {
        put_int32(&mut out, 3, control.group);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn server(id: i32) -> PsNode {
        PsNode {
            role: PsRole::Server,
            id,
            host: "127.0.0.1".to_owned(),
            port: 23_300,
            is_recovery: false,
            customer: 0,
        }
    }

    /// Recorded from MXNet 1.9.1; read and written again they are the same bytes.
    #[test]
    fn recorded_messages_are_read_and_written_as_they_were() {
        let check = |hex: &str, meta: PsMeta| {
            let recorded = bytes(hex);
            assert_eq!(PsMeta::read(&recorded), Ok(meta.clone()));
            assert_eq!(meta.write(), recorded);
        };
        check(
            "08ffffffff07 1a1f 0802 121b 0800 10ffffffff07 1a093132372e302e302e31 2084b601 2800 \
             5000 2000 2800 3000 4000 50ffffffff07 6000 6800",
            PsMeta {
                control: Some(PsControl {
                    command: PsCommand::AddNode,
                    nodes: vec![server(EMPTY)],
                    group: 0,
                }),
                request: false,
                app: None,
                timestamp: Some(0),
                customer: EMPTY,
            },
        );
        check(
            "08ffffffff07 1a04 0803 1807 2001 2800 3000 3800 4001 5000 6000 6800",
            PsMeta {
                control: Some(PsControl { command: PsCommand::Barrier, nodes: vec![], group: 7 }),
                request: true,
                app: Some(0),
                timestamp: Some(1),
                customer: 0,
            },
        );
        check(
            "08ffffffff07 1a1b 0805 1217 0800 1008 1a093132372e302e302e31 2084b601 2800 5000 \
             2000 2800 3000 4002 50ffffffff07 6000 6800",
            PsMeta {
                control: Some(PsControl {
                    command: PsCommand::Heartbeat,
                    nodes: vec![server(8)],
                    group: 0,
                }),
                request: false,
                app: None,
                timestamp: Some(2),
                customer: EMPTY,
            },
        );
    }

    #[test]
    fn a_message_cut_short_is_refused_and_not_guessed() {
        let whole = bytes("1a1b 0805 1217 0800 1008 1a093132372e302e302e31 2084b601 2800 5000");
        for cut in 1..whole.len() {
            assert!(PsMeta::read(&whole[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn roles_and_commands_nobody_knows_are_refused() {
        assert!(PsMeta::read(&bytes("1a02 0809")).is_err());
        assert!(PsMeta::read(&bytes("1a06 0802 1202 0807")).is_err());
        assert_eq!(PsMeta::read(&[]).unwrap().control, None);
    }
}
