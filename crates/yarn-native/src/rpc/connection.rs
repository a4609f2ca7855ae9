//! One connection with many calls in flight.
//!
//! A task owns the stream, the codec and the table of calls; nothing is shared, so nothing is
//! locked. It reads while it writes, so that two peers with full buffers cannot wait for each other
//! for ever. However it ends, every call on it is told.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::rpc::codec::Codec;
use crate::rpc::frame::{self, ClientId, Response, Unreadable};
use crate::rpc::table::{CallTable, Reply};
use crate::rpc::{Exception, Options};
use crate::security::SecurityError;

/// Requests that may wait for room before their callers do.
const QUEUE: usize = 64;
/// No request is taken from the queue while more than this waits to be written.
const UNWRITTEN_MAX: usize = 1 << 20;
/// How long a connection that takes nothing more is read for the reason.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The longest time that is counted; more is as good as without end, and too much for a clock.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Why a connection cannot be used any more.
#[derive(Clone, Debug)]
pub(crate) enum Broken {
    Io(String),
    /// The peer closed it, between frames or within one.
    Closed {
        amid: bool,
    },
    Silent,
    Idle,
    Protocol(String),
    Security(SecurityError),
    /// The server said why.
    Fatal(Exception),
}

impl Broken {
    pub(crate) fn protocol(what: &str) -> Self {
        Self::Protocol(what.to_owned())
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(reason) | Self::Protocol(reason) => f.write_str(reason),
            Self::Closed { amid: false } => f.write_str("the server closed the connection"),
            Self::Closed { amid: true } => {
                f.write_str("the server closed the connection in the middle of an answer")
            }
            Self::Silent => f.write_str("nothing was heard for too long"),
            Self::Idle => f.write_str("the connection was closed, being idle"),
            Self::Security(error) => error.fmt(f),
            Self::Fatal(exception) => exception.fmt(f),
        }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl From<Unreadable> for Broken {
    fn from(error: Unreadable) -> Self {
        Self::Protocol(error.0)
    }
}

impl From<SecurityError> for Broken {
    fn from(error: SecurityError) -> Self {
        Self::Security(error)
    }
}

/// How a call on a connection fails.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server cannot have carried it out: it never had the whole request.
    NotSent(Broken),
    /// The server had the request, and the connection broke.
    Unanswered(Broken),
    /// The server says no.
    Exception(Exception),
}

/// A request on its way to the task.
struct Request {
    call: u32,
    frame: Zeroizing<Vec<u8>>,
    reply: Reply,
}

/// A handle on a live connection. The connection ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: mpsc::Sender<Request>,
}

impl Connection {
    /// Serves the stream, from which the handshake has been read, in a task.
    pub(crate) fn spawn<S>(stream: S, codec: Codec, client: ClientId, options: &Options) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (requests, queue) = mpsc::channel(QUEUE);
        let (reader, writer) = tokio::io::split(stream);
        let now = Instant::now();
        let task = Task {
            reader,
            writer,
            codec,
            client,
            queue,
            calls: CallTable::default(),
            unwritten: BytesMut::new(),
            written: 0,
            heard: now,
            spoken: now,
            times: Times::of(options),
            calls_max: options.calls_max.max(1),
            answered: false,
        };
        tokio::spawn(task.run());
        Self { requests }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Sends a request and waits for its answer; `sent` is told when it may have left.
    pub(crate) async fn call(
        &self,
        call: u32,
        frame: Zeroizing<Vec<u8>>,
        sent: impl FnOnce(),
    ) -> Result<Bytes, Failure> {
        // It was open when it was chosen.
        let gone = |_| Failure::NotSent(Broken::Idle);
        let place = self.requests.reserve().await.map_err(gone)?;
        let (reply, answer) = oneshot::channel();
        sent();
        place.send(Request { call, frame, reply });
        // A task that ends answers all it was sent; one that was cut off cannot say how far it got.
        answer.await.unwrap_or_else(|_| Err(Failure::Unanswered(Broken::Closed { amid: false })))
    }
}

#[derive(Clone, Copy)]
struct Times {
    silence_max: Duration,
    ping_interval: Duration,
    idle_max: Duration,
}

impl Times {
    fn of(options: &Options) -> Self {
        // A timer that is always due would keep the task busy.
        let sane = |duration: Duration| duration.clamp(Duration::from_millis(1), TIME_MAX);
        Self {
            silence_max: sane(options.silence_max),
            ping_interval: sane(options.ping_interval),
            idle_max: sane(options.idle_max),
        }
    }
}

struct Task<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    codec: Codec,
    client: ClientId,
    queue: mpsc::Receiver<Request>,
    calls: CallTable,
    unwritten: BytesMut,
    /// Bytes of the stream that the system has taken.
    written: u64,
    /// When something was last read; or, if later, when the first of the waiting calls was made.
    heard: Instant,
    /// When something was last put out, or the last call answered.
    spoken: Instant,
    times: Times,
    calls_max: usize,
    /// Whether any call has been answered.
    answered: bool,
}

