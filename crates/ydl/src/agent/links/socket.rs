//! A connection of a program: reports the bytes that it wrote as events, and writes the bytes for it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, tcp::OwnedWriteHalf},
    sync::mpsc,
};
use ydl_rendezvous::ConnId;

use super::client::SocketEvent;

/// Size of the read buffer.
const READ_BUFFER: usize = 64 << 10;

/// Maximum number of unwritten bytes. The connection of a program that does not read is closed then.
const UNWRITTEN_MAX: usize = 64 << 20;

/// The writing end of a connection. When dropped, it writes the pending bytes and closes.
#[derive(Debug)]
pub(super) struct Socket {
    bytes: mpsc::UnboundedSender<Vec<u8>>,
    unwritten: Arc<AtomicUsize>,
    reader: tokio::task::AbortHandle,
}

impl Socket {
    /// Starts reading and writing. Reports events under the id `conn`.
    pub(super) fn open(
        stream: TcpStream,
        conn: ConnId,
        events: mpsc::Sender<SocketEvent>,
    ) -> Socket {
        // Avoids delays of small responses. A failure is harmless.
        let _ = stream.set_nodelay(true);
        let (mut from, to) = stream.into_split();
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; READ_BUFFER];
            // The end of the stream and an error have the same meaning: no more input.
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                let read = SocketEvent::Read(conn, buffer[..length].to_vec());
                if events.send(read).await.is_err() {
                    return;
                }
            }
            let _ = events.send(SocketEvent::Closed(conn)).await;
        });
        let (bytes, queue) = mpsc::unbounded_channel();
        let unwritten = Arc::new(AtomicUsize::new(0));
        tokio::spawn(write(to, queue, unwritten.clone()));
        Socket { bytes, unwritten, reader: reader.abort_handle() }
    }

    /// Queues bytes. Returns false if the program does not read.
    pub(super) fn write(&self, bytes: Vec<u8>) -> bool {
        let before = self.unwritten.fetch_add(bytes.len(), Ordering::Relaxed);
        before + bytes.len() <= UNWRITTEN_MAX && self.bytes.send(bytes).is_ok()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    unwritten: Arc<AtomicUsize>,
) {
    while let Some(bytes) = queue.recv().await {
        if to.write_all(&bytes).await.is_err() {
            // The reading end reports the close.
            return;
        }
        unwritten.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}
