//! Streams that record what they receive, and streams that answer from memory.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};
use yarn_native::rpc::{Address, Dial, DialedStream, Stream, Tcp};

use self::wire::Fields;

// Encodes server messages as in the tests, independently of the library.
#[allow(dead_code)]
#[path = "../../tests/offline/fake/wire.rs"]
mod wire;

type Received = Arc<Mutex<Vec<u8>>>;
type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<DialedStream>> + Send + 'a>>;

/// TCP with a copy of all received bytes.
#[derive(Debug, Default)]
pub struct Tap {
    pub received: Received,
}

struct RecordingStream {
    stream: Box<dyn Stream>,
    received: Received,
}

impl Dial for Tap {
    fn dial<'a>(&'a self, address: &'a Address) -> Dialing<'a> {
        Box::pin(async move {
            let DialedStream { stream, peer } = Tcp.dial(address).await?;
            let received = Arc::clone(&self.received);
            let stream = Box::new(RecordingStream { stream, received });
            Ok(DialedStream { stream, peer })
        })
    }
}

impl AsyncRead for RecordingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        self.received.lock().expect("a heap").extend_from_slice(new);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns the message in the last frame received. An idle connection is reopened with a handshake.
pub fn last_message(mut received: &[u8]) -> Vec<u8> {
    let mut rest = &[][..];
    while let Some((length, after)) = received.split_first_chunk() {
        (rest, received) = after.split_at(u32::from_be_bytes(*length) as usize);
    }
    wire::take_delimited(&mut rest);
    wire::take_delimited(&mut rest)
}

/// Server in memory: a minimal response to a registration, and the same response to every
/// heartbeat.
#[derive(Debug)]
pub struct Echo {
    pub response: Vec<u8>,
}

impl Dial for Echo {
    fn dial<'a>(&'a self, _: &'a Address) -> Dialing<'a> {
        let (client, mut server) = duplex(256 << 10);
        let response = self.response.clone();
        tokio::spawn(async move {
            let mut greeting = [0; 7];
            server.read_exact(&mut greeting).await.ok()?;
            let _context = wire::read_frame(&mut server).await?;
            let mut heartbeats = 0;
            loop {
                let frame = wire::read_frame(&mut server).await?;
                let mut rest = &frame[..];
                let header = Fields::parse(&wire::take_delimited(&mut rest));
                let call = u32::try_from(header.signed(3)?).ok()?;
                let method = Fields::parse(&wire::take_delimited(&mut rest)).text(1)?;
                let (body, number) = if method == "allocate" {
                    heartbeats += 1;
                    // Of a repeated field the last value counts.
                    (&response[..], wire::number(2, heartbeats))
                } else {
                    let largest = [wire::number(1, 1024), wire::number(2, 1)].concat();
                    (&[][..], wire::bytes(1, largest))
                };
                // In pieces, since a copy of the whole would count as the client's memory.
                let header = wire::delimited(wire::header(call, 0));
                let body_length = body.len() + number.len();
                let head = [header, wire::varint(body_length as u64)].concat();
                let length = (head.len() + body_length) as u32;
                for piece in [&length.to_be_bytes()[..], &head, body, &number] {
                    server.write_all(piece).await.ok()?;
                }
            }
            #[allow(unreachable_code)]
            Some(())
        });
        let stream = Box::new(client);
        Box::pin(async { Ok(DialedStream { stream, peer: None }) })
    }
}
