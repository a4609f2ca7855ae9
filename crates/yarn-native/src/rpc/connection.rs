//! One connection with concurrent calls.
//!
//! A task owns the stream, the codec and the call table, so nothing is shared or locked. It reads
//! while it writes, so that two peers with full buffers cannot deadlock. When it ends, every
//! pending call receives an error.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::rpc::codec::Codec;
use crate::rpc::frame::{self, ClientId, FrameError, Response};
use crate::rpc::table::{CallTable, ReplySender};
use crate::rpc::{Exception, Options};
use crate::security::SecurityError;

/// Capacity of the request queue; callers block when it is full.
const QUEUE_CAPACITY: usize = 64;
/// No request is taken from the queue while more unwritten bytes than this are buffered.
const UNWRITTEN_MAX: usize = 1 << 20;
/// Timeout for reading the server's reason after a write error.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Upper bound of timeouts, which keeps clock arithmetic from overflowing.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reason a connection ended.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionError {
    Io(String),
    /// The peer closed the connection, between frames or within one.
    Closed {
        mid_frame: bool,
    },
    ReadTimeout,
    Idle,
    Protocol(String),
    Security(SecurityError),
    /// The server sent a fatal exception.
    Fatal(Exception),
}

impl ConnectionError {
    pub(crate) fn protocol(reason: &str) -> Self {
        Self::Protocol(reason.to_owned())
    }
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(reason) | Self::Protocol(reason) => f.write_str(reason),
            Self::Closed { mid_frame: false } => f.write_str("the server closed the connection"),
            Self::Closed { mid_frame: true } => {
                f.write_str("the server closed the connection in the middle of a response")
            }
            Self::ReadTimeout => f.write_str("no data was received before the read timeout"),
            Self::Idle => f.write_str("the connection was closed after the idle timeout"),
            Self::Security(error) => error.fmt(f),
            Self::Fatal(exception) => exception.fmt(f),
        }
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl From<FrameError> for ConnectionError {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.0)
    }
}

impl From<SecurityError> for ConnectionError {
    fn from(error: SecurityError) -> Self {
        Self::Security(error)
    }
}

/// Failure of a call on a connection.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The server cannot have executed the call, since it never received the whole request.
    NotSent(ConnectionError),
    /// The connection ended after the request was sent.
    Unanswered(ConnectionError),
    /// The server returned an exception.
    Exception(Exception),
}

/// A request queued for the task.
struct OutgoingCall {
    call: u32,
    frame: Zeroizing<Vec<u8>>,
    reply: ReplySender,
}

/// Handle of a live connection. The connection is closed when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: mpsc::Sender<OutgoingCall>,
}

impl Connection {
    /// Spawns the task of a connection after its handshake.
    pub(crate) fn spawn<S>(stream: S, codec: Codec, client: ClientId, options: &Options) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (requests, queue) = mpsc::channel(QUEUE_CAPACITY);
        let (reader, writer) = tokio::io::split(stream);
        let now = Instant::now();
        let task = ConnectionTask {
            reader,
            writer,
            codec,
            client,
            queue,
            calls: CallTable::default(),
            unwritten: BytesMut::new(),
            written: 0,
            last_read: now,
            last_write: now,
            timeouts: ConnectionTimeouts::of(options),
            calls_max: options.calls_max.max(1),
            answered: false,
        };
        tokio::spawn(task.run());
        Self { requests }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Sends a request and waits for its response. Calls `sent` once the request may have been
    /// sent.
    pub(crate) async fn call(
        &self,
        call: u32,
        frame: Zeroizing<Vec<u8>>,
        sent: impl FnOnce(),
    ) -> Result<Bytes, CallError> {
        // The connection was closed after it had been selected.
        let closed = |_| CallError::NotSent(ConnectionError::Idle);
        let permit = self.requests.reserve().await.map_err(closed)?;
        let (reply, answer) = oneshot::channel();
        sent();
        permit.send(OutgoingCall { call, frame, reply });
        // A task that ends answers all its calls; an aborted one leaves it unknown how far it got.
        answer.await.unwrap_or_else(|_| {
            Err(CallError::Unanswered(ConnectionError::Closed { mid_frame: false }))
        })
    }
}

#[derive(Clone, Copy)]
struct ConnectionTimeouts {
    read_timeout: Duration,
    ping_interval: Duration,
    idle_timeout: Duration,
}

impl ConnectionTimeouts {
    fn of(options: &Options) -> Self {
        // A zero timeout would make the task spin.
        let clamped = |duration: Duration| duration.clamp(Duration::from_millis(1), TIMEOUT_MAX);
        Self {
            read_timeout: clamped(options.read_timeout),
            ping_interval: clamped(options.ping_interval),
            idle_timeout: clamped(options.idle_timeout),
        }
    }
}

struct ConnectionTask<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    codec: Codec,
    client: ClientId,
    queue: mpsc::Receiver<OutgoingCall>,
    calls: CallTable,
    unwritten: BytesMut,
    /// Number of bytes written to the stream.
    written: u64,
    /// Time of the last read or, if later, of the first pending call.
    last_read: Instant,
    /// Time of the last write or of the last response.
    last_write: Instant,
    timeouts: ConnectionTimeouts,
    calls_max: usize,
    /// Set once any call has been answered.
    answered: bool,
}

