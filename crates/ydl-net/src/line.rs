//! One connection of a server: request, answer, request, answer, each step with its deadline.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::http::{self, Asked};
use super::request::{Head, Reply, Request};
use super::server::Limits;
use super::splice::Half;

/// A body that is too long, but no more than this many times, is read and thrown away before it is
/// refused: many clients read no answer before they have sent everything.
const TOLERANCE: u64 = 4;

/// Answers up to this size leave in one piece with their head.
const SMALL_BYTES: usize = 16 << 10;

/// Why a connection was given up. Peers that leave or fall idle between requests are no reason.
#[derive(Debug)]
pub(super) enum Trouble {
    Late(&'static str),
    Broken(io::Error),
    Refused(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late(what) => write!(f, "{what} in time"),
            Self::Broken(error) => write!(f, "{error}"),
            Self::Refused(sentence) => f.write_str(sentence),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn within<T>(
    limit: Duration,
    what: &'static str,
    step: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    timeout(limit, step).await.unwrap_or(Err(Trouble::Late(what)))
}

/// What the rest of the server lends to a connection.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    pub(super) limits: &'a Limits,
    /// Room for bodies, in KiB.
    pub(super) bodies: &'a Semaphore,
    pub(super) draining: watch::Receiver<bool>,
}

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Boxed, because futures hold room for what they move more than once.
    stream: Box<TlsStream<TcpStream>>,
    peer: SocketAddr,
    lent: Lent<'a>,
    /// What has come and is not yet used. Empty, and without memory of its own, between requests.
    buffer: Vec<u8>,
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It is kept for the next request.
    Keep,
    /// It ends, and everything that was sent has been read.
    End,
    /// It ends although more was sent: closing at once would destroy the answer on its way.
    EndUnread,
}

impl<'a> Line<'a> {
    pub(super) fn new(stream: Box<TlsStream<TcpStream>>, peer: SocketAddr, lent: Lent<'a>) -> Self {
        Self { stream, peer, lent, buffer: Vec::new() }
    }

    /// Serves one request after the other until the peer leaves, or must.
    pub(super) async fn run<Who, Answered: Future<Output = Reply>>(
        mut self,
        admit: &impl Fn(&Head) -> Result<Who, Reply>,
        answer: &impl Fn(Who, Request) -> Answered,
    ) -> Result<(), Trouble> {
        let limits = self.lent.limits;
        let mut patience = limits.header;
        while self.begun(patience).await? {
            patience = limits.idle;
            let asked = match within(limits.header, "no whole request", self.read_head()).await? {
                Ok(asked) => asked,
                Err(reply) => {
                    let sentence = format!("refused with {}", reply.status);
                    self.finish(reply, &Method::GET, After::EndUnread).await?;
                    return Err(Trouble::Refused(sentence));
                }
            };
            let method = asked.head.method.clone();
            let (reply, after) = match admit(&asked.head) {
                Err(reply) if asked.length > 0 => (reply, After::EndUnread),
                Err(reply) => (reply, self.after(&asked)),
                Ok(who) => match self.read_body(&asked).await? {
                    Err((reply, after)) => (reply, after),
                    Ok(body) => {
                        let last = asked.last;
                        let request = Request { head: asked.head, body };
                        let Some(mut reply) = self.answered(answer(who, request)).await else {
                            return Ok(());
                        };
                        if let Some(half) = reply.meets.take() {
                            return self.hand_over(&reply, half).await;
                        }
                        (reply, if last { After::End } else { After::Keep })
                    }
                },
            };
            let draining = *self.lent.draining.borrow();
            let after = if draining && after == After::Keep { After::End } else { after };
            self.finish(reply, &method, after).await?;
            if after != After::Keep {
                break;
            }
        }
        Ok(())
    }

    fn after(&self, asked: &Asked) -> After {
        if asked.last { After::End } else { After::Keep }
    }

    /// Waits for a request to begin. False: the peer left, was idle for too long, or the server
    /// is about to stop.
    async fn begun(&mut self, patience: Duration) -> Result<bool, Trouble> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        // A buffer that has grown is given back before the wait.
        self.buffer = Vec::new();
        let Self { stream, lent, .. } = self;
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        tokio::select! {
            _ = lent.draining.wait_for(|draining| *draining) => Ok(false),
            came = timeout(patience, stream.fill_buf()) => match came {
                Ok(Ok(came)) => Ok(!came.is_empty()),
                // Between requests a peer may leave as it likes.
                Ok(Err(error)) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => {
                    Ok(false)
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) if patience == lent.limits.idle => Ok(false),
                Err(_) => Err(Trouble::Late("no request")),
            },
        }
    }

