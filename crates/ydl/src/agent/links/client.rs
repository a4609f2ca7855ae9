//! The agent's session with the master: sends the bytes that programs wrote, and receives the bytes for them.
//!
//! Makes two calls at a time: a POST with frames, and a GET that polls for frames. Both responses contain frames and
//! are numbered, because one may overtake the other. When a call fails or the master changes, a new session starts,
//! with a new number, and `AgentLinks` resends all unacknowledged bytes. Acknowledgements of received bytes are
//! delayed: they are sent with the next frames, or after a timeout.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use hyper::{Method, body::Bytes};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use ydl_rendezvous::{
    AgentLinks, ClientFrame, ConnId, Seq, ServerFrame, SocketAction,
    link::{
        codec::{Codec as _, decode_all},
        reorder::ReorderBuffer,
    },
};

use super::socket::Socket;
use ydl_net::client::{CallError, Client, Payload};
use ydl_proto::messages::{LINKS_BYTES_MAX, LINKS_NUMBER_BYTES};

/// Timeout of a POST. Longer than the master's own timeout, so it means that the master is gone.
const POST_TIMEOUT: Duration = Duration::from_secs(60);
/// Duration of a poll, and the additional time for its response.
const POLL: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// Initial and maximum backoff between sessions.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Timeout of a connection to a port of the program.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of buffered bytes, over all connections.
const BUFFERED_MAX: usize = 128 << 20;
/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 1024;
/// Maximum delay of an acknowledgement, and maximum number of unacknowledged bytes.
const ACK_DELAY: Duration = Duration::from_millis(200);
const ACK_BYTES: usize = 1 << 20;

/// An event of a program's connection.
pub(super) enum SocketEvent {
    Accepted(TcpStream),
    Dialed(ConnId, Option<TcpStream>),
    Read(ConnId, Vec<u8>),
    Closed(ConnId),
}

/// Number and frames of a response. `None` if it is empty.
type Response = Option<(u64, Vec<ServerFrame>)>;

/// A call in progress.
type PendingCall = Pin<Box<dyn Future<Output = Result<Response, CallError>> + Send>>;

/// Agent's end of the links of one program, in one session with the master at a time.
pub(super) struct LinkClient {
    /// Client of the current master.
    client: watch::Receiver<Arc<Client>>,
    round: u32,
    /// Address of the program's ports, to which the master may ask for connections.
    host: String,
    /// Sender for new connections, whose events arrive in `inbox`.
    events: mpsc::Sender<SocketEvent>,
    inbox: mpsc::Receiver<SocketEvent>,
    /// Bytes of the program that the master has not acknowledged.
    links: AgentLinks,
    sockets: BTreeMap<ConnId, Socket>,
    /// Frames for the master.
    outgoing: Vec<ClientFrame>,
    /// Delayed acknowledgements.
    acks: BTreeMap<ConnId, Seq>,
    unacked_bytes: usize,
    ack_at: Option<Instant>,
    /// Frames of this session, in order.
    incoming: ReorderBuffer<Vec<ServerFrame>>,
    /// Number of the session.
    session: u64,
    /// The master has accepted the session.
    attached: bool,
    posting: Option<PendingCall>,
    polling: Option<PendingCall>,
    backoff: Duration,
    /// Time of the next calls after an error.
    not_before: Instant,
    warned: bool,
    /// True if no connection is open and the master has every frame.
    idle: watch::Sender<bool>,
}

impl LinkClient {
    pub(super) fn new(
        client: watch::Receiver<Arc<Client>>,
        round: u32,
        host: String,
        events: mpsc::Sender<SocketEvent>,
        inbox: mpsc::Receiver<SocketEvent>,
    ) -> (LinkClient, watch::Receiver<bool>) {
        let links = AgentLinks::default();
        let (idle, is_idle) = watch::channel(true);
        let link_client = LinkClient {
            client,
            round,
            host,
            events,
            inbox,
            outgoing: links.attach(),
            links,
            sockets: BTreeMap::new(),
            acks: BTreeMap::new(),
            unacked_bytes: 0,
            ack_at: None,
            incoming: ReorderBuffer::default(),
            session: 1,
            attached: false,
            posting: None,
            polling: None,
            backoff: BACKOFF.0,
            not_before: Instant::now(),
            warned: false,
            idle,
        };
        (link_client, is_idle)
    }