impl<S: AsyncRead + AsyncWrite> ConnectionTask<S> {
    async fn run(mut self) {
        let mut error = match self.serve().await {
            Ok(()) => return,
            Err(error) => error,
        };
        if let ConnectionError::Io(_) = error {
            // A server that rejects a connection sends an exception and closes. Data sent after
            // that breaks the pipe before the exception is read.
            if let Ok(Err(reason)) = tokio::time::timeout(DRAIN_TIMEOUT, self.drain()).await {
                error = reason;
            }
        }
        self.queue.close();
        let outcome = |sent: bool| match &error {
            // A server that has never answered has rejected the connection and with it all calls.
            ConnectionError::Fatal(exception) if !self.answered => {
                CallError::Exception(exception.clone())
            }
            other if sent => CallError::Unanswered(other.clone()),
            other => CallError::NotSent(other.clone()),
        };
        self.calls.fail(self.written, outcome);
        // Ends when all reserved permits have been used or released.
        while let Some(request) = self.queue.recv().await {
            let _ = request.reply.send(Err(outcome(false)));
        }
    }

    /// Runs until all handles are dropped or the connection fails.
    async fn serve(&mut self) -> Result<(), ConnectionError> {
        loop {
            let may_accept =
                self.calls.len() < self.calls_max && self.unwritten.len() < UNWRITTEN_MAX;
            let wake = self.next_wake();
            tokio::select! {
                read = self.reader.read_buf(self.codec.read_buffer()) => self.on_read(read?)?,
                written = self.writer.write_buf(&mut self.unwritten), if !self.unwritten.is_empty() => {
                    self.written += written? as u64;
                }
                request = self.queue.recv(), if may_accept => match request {
                    Some(request) => self.on_request(request)?,
                    None => return Ok(()),
                },
                () = sleep_until(wake) => self.on_wake()?,
            }
        }
    }

    /// Reads until the stream ends.
    async fn drain(&mut self) -> Result<(), ConnectionError> {
        loop {
            match self.reader.read_buf(self.codec.read_buffer()).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(bytes) => self.on_read(bytes)?,
            }
        }
    }

    fn on_read(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        if bytes == 0 {
            return Err(ConnectionError::Closed { mid_frame: self.codec.is_mid_frame() });
        }
        self.last_read = Instant::now();
        while let Some(frame) = self.codec.decode()? {
            self.on_frame(frame)?;
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: Bytes) -> Result<(), ConnectionError> {
        let response = Response::parse(frame)?;
        let call = response.header.call_id;
        let outcome = match RpcStatusProto::try_from(response.header.status) {
            Ok(RpcStatusProto::Success) => Ok(response.body()?),
            Ok(RpcStatusProto::Error) => {
                Err(CallError::Exception(Exception::of_header(&response.header)))
            }
            Ok(RpcStatusProto::Fatal) => {
                let exception = Exception::of_header(&response.header);
                self.calls.answer(call, Err(CallError::Exception(exception.clone())));
                return Err(ConnectionError::Fatal(exception));
            }
            Err(_) => return Err(ConnectionError::protocol("response with an unknown status")),
        };
        if !self.calls.answer(call, outcome) {
            return Err(ConnectionError::Protocol(format!("response to unknown call {call}")));
        }
        self.answered = true;
        if self.calls.is_empty() {
            self.last_write = Instant::now();
        }
        Ok(())
    }

    fn on_request(&mut self, request: OutgoingCall) -> Result<(), ConnectionError> {
        if request.reply.is_closed() {
            // The caller gave up while the request was queued.
            return Ok(());
        }
        let OutgoingCall { call, frame, reply } = request;
        let now = Instant::now();
        if self.calls.is_empty() {
            self.last_read = now;
        }
        self.last_write = now;
        if self.unwritten.is_empty() {
            // The buffer of a large request is not kept for later small ones.
            self.unwritten = BytesMut::with_capacity(frame.len());
        }
        let encoded = self.codec.encode(&frame, &mut self.unwritten);
        // A partially encoded request is never written completely.
        let end = match encoded {
            Ok(()) => self.written + self.unwritten.len() as u64,
            Err(_) => u64::MAX,
        };
        self.calls.insert(call, reply, end);
        encoded
    }

    fn next_wake(&self) -> Instant {
        if self.calls.is_empty() {
            self.last_write + self.timeouts.idle_timeout
        } else {
            let timeout = self.last_read + self.timeouts.read_timeout;
            timeout.min(self.last_write + self.timeouts.ping_interval)
        }
    }

    fn on_wake(&mut self) -> Result<(), ConnectionError> {
        let now = Instant::now();
        if self.calls.is_empty() {
            return Err(ConnectionError::Idle);
        }
        if now >= self.last_read + self.timeouts.read_timeout {
            return Err(ConnectionError::ReadTimeout);
        }
        self.last_write = now;
        // No ping while the peer does not read.
        if self.unwritten.is_empty() {
            let ping = frame::ping(&self.client);
            self.codec.encode(&ping, &mut self.unwritten)?;
        }
        Ok(())
    }
}
