//! One server connection: requests and replies in turn, each step with its deadline.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::forward::UpgradeHalf;
use super::http::{self, RequestHead};
use super::request::{Head, Reply, Request};
use super::server::Limits;

/// A body over the limit, but within this multiple of it, is read and discarded before it is refused: many clients read
/// no reply before they have sent everything.
const DISCARD_FACTOR: u64 = 4;

/// Replies up to this size are sent in one write with their head.
const SMALL_BYTES: usize = 16 << 10;

/// Stream of a connection, with or without TLS.
pub(super) trait ServerStream:
    AsyncBufRead + AsyncWrite + fmt::Debug + Unpin + Send
{
}

impl<S: AsyncBufRead + AsyncWrite + fmt::Debug + Unpin + Send> ServerStream for S {}

/// Reason for closing a connection. Peers that leave or fall idle between requests are no error.
#[derive(Debug)]
pub(super) enum ConnectionError {
    Timeout(&'static str),
    Broken(io::Error),
    Refused(String),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(what) => write!(f, "{what} in time"),
            Self::Broken(error) => write!(f, "{error}"),
            Self::Refused(sentence) => f.write_str(sentence),
        }
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn with_timeout<T>(
    limit: Duration,
    what: &'static str,
    step: impl Future<Output = Result<T, ConnectionError>>,
) -> Result<T, ConnectionError> {
    timeout(limit, step).await.unwrap_or(Err(ConnectionError::Timeout(what)))
}

/// Server state that a connection borrows.
#[derive(Debug)]
pub(super) struct ServerContext<'a> {
    pub(super) limits: &'a Limits,
    /// Memory left for request bodies, in KiB.
    pub(super) bodies: &'a Semaphore,
    pub(super) draining: watch::Receiver<bool>,
    /// Connections may have several requests.
    pub(super) keep_alive: bool,
}

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct ServerConnection<'a> {
    /// Boxed, because futures reserve space for a value each time they move it.
    stream: Box<dyn ServerStream>,
    peer: SocketAddr,
    context: ServerContext<'a>,
    /// Bytes read and not yet consumed. Empty, without an allocation, between requests.
    buffer: Vec<u8>,
}

/// Fate of a connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    /// Kept for the next request.
    Keep,
    /// Closed; everything that was sent has been read.
    Close,
    /// Closed although more was sent: closing at once would destroy the reply in flight.
    CloseUnread,
}

impl<'a> ServerConnection<'a> {
    pub(super) fn new(
        stream: Box<dyn ServerStream>,
        peer: SocketAddr,
        context: ServerContext<'a>,
    ) -> Self {
        Self { stream, peer, context, buffer: Vec::new() }
    }

    /// Serves requests in turn until the peer leaves or the connection must close.
    pub(super) async fn run<Who, Answered: Future<Output = Reply>>(
        mut self,
        admit: &impl Fn(&Head) -> Result<Who, Reply>,
        answer: &impl Fn(Who, Request) -> Answered,
    ) -> Result<(), ConnectionError> {
        let limits = self.context.limits;
        let mut patience = limits.header;
        while self.wait_for_request(patience).await? {
            patience = limits.idle;
            let head =
                match with_timeout(limits.header, "no whole request", self.read_head()).await? {
                    Ok(head) => head,
                    Err(reply) => {
                        let sentence = format!("refused with {}", reply.status);
                        self.finish(reply, &Method::GET, Disposition::CloseUnread).await?;
                        return Err(ConnectionError::Refused(sentence));
                    }
                };
            let method = head.head.method.clone();
            let (reply, after) = match admit(&head.head) {
                Err(reply) if head.length > 0 => (reply, Disposition::CloseUnread),
                Err(reply) => (reply, self.after(&head)),
                Ok(who) => match self.read_body(&head).await? {
                    Err((reply, after)) => (reply, after),
                    Ok(body) => {
                        let last = head.last;
                        let request = Request { head: head.head, body };
                        let Some(mut reply) = self.respond(answer(who, request)).await else {
                            return Ok(());
                        };
                        if let Some(half) = reply.upgrade.take() {
                            return self.upgrade(&reply, half).await;
                        }
                        (reply, if last { Disposition::Close } else { Disposition::Keep })
                    }
                },
            };
            let is_last = !self.context.keep_alive || *self.context.draining.borrow();
            let after =
                if is_last && after == Disposition::Keep { Disposition::Close } else { after };
            self.finish(reply, &method, after).await?;
            if after != Disposition::Keep {
                break;
            }
        }
        Ok(())
    }

