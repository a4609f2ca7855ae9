//! Connections that were switched to another protocol, such as WebSocket.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::sleep_until;

use crate::exchange::{Flow, Record, Upstream};
use crate::gateway::GatewayState;

/// Buffer of each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies bytes between client and replica until one of them closes the connection, or both are silent for too long.
pub(crate) fn start(
    state: &Arc<GatewayState>,
    client: OnUpgrade,
    replica: OnUpgrade,
    upstream: Upstream,
    flow: Arc<Flow>,
    record: Record,
) {
    let mut tunnels = state.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
    while tunnels.try_join_next().is_some() {}
    tunnels.spawn(async move {
        // Holds the place at the replica until the end, and the whole record rather than the fields named below.
        let (_upstream, mut record) = (upstream, record);
        let (Ok(client), Ok(replica)) = tokio::join!(client, replica) else { return };
        flow.on_progress();
        let mut client = Observed { stream: TokioIo::new(client), flow: flow.clone() };
        let mut replica = Observed { stream: TokioIo::new(replica), flow: flow.clone() };
        let copy =
            copy_bidirectional_with_sizes(&mut client, &mut replica, BUFFER_BYTES, BUFFER_BYTES);
        tokio::select! {
            copied = copy => match copied {
                Ok((bytes_in, bytes_out)) => {
                    record.bytes_in.store(bytes_in, std::sync::atomic::Ordering::Relaxed);
                    record.line.bytes_out = bytes_out;
                    record.line.end = "complete";
                }
                Err(_) => record.line.end = "broken",
            },
            () = idle(&flow) => record.line.end = "stalled",
        }
    });
}

async fn idle(flow: &Flow) {
    loop {
        let deadline = flow.idle_deadline();
        if Instant::now() >= deadline {
            return;
        }
        sleep_until(deadline.into()).await;
    }
}

/// Stream that notes when bytes arrive.
struct Observed {
    stream: TokioIo<Upgraded>,
    flow: Arc<Flow>,
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.flow.on_progress();
        }
        polled
    }
}

impl AsyncWrite for Observed {
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