    /// Runs until the round is over.
    pub(super) async fn run(mut self) {
        loop {
            self.start_calls();
            let idle = self.links.is_empty() && self.posting.is_none() && self.outgoing.is_empty();
            self.idle.send_if_modified(|was| std::mem::replace(was, idle) != idle);
            tokio::select! {
                Some(event) = self.inbox.recv() => self.on_event(event),
                result = ready(&mut self.posting) => {
                    self.posting = None;
                    self.attached |= result.is_ok();
                    if !self.on_response(result) {
                        return;
                    }
                }
                result = ready(&mut self.polling) => {
                    self.polling = None;
                    if !self.on_response(result) {
                        return;
                    }
                }
                changed = self.client.changed() => match changed {
                    Ok(()) => self.start_session(BACKOFF.0),
                    Err(_) => return,
                },
                () = at(self.ack_at) => self.flush_acks(),
                () = sleep_until(self.not_before), if self.posting.is_none() && self.not_before > Instant::now() => {}
            }
        }
    }

    /// Starts a POST if there are frames, and a poll, unless they are in progress.
    fn start_calls(&mut self) {
        if Instant::now() < self.not_before {
            return;
        }
        if self.posting.is_none() && !self.outgoing.is_empty() {
            if self.attached {
                self.flush_acks();
            }
            let body = self.take_body();
            self.posting = Some(self.request(Method::POST, Payload::Raw(body), POST_TIMEOUT));
        }
        if self.polling.is_none() && self.attached {
            self.polling = Some(self.request(Method::GET, Payload::Nothing, POLL.0 + POLL.1));
        }
    }

    fn request(&self, method: Method, payload: Payload, timeout: Duration) -> PendingCall {
        let client = self.client.borrow().clone();
        let (round, session) = (self.round, self.session);
        let wait = POLL.0.as_millis();
        let path = format!("/v1/links?round={round}&session={session}&wait_ms={wait}");
        Box::pin(async move {
            let response = client.call(method, &path, payload, timeout).await?;
            if response.body.is_empty() {
                return Ok(None);
            }
            let protocol_error = |what: String| CallError::Protocol { what };
            let parts = response.body.split_first_chunk::<LINKS_NUMBER_BYTES>();
            let (number, frames) =
                parts.ok_or_else(|| protocol_error("response without a number".to_owned()))?;
            let frames = decode_all(frames).map_err(|error| protocol_error(error.to_string()))?;
            Ok(Some((u64::from_be_bytes(*number), frames)))
        })
    }

    /// Queues the delayed acknowledgements.
    fn flush_acks(&mut self) {
        let acks = std::mem::take(&mut self.acks).into_iter();
        let frames = acks.map(|(conn, seq)| ClientFrame::Ack(conn, seq));
        // Connection ids are not reused, so an early acknowledgement cannot refer to another connection.
        self.outgoing.splice(..0, frames);
        self.reset_acks();
    }

    fn reset_acks(&mut self) {
        self.acks.clear();
        self.unacked_bytes = 0;
        self.ack_at = None;
    }

    /// Encodes as many queued frames as fit into a request, but at least one.
    fn take_body(&mut self) -> Bytes {
        let (mut body, mut count) = (Vec::new(), 0);
        for frame in &self.outgoing {
            let before = body.len();
            frame.encode(&mut body);
            if count > 0 && body.len() > LINKS_BYTES_MAX {
                body.truncate(before);
                break;
            }
            count += 1;
        }
        self.outgoing.drain(..count);
        body.into()
    }