    fn after(&self, head: &RequestHead) -> Disposition {
        if head.last { Disposition::Close } else { Disposition::Keep }
    }

    /// Waits for a request to begin. Returns false when the peer left, was idle for too long, or the server is draining.
    async fn wait_for_request(&mut self, patience: Duration) -> Result<bool, ConnectionError> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        // Free a grown buffer before the wait.
        self.buffer = Vec::new();
        let Self { stream, context, .. } = self;
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        tokio::select! {
            _ = context.draining.wait_for(|draining| *draining) => Ok(false),
            came = timeout(patience, stream.fill_buf()) => match came {
                Ok(Ok(came)) => Ok(!came.is_empty()),
                // Between requests a peer may close at any time.
                Ok(Err(error)) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => {
                    Ok(false)
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) if patience == context.limits.idle => Ok(false),
                Err(_) => Err(ConnectionError::Timeout("no request")),
            },
        }
    }

    /// Reads at least one byte into the buffer.
    async fn fill(&mut self) -> Result<(), ConnectionError> {
        let came = self.stream.fill_buf().await?;
        if came.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let length = came.len();
        self.buffer.extend_from_slice(came);
        self.stream.consume(length);
        Ok(())
    }

    async fn read_head(&mut self) -> Result<Result<RequestHead, Reply>, ConnectionError> {
        let limit = self.context.limits.header_bytes_max;
        let mut seen = 0;
        let end = loop {
            // Some clients send empty lines before a request.
            let pairs = self.buffer.chunks_exact(2);
            let empty = pairs.take_while(|pair| pair == b"\r\n").count();
            self.buffer.drain(..empty * 2);
            let end = http::head_end(&self.buffer, seen);
            if end.unwrap_or(self.buffer.len()) > limit {
                let sentence = format!("the request's head is longer than {limit} bytes");
                return Ok(Err(Reply::error(431, sentence, None)));
            }
            if let Some(end) = end {
                break end;
            }
            seen = self.buffer.len();
            self.fill().await?;
        };
        let head = http::parse(&self.buffer[..end], self.peer);
        self.buffer.drain(..end);
        Ok(head)
    }

    /// Reads the body. An error carries the reply and the fate of the connection.
    async fn read_body(
        &mut self,
        head: &RequestHead,
    ) -> Result<Result<Vec<u8>, (Reply, Disposition)>, ConnectionError> {
        if head.length == 0 {
            return Ok(Ok(Vec::new()));
        }
        let Limits { body_bytes_max, bodies_bytes_max, body: limit, .. } = *self.context.limits;
        let most = body_bytes_max as u64;
        let too_long = |after| {
            let sentence = format!("the request's body is longer than {most} bytes");
            Ok(Err((Reply::error(413, sentence, None), after)))
        };
        if head.length > most.saturating_mul(DISCARD_FACTOR) {
            return too_long(Disposition::CloseUnread);
        }
        let kept = if head.length > most { 0 } else { head.length };
        let reading = async {
            let room = kept.div_ceil(1 << 10).min(bodies_bytes_max as u64 >> 10);
            let bodies = self.context.bodies;
            let _room = bodies.acquire_many(room.try_into().unwrap_or(u32::MAX)).await;
            if head.expects_continue {
                self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                self.stream.flush().await?;
            }
            self.take(head.length, kept > 0).await
        };
        let body = with_timeout(limit, "no whole body", reading).await?;
        if kept == 0 { too_long(self.after(head)) } else { Ok(Ok(body)) }
    }

    /// Reads `length` bytes and keeps or discards them. Memory grows with the bytes received, not with the announced
    /// length.
    async fn take(&mut self, length: u64, keep: bool) -> Result<Vec<u8>, ConnectionError> {
        let mut body = Vec::new();
        let mut left = length;
        loop {
            let here = left.min(self.buffer.len() as u64) as usize;
            left -= here as u64;
            if keep && body.is_empty() && self.buffer.len() == here {
                body = std::mem::take(&mut self.buffer);
            } else if keep {
                body.extend_from_slice(&self.buffer[..here]);
                self.buffer.drain(..here);
            } else {
                self.buffer.drain(..here);
            }
            if left == 0 {
                return Ok(body);
            }
            self.fill().await?;
        }
    }

    /// Waits for the reply. Returns `None` if the peer leaves first.
    async fn respond(&mut self, answer: impl Future<Output = Reply>) -> Option<Reply> {
        let limit = self.context.limits.answer;
        let mut answer = pin!(timeout(limit, answer));
        let mut watching = self.buffer.is_empty();
        poll_fn(|cx| {
            if let Poll::Ready(reply) = answer.as_mut().poll(cx) {
                let late = |_| Reply::error(503, "timed out while answering", None);
                return Poll::Ready(Some(reply.unwrap_or_else(late)));
            }
            if watching && let Poll::Ready(came) = Pin::new(&mut self.stream).poll_fill_buf(cx) {
                match came {
                    Ok([]) | Err(_) => return Poll::Ready(None),
                    // The next request has arrived; it stays buffered until its turn.
                    Ok(_) => watching = false,
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Turns the connection into a raw byte stream. A request pipelined behind the upgrade is an error.
    async fn upgrade(mut self, reply: &Reply, half: UpgradeHalf) -> Result<(), ConnectionError> {
        if !self.buffer.is_empty() {
            return Err(ConnectionError::Refused("a request after an upgrade".to_owned()));
        }
        let head = http::reply_head(reply, false);
        let sending = async {
            self.stream.write_all(&head).await?;
            self.stream.flush().await?;
            Ok(())
        };
        with_timeout(self.context.limits.reply, "the reply was not read", sending).await?;
        let Self { stream, mut context, .. } = self;
        tokio::select! {
            met = half.join(stream) => Ok(met?),
            _ = context.draining.wait_for(|draining| *draining) => Ok(()),
        }
    }

    async fn finish(
        &mut self,
        reply: Reply,
        method: &Method,
        after: Disposition,
    ) -> Result<(), ConnectionError> {
        let limit = self.context.limits.reply;
        let mut head = http::reply_head(&reply, after != Disposition::Keep);
        let mut body = if *method == Method::HEAD { &[][..] } else { &reply.body[..] };
        if body.len() <= SMALL_BYTES {
            head.extend_from_slice(body);
            body = &[];
        }
        let sending = async {
            self.stream.write_all(&head).await?;
            self.stream.write_all(body).await?;
            self.stream.flush().await?;
            if after != Disposition::Keep {
                self.stream.shutdown().await?;
            }
            Ok(())
        };
        with_timeout(limit, "the reply was not read", sending).await?;
        if after == Disposition::CloseUnread {
            // The connection closes either way. A server without bodies gets small ones too.
            let Limits { body_bytes_max, header_bytes_max, .. } = *self.context.limits;
            let most = (body_bytes_max as u64).saturating_mul(DISCARD_FACTOR);
            let most = most.max(header_bytes_max as u64);
            let _ = timeout(limit, self.take(most, false)).await;
        }
        Ok(())
    }
}