impl<S: AsyncRead + AsyncWrite> Task<S> {
    async fn run(mut self) {
        let mut broken = match self.serve().await {
            Ok(()) => return,
            Err(broken) => broken,
        };
        if let Broken::Io(_) = broken {
            // A server that refuses says so and closes; what is sent after that breaks the pipe
            // before its words are read.
            if let Ok(Err(said)) = tokio::time::timeout(LAST_WORDS, self.listen()).await {
                broken = said;
            }
        }
        self.queue.close();
        let outcome = |sent: bool| match &broken {
            // A server that has never answered has refused the connection, and with it all calls.
            Broken::Fatal(exception) if !self.answered => Failure::Exception(exception.clone()),
            other if sent => Failure::Unanswered(other.clone()),
            other => Failure::NotSent(other.clone()),
        };
        self.calls.fail(self.written, outcome);
        // Ends when every place that was reserved has been used or given back.
        while let Some(request) = self.queue.recv().await {
            let _ = request.reply.send(Err(outcome(false)));
        }
    }

    /// Runs until nobody needs the connection any more, or it breaks.
    async fn serve(&mut self) -> Result<(), Broken> {
        loop {
            let may_take =
                self.calls.len() < self.calls_max && self.unwritten.len() < UNWRITTEN_MAX;
            let wake = self.next_wake();
            tokio::select! {
                read = self.reader.read_buf(self.codec.room()) => self.on_read(read?)?,
                wrote = self.writer.write_buf(&mut self.unwritten), if !self.unwritten.is_empty() => {
                    self.written += wrote? as u64;
                }
                request = self.queue.recv(), if may_take => match request {
                    Some(request) => self.on_request(request)?,
                    None => return Ok(()),
                },
                () = sleep_until(wake) => self.on_wake()?,
            }
        }
    }

    /// Reads only, until the stream ends.
    async fn listen(&mut self) -> Result<(), Broken> {
        loop {
            match self.reader.read_buf(self.codec.room()).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(bytes) => self.on_read(bytes)?,
            }
        }
    }

    fn on_read(&mut self, bytes: usize) -> Result<(), Broken> {
        if bytes == 0 {
            return Err(Broken::Closed { amid: self.codec.is_amid() });
        }
        self.heard = Instant::now();
        while let Some(frame) = self.codec.decode()? {
            self.on_frame(frame)?;
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: Bytes) -> Result<(), Broken> {
        let response = Response::parse(frame)?;
        let call = response.header.call_id;
        let outcome = match RpcStatusProto::try_from(response.header.status) {
            Ok(RpcStatusProto::Success) => Ok(response.body()?),
            Ok(RpcStatusProto::Error) => {
                Err(Failure::Exception(Exception::of_header(&response.header)))
            }
            Ok(RpcStatusProto::Fatal) => {
                let exception = Exception::of_header(&response.header);
                self.calls.answer(call, Err(Failure::Exception(exception.clone())));
                return Err(Broken::Fatal(exception));
            }
            Err(_) => return Err(Broken::protocol("an answer has an unknown status")),
        };
        if !self.calls.answer(call, outcome) {
            return Err(Broken::Protocol(format!("it answered call {call}, which was not made")));
        }
        self.answered = true;
        if self.calls.is_empty() {
            self.spoken = Instant::now();
        }
        Ok(())
    }

    fn on_request(&mut self, request: Request) -> Result<(), Broken> {
        if request.reply.is_closed() {
            // Its caller has gone while it waited in the queue.
            return Ok(());
        }
        let Request { call, frame, reply } = request;
        let now = Instant::now();
        if self.calls.is_empty() {
            self.heard = now;
        }
        self.spoken = now;
        if self.unwritten.is_empty() {
            // What one large request needed is not kept for the small ones after it.
            self.unwritten = BytesMut::with_capacity(frame.len());
        }
        let encoded = self.codec.encode(&frame, &mut self.unwritten);
        // What was not encoded to its end will not be written to it either.
        let end = match encoded {
            Ok(()) => self.written + self.unwritten.len() as u64,
            Err(_) => u64::MAX,
        };
        self.calls.insert(call, reply, end);
        encoded
    }

    fn next_wake(&self) -> Instant {
        if self.calls.is_empty() {
            self.spoken + self.times.idle_max
        } else {
            let silent = self.heard + self.times.silence_max;
            silent.min(self.spoken + self.times.ping_interval)
        }
    }

    fn on_wake(&mut self) -> Result<(), Broken> {
        let now = Instant::now();
        if self.calls.is_empty() {
            return Err(Broken::Idle);
        }
        if now >= self.heard + self.times.silence_max {
            return Err(Broken::Silent);
        }
        self.spoken = now;
        // A peer that takes nothing needs no more of it.
        if self.unwritten.is_empty() {
            let ping = frame::ping(&self.client);
            self.codec.encode(&ping, &mut self.unwritten)?;
        }
        Ok(())
    }
}
