//! One connection of a program: what it says is handed on as it comes, what it is told is written as it takes it.

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

use super::passage::Heard;

/// So much is read at once.
const PIECE: usize = 64 << 10;

/// What waits for a program that does not read. Then its connection is closed.
const UNWRITTEN_MAX: usize = 64 << 20;

/// The writing end of a connection. Dropped, everything is written and then it is closed.
#[derive(Debug)]
pub(super) struct Socket {
    bytes: mpsc::UnboundedSender<Vec<u8>>,
    unwritten: Arc<AtomicUsize>,
    reading: tokio::task::AbortHandle,
}

impl Socket {
    /// From now on what comes over the connection is heard under that name.
    pub(super) fn open(stream: TcpStream, call: ConnId, heard: mpsc::Sender<Heard>) -> Socket {
        // Without it small answers wait for the peer's acknowledgement; it is no reason to give up.
        let _ = stream.set_nodelay(true);
        let (mut from, to) = stream.into_split();
        let reading = tokio::spawn(async move {
            let mut piece = vec![0; PIECE];
            // An end and an error are the same: the program says nothing more.
            while let Ok(length @ 1..) = from.read(&mut piece).await {
                let read = Heard::Read(call, piece[..length].to_vec());
                if heard.send(read).await.is_err() {
                    return;
                }
            }
            let _ = heard.send(Heard::Over(call)).await;
        });
        let (bytes, waiting) = mpsc::unbounded_channel();
        let unwritten = Arc::new(AtomicUsize::new(0));
        tokio::spawn(write(to, waiting, unwritten.clone()));
        Socket { bytes, unwritten, reading: reading.abort_handle() }
    }

    /// False if the program does not take it.
    pub(super) fn write(&self, bytes: Vec<u8>) -> bool {
        let before = self.unwritten.fetch_add(bytes.len(), Ordering::Relaxed);
        before + bytes.len() <= UNWRITTEN_MAX && self.bytes.send(bytes).is_ok()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut waiting: mpsc::UnboundedReceiver<Vec<u8>>,
    unwritten: Arc<AtomicUsize>,
) {
    while let Some(bytes) = waiting.recv().await {
        if to.write_all(&bytes).await.is_err() {
            // That it is over is heard by its reading end.
            return;
        }
        unwritten.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}