    /// Takes in what has come, at least one byte.
    async fn fill(&mut self) -> Result<(), Trouble> {
        let came = self.stream.fill_buf().await?;
        if came.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let length = came.len();
        self.buffer.extend_from_slice(came);
        self.stream.consume(length);
        Ok(())
    }

    async fn read_head(&mut self) -> Result<Result<Asked, Reply>, Trouble> {
        let limit = self.lent.limits.header_bytes_max;
        let mut seen = 0;
        let end = loop {
            // Empty lines before a request are left over from careless clients.
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
        let asked = http::parse(&self.buffer[..end], self.peer);
        self.buffer.drain(..end);
        Ok(asked)
    }

    /// The body, or why it is refused and what must become of the connection then.
    async fn read_body(
        &mut self,
        asked: &Asked,
    ) -> Result<Result<Vec<u8>, (Reply, After)>, Trouble> {
        if asked.length == 0 {
            return Ok(Ok(Vec::new()));
        }
        let Limits { body_bytes_max, bodies_bytes_max, body: limit, .. } = *self.lent.limits;
        let most = body_bytes_max as u64;
        let too_long = |after| {
            let sentence = format!("the request's body is longer than {most} bytes");
            Ok(Err((Reply::error(413, sentence, None), after)))
        };
        if asked.length > most.saturating_mul(TOLERANCE) {
            return too_long(After::EndUnread);
        }
        let kept = if asked.length > most { 0 } else { asked.length };
        let reading = async {
            let room = kept.div_ceil(1 << 10).min(bodies_bytes_max as u64 >> 10);
            let bodies = self.lent.bodies;
            let _room = bodies.acquire_many(room.try_into().unwrap_or(u32::MAX)).await;
            if asked.expects_leave {
                self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                self.stream.flush().await?;
            }
            self.take(asked.length, kept > 0).await
        };
        let body = within(limit, "no whole body", reading).await?;
        if kept == 0 { too_long(self.after(asked)) } else { Ok(Ok(body)) }
    }

    /// Reads `length` bytes, to keep them or not. Memory grows as bytes come and not as announced:
    /// a promise is cheap.
    async fn take(&mut self, length: u64, keep: bool) -> Result<Vec<u8>, Trouble> {
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

    /// The answer, or nothing if the peer leaves before there is one.
    async fn answered(&mut self, answer: impl Future<Output = Reply>) -> Option<Reply> {
        let limit = self.lent.limits.answer;
        let mut answer = pin!(timeout(limit, answer));
        let mut watching = self.buffer.is_empty();
        poll_fn(|cx| {
            if let Poll::Ready(reply) = answer.as_mut().poll(cx) {
                let late = |_| Reply::error(503, "no answer was found in time", None);
                return Poll::Ready(Some(reply.unwrap_or_else(late)));
            }
            if watching && let Poll::Ready(came) = Pin::new(&mut self.stream).poll_fill_buf(cx) {
                match came {
                    Ok([]) | Err(_) => return Poll::Ready(None),
                    // The next request is here already, and stays where it is until its turn.
                    Ok(_) => watching = false,
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The connection carries no more requests. Whoever has sent one already does not wait to be told so.
    async fn hand_over(mut self, reply: &Reply, half: Half) -> Result<(), Trouble> {
        if !self.buffer.is_empty() {
            return Err(Trouble::Refused("a request where none is taken".to_owned()));
        }
        let head = http::reply_head(reply, false);
        let sending = async {
            self.stream.write_all(&head).await?;
            self.stream.flush().await?;
            Ok(())
        };
        within(self.lent.limits.reply, "the answer was not taken", sending).await?;
        let Self { stream, mut lent, .. } = self;
        tokio::select! {
            met = half.meet(stream) => Ok(met?),
            _ = lent.draining.wait_for(|draining| *draining) => Ok(()),
        }
    }

    async fn finish(&mut self, reply: Reply, method: &Method, after: After) -> Result<(), Trouble> {
        let limit = self.lent.limits.reply;
        let mut head = http::reply_head(&reply, after != After::Keep);
        let mut body = if *method == Method::HEAD { &[][..] } else { &reply.body[..] };
        if body.len() <= SMALL_BYTES {
            head.extend_from_slice(body);
            body = &[];
        }
        let sending = async {
            self.stream.write_all(&head).await?;
            self.stream.write_all(body).await?;
            self.stream.flush().await?;
            if after != After::Keep {
                self.stream.shutdown().await?;
            }
            Ok(())
        };
        within(limit, "the answer was not taken", sending).await?;
        if after == After::EndUnread {
            // Whatever comes of it, the connection is over.
            let most = (self.lent.limits.body_bytes_max as u64).saturating_mul(TOLERANCE);
            let _ = timeout(limit, self.take(most, false)).await;
        }
        Ok(())
    }
}
