//! The agent's end of links: buffers the bytes that programs wrote until the master acknowledges them, and applies the
//! master's frames.

use std::collections::{BTreeMap, BTreeSet};

use super::frame::{ClientFrame, ConnId, ConnState, Seq, ServerFrame};

/// Maximum length of a resent chunk: less than the master accepts in one request body.
const CHUNK_LEN: usize = 256 << 10;

/// An operation on a program's socket, requested by the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAction {
    /// Writes bytes, after those requested before.
    Write(ConnId, Vec<u8>),
    /// Closes the socket after everything is written. The id is not used again.
    Close(ConnId),
    /// Connects to a port of the program.
    Dial(ConnId, u16),
}

/// The links of an agent's programs.
#[derive(Debug, Default)]
pub struct AgentLinks {
    conns: BTreeMap<ConnId, ConnBuffer>,
    /// Requested dials without a result.
    dialing: BTreeSet<ConnId>,
    accepted: u64,
    buffered: usize,
}

#[derive(Debug, Default)]
struct ConnBuffer {
    /// Offset of the first buffered byte.
    start: u64,
    bytes: Vec<u8>,
    acked: Seq,
    /// The program has closed its connection.
    closed: bool,
}

impl ConnBuffer {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Drops the bytes before `offset` and returns their number.
    fn drop_before(&mut self, offset: u64) -> usize {
        let count = offset.min(self.end()).saturating_sub(self.start);
        self.start += count;
        // At most the length of the buffer.
        let count = count as usize;
        self.bytes.drain(..count);
        count
    }
}

impl AgentLinks {
    /// Adds a connection that a program opened.
    pub fn accept(&mut self) -> (ConnId, ClientFrame) {
        self.accepted += 1;
        let conn = ConnId::Inbound(self.accepted);
        self.conns.insert(conn, ConnBuffer::default());
        (conn, ClientFrame::Open(conn))
    }

    /// Adds a connection that the master requested.
    pub fn connected(&mut self, conn: ConnId) -> ClientFrame {
        self.dialing.remove(&conn);
        self.conns.insert(conn, ConnBuffer::default());
        ClientFrame::Open(conn)
    }

    /// Returns the number of buffered bytes, over all connections.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// Returns true if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// Returns true if the connection exists.
    pub fn contains(&self, conn: ConnId) -> bool {
        self.conns.contains_key(&conn)
    }

    /// Buffers bytes read from a program and returns their frame.
    pub fn read(&mut self, conn: ConnId, bytes: &[u8]) -> Option<ClientFrame> {
        let buffer = self.conns.get_mut(&conn)?;
        let offset = buffer.end();
        buffer.bytes.extend_from_slice(bytes);
        self.buffered += bytes.len();
        Some(ClientFrame::Data(conn, offset, bytes.to_vec()))
    }

    /// Marks a connection as closed by the program, or its dial as failed.
    pub fn close(&mut self, conn: ConnId) -> ClientFrame {
        self.dialing.remove(&conn);
        let buffer = self.conns.entry(conn).or_default();
        buffer.closed = true;
        ClientFrame::Closed(conn, buffer.end())
    }

    /// Returns the first frames of a session with a master: the state of all connections and the buffered bytes.
    pub fn attach(&self) -> Vec<ClientFrame> {
        let all = self.conns.iter().map(|(conn, buffer)| ConnState {
            conn: *conn,
            buffered_from: buffer.start,
            acked: buffer.acked,
        });
        let mut frames = vec![ClientFrame::Attach(all.collect())];
        for (conn, buffer) in &self.conns {
            let mut offset = buffer.start;
            for chunk in buffer.bytes.chunks(CHUNK_LEN) {
                frames.push(ClientFrame::Data(*conn, offset, chunk.to_vec()));
                offset += chunk.len() as u64;
            }
            if buffer.closed {
                frames.push(ClientFrame::Closed(*conn, buffer.end()));
            }
        }
        frames
    }

    /// Handles a frame from the master. Returns a socket operation and a response frame, if there are any.
    pub fn receive(&mut self, frame: ServerFrame) -> (Option<SocketAction>, Option<ClientFrame>) {
        match frame {
            ServerFrame::Data(conn, seq, bytes) => {
                let Some(buffer) = self.conns.get_mut(&conn) else {
                    return (None, None);
                };
                let Some(seq) = seq else {
                    return (Some(SocketAction::Write(conn, bytes)), None);
                };
                if seq <= buffer.acked {
                    return (None, None);
                }
                // Agent and program fail together, so the bytes count as delivered.
                buffer.acked = seq;
                self.buffered -= buffer.drop_before(seq.consumed);
                (Some(SocketAction::Write(conn, bytes)), Some(ClientFrame::Ack(conn, seq)))
            }
            ServerFrame::Close(conn, seq) => match self.remove(conn) {
                true => (Some(SocketAction::Close(conn)), Some(ClientFrame::Ack(conn, seq))),
                false => (None, None),
            },
            ServerFrame::Dial(conn, port) => {
                let new = !self.conns.contains_key(&conn) && self.dialing.insert(conn);
                (new.then_some(SocketAction::Dial(conn, port)), None)
            }
            ServerFrame::Ack(conn, offset) => {
                if let Some(buffer) = self.conns.get_mut(&conn) {
                    self.buffered -= buffer.drop_before(offset);
                }
                (None, None)
            }
            ServerFrame::Release(conn) => {
                let existed = self.remove(conn);
                (existed.then_some(SocketAction::Close(conn)), None)
            }
        }
    }

    fn remove(&mut self, conn: ConnId) -> bool {
        let buffer = self.conns.remove(&conn);
        self.buffered -= buffer.as_ref().map_or(0, |buffer| buffer.bytes.len());
        buffer.is_some()
    }
}