    /// Handles a response. Returns false if the round is over.
    fn on_response(&mut self, response: Result<Response, CallError>) -> bool {
        match response {
            Ok(response) => {
                self.backoff = BACKOFF.0;
                let Some((number, frames)) = response else {
                    return true;
                };
                match self.incoming.insert(number, frames) {
                    Some(batches) => {
                        let frames = batches.into_iter().flatten();
                        frames.for_each(|frame| self.on_frame(frame));
                    }
                    None => self.start_session(self.backoff),
                }
            }
            Err(CallError::Refused { status: 410, .. }) => return false,
            Err(error) => {
                tracing::debug!("cannot reach the rendezvous: {error}");
                // A master that does not know the session accepts another one at once.
                let unknown = matches!(error, CallError::Refused { status: 409, .. });
                let pause = if unknown && self.attached { Duration::ZERO } else { self.backoff };
                self.backoff = (self.backoff * 2).min(BACKOFF.1);
                self.start_session(pause);
            }
        }
        true
    }

    fn start_session(&mut self, pause: Duration) {
        self.session += 1;
        self.attached = false;
        self.posting = None;
        self.polling = None;
        // The attach frame contains all acknowledgements.
        self.reset_acks();
        self.outgoing = self.links.attach();
        self.incoming = ReorderBuffer::default();
        self.not_before = Instant::now() + pause;
    }

    fn on_event(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Accepted(stream) => {
                if self.sockets.len() >= CONNECTIONS_MAX {
                    return self.warn_once("too many connections of the program to the rendezvous");
                }
                let (conn, frame) = self.links.accept();
                self.open(conn, stream, frame);
            }
            SocketEvent::Dialed(conn, Some(stream)) => {
                let frame = self.links.connected(conn);
                self.open(conn, stream, frame);
            }
            SocketEvent::Dialed(conn, None) => {
                let frame = self.links.close(conn);
                self.outgoing.push(frame);
            }
            SocketEvent::Read(conn, bytes) => {
                self.outgoing.extend(self.links.read(conn, &bytes));
                if self.links.buffered() > BUFFERED_MAX {
                    self.warn_once("the rendezvous buffer of the program is full");
                    self.close(conn);
                }
            }
            SocketEvent::Closed(conn) => self.close(conn),
        }
    }

    fn open(&mut self, conn: ConnId, stream: TcpStream, frame: ClientFrame) {
        self.sockets.insert(conn, Socket::open(stream, conn, self.events.clone()));
        self.outgoing.push(frame);
    }

    fn close(&mut self, conn: ConnId) {
        if self.links.contains(conn) {
            self.outgoing.push(self.links.close(conn));
        }
    }

    fn on_frame(&mut self, frame: ServerFrame) {
        let (action, response) = self.links.receive(frame);
        match response {
            Some(ClientFrame::Ack(conn, seq)) => {
                self.acks.insert(conn, seq);
                self.ack_at.get_or_insert_with(|| Instant::now() + ACK_DELAY);
            }
            other => self.outgoing.extend(other),
        }
        match action {
            Some(SocketAction::Write(conn, bytes)) => {
                self.unacked_bytes += bytes.len();
                if self.unacked_bytes > ACK_BYTES {
                    self.flush_acks();
                }
                let accepted = self.sockets.get(&conn).is_none_or(|socket| socket.write(bytes));
                if !accepted {
                    self.sockets.remove(&conn);
                    self.close(conn);
                }
            }
            Some(SocketAction::Close(conn)) => {
                self.sockets.remove(&conn);
            }
            Some(SocketAction::Dial(conn, port)) => {
                let (events, host) = (self.events.clone(), self.host.clone());
                tokio::spawn(async move {
                    let stream =
                        timeout(DIAL_TIMEOUT, TcpStream::connect((host.as_str(), port))).await;
                    let stream = stream.ok().and_then(Result::ok);
                    let _ = events.send(SocketEvent::Dialed(conn, stream)).await;
                });
            }
            None => {}
        }
    }

    /// Logs one warning: a program must not be able to fill the log.
    fn warn_once(&mut self, what: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!("{what}");
        }
    }
}

/// Waits until `moment`, or forever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn ready(call: &mut Option<PendingCall>) -> Result<Response, CallError> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
