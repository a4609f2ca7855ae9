//! The metadata in the first frame of a ps-lite message.

use super::wire::{ProtoReader, malformed, put_bytes, put_flag, put_int32};
use crate::Rejection;

/// Number that ps-lite writes for an absent value.
pub const EMPTY: i32 = i32::MAX;
/// Maximum number of nodes in a message. A node lists only itself.
const NODES_MAX: usize = 1 << 16;

/// Command of a control message.
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

/// Role of a node.
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

/// Description of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsNode {
    pub role: PsRole,
    /// [`EMPTY`] until the scheduler assigns one.
    pub id: i32,
    pub host: String,
    pub port: i32,
    /// The node replaces an earlier one.
    pub is_recovery: bool,
    pub customer: i32,
}

/// Control part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsControl {
    pub command: PsCommand,
    pub nodes: Vec<PsNode>,
    /// Group of a barrier: 1 for the scheduler, 2 for servers, 4 for workers, or a sum of these.
    pub group: i32,
}

/// The fields of a message that a scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsMeta {
    /// `None` for data, which nodes send to each other.
    pub control: Option<PsControl>,
    pub request: bool,
    pub app: Option<i32>,
    pub timestamp: Option<i32>,
    pub customer: i32,
}

impl PsMeta {
    /// ProtoReader that are not known are passed over, as protocol buffers ask.
    pub fn parse(bytes: &[u8]) -> Result<PsMeta, Rejection> {
        let mut meta =
            PsMeta { control: None, request: false, app: None, timestamp: None, customer: EMPTY };
        let mut fields = ProtoReader(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                3 => meta.control = parse_control(value.bytes()?)?,
                4 => meta.request = value.flag()?,
                7 => meta.app = Some(value.int32()?),
                8 => meta.timestamp = Some(value.int32()?),
                10 => meta.customer = value.int32()?,
                _ => {}
            }
        }
        Ok(meta)
    }

    /// Encodes a message with the field order and the defaults of ps-lite.
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

/// Returns `None` if the command is empty.
fn parse_control(bytes: &[u8]) -> Result<Option<PsControl>, Rejection> {
    let (mut number, mut nodes, mut group) = (0, Vec::new(), 0);
    let mut fields = ProtoReader(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => number = value.int32()?,
            2 if nodes.len() < NODES_MAX => nodes.push(parse_node(value.bytes()?)?),
            2 => return Err(malformed()),
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

fn parse_node(bytes: &[u8]) -> Result<PsNode, Rejection> {
    let (mut role, mut id, mut port, mut customer) = (None, EMPTY, 0, EMPTY);
    let (mut host, mut is_recovery) = (String::new(), false);
    let mut fields = ProtoReader(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => role = Some(value.int32()?),
            2 => id = value.int32()?,
            3 => host = String::from_utf8(value.bytes()?.to_vec()).map_err(|_| malformed())?,
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

    /// Recorded from MXNet 1.9.1.
    #[test]
    fn recorded_messages_survive_a_round_trip() {
        let check = |hex: &str, meta: PsMeta| {
            let recorded = bytes(hex);
            assert_eq!(PsMeta::parse(&recorded), Ok(meta.clone()));
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
    fn a_truncated_message_is_rejected() {
        let whole = bytes("1a1b 0805 1217 0800 1008 1a093132372e302e302e31 2084b601 2800 5000");
        for cut in 1..whole.len() {
            assert!(PsMeta::parse(&whole[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn unknown_roles_and_commands_are_rejected() {
        assert!(PsMeta::parse(&bytes("1a02 0809")).is_err());
        assert!(PsMeta::parse(&bytes("1a06 0802 1202 0807")).is_err());
        assert_eq!(PsMeta::parse(&[]).unwrap().control, None);
    }
}
