//! Connection of a client, with time limits and a check of HTTP/1.1 requests below the parser.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::framing::{Framing, FramingError};

/// First request of a connection that the gateway must refuse. Set before its bytes reach the parser.
pub(crate) type Violation = Arc<OnceLock<FramingError>>;

/// Stream of a client.
#[derive(Debug)]
pub(crate) struct ClientStream<S> {
    stream: S,
    /// Bytes that were read to recognize the protocol.
    prefix: Bytes,
    framing: Option<Framing>,
    violation: Violation,
    head_limit: Duration,
    head_deadline: Option<Pin<Box<Sleep>>>,
    write_limit: Duration,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientStream<S> {
    /// Stream of HTTP/2, which delimits requests by frames.
    pub(crate) fn http2(stream: S, prefix: Bytes, write_limit: Duration) -> ClientStream<S> {
        ClientStream {
            stream,
            prefix,
            framing: None,
            violation: Arc::default(),
            head_limit: Duration::ZERO,
            head_deadline: None,
            write_limit,
            write_deadline: None,
        }
    }

    /// Stream of HTTP/1.1, whose requests are checked.
    pub(crate) fn http1(
        stream: S,
        prefix: Bytes,
        write_limit: Duration,
        head_limit: Duration,
        violation: Violation,
    ) -> ClientStream<S> {
        let framing = Some(Framing::new());
        let stream = ClientStream::http2(stream, prefix, write_limit);
        ClientStream { framing, violation, head_limit, ..stream }
    }

    fn check(&mut self, bytes: &[u8]) {
        let Some(framing) = &mut self.framing else { return };
        if let Err(error) = framing.check(bytes) {
            // An earlier violation has ended the check already.
            let _ = self.violation.set(error);
            self.framing = None;
            self.head_deadline = None;
            return;
        }
        match framing.is_inside_head() {
            true if self.head_deadline.is_none() => {
                let end = Instant::now() + self.head_limit;
                self.head_deadline = Some(Box::pin(sleep_until(end)));
            }
            true => {}
            false => self.head_deadline = None,
        }
    }
}

fn has_passed(deadline: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> bool {
    deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready())
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.prefix.has_remaining() {
            let length = this.prefix.len().min(buffer.remaining());
            buffer.put_slice(&this.prefix.split_to(length));
        } else {
            match Pin::new(&mut this.stream).poll_read(context, buffer) {
                Poll::Pending if has_passed(&mut this.head_deadline, context) => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result?,
            }
        }
        this.check(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> ClientStream<S> {
    /// Fails a write that makes no progress because the client does not read.
    fn limit<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.write_deadline = None;
            return polled;
        }
        let end = Instant::now() + self.write_limit;
        self.write_deadline.get_or_insert_with(|| Box::pin(sleep_until(end)));
        match has_passed(&mut self.write_deadline, context) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limit(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.limit(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.limit(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        this.limit(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn a_head_must_arrive_in_time_but_an_idle_connection_may_wait() {
        let (mut client, server) = duplex(100);
        let violation = Violation::default();
        let limit = Duration::from_millis(20);
        let prefix = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut server = ClientStream::http1(server, prefix, limit, limit, violation.clone());
        let mut buffer = [0; 100];
        assert_eq!(server.read(&mut buffer).await.unwrap(), 27);
        // Between requests there is no deadline here.
        assert!(server.head_deadline.is_none());
        client.write_all(b"GET").await.unwrap();
        assert_eq!(server.read(&mut buffer).await.unwrap(), 3);
        let error = server.read(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(violation.get().is_none());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_ends_the_connection() {
        let (_client, server) = duplex(8);
        let mut server = ClientStream::http2(server, Bytes::new(), Duration::from_millis(20));
        let error = server.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_violation_is_known_before_the_bytes_are_read() {
        let violation = Violation::default();
        let limit = Duration::from_secs(60);
        let prefix = Bytes::from_static(b"GET / HTTP/1.1\nHost: a\r\n\r\n");
        let mut server =
            ClientStream::http1(tokio::io::empty(), prefix, limit, limit, violation.clone());
        assert_eq!(server.read(&mut [0; 100]).await.unwrap(), 26);
        assert_eq!(violation.get(), Some(&FramingError::LineEnd));
    }
}
