//! The pace a server asks of a connection: each phase has a deadline, and one alarm serves them all.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::server::Limits;

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was asked yet.
    First,
    /// Between one answer and the next request.
    Idle,
    /// A request has begun to come.
    Header,
    Body,
    /// The answer is being found.
    Answer,
    /// The answer is being taken by the peer.
    Reply,
}

/// The phase of one connection and when it must be over.
#[derive(Debug)]
pub(super) struct Pace {
    limits: Limits,
    now: Mutex<(Phase, Instant)>,
}

impl Pace {
    pub(super) fn new(limits: &Limits) -> Self {
        let now = Mutex::new((Phase::First, Instant::now() + limits.header));
        Self {
            limits: *limits,
            now,
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        let limit = match phase {
            Phase::First | Phase::Header => self.limits.header,
            Phase::Idle => self.limits.idle,
            Phase::Body => self.limits.body,
            // The answer ends by itself at its limit, and then says so to the peer.
            Phase::Answer => self.limits.answer + self.limits.reply,
            Phase::Reply => self.limits.reply,
        };
        *self.lock() = (phase, Instant::now() + limit);
    }

    pub(super) fn deadline(&self) -> Instant {
        self.lock().1
    }

    /// What to say of a connection whose deadline has passed. Idleness is no misbehaviour.
    pub(super) fn overdue(&self) -> Result<(), String> {
        match self.lock().0 {
            Phase::Idle => Ok(()),
            Phase::First | Phase::Header => Err("no whole request in time".into()),
            Phase::Body => Err("no whole body in time".into()),
            Phase::Answer => Err("no answer in time".into()),
            Phase::Reply => Err("the answer was not taken in time".into()),
        }
    }

    fn received(&self) {
        if self.lock().0 == Phase::Idle {
            self.enter(Phase::Header);
        }
    }

    fn flushed(&self) {
        if self.lock().0 == Phase::Reply {
            self.enter(Phase::Idle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Phase, Instant)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that tells its pace what passes through it.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, pace: Arc<Pace>) -> Self {
        Self { stream, pace }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.pace.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.pace.flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
