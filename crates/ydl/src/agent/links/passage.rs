//! Between a program's connections and the master: what the program said goes up, what it is to be told comes down.
//!
//! Two calls at a time: one says something, the other waits. The answers of both bring what the program is to be told, and
//! are numbered, since one may overtake the other. When either fails, or the master is another, both begin anew with a new
//! number, and the sender says everything that may not have arrived. What the program has got is not worth a call of its
//! own: it goes with what is said next, or after a while.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use hyper::{Method, body::Bytes};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use ydl_rendezvous::{
    ClientFrame, ConnId, LinkSender, Seq, ServerFrame, SocketAction,
    link::{
        codec::{Codec as _, decode_all},
        reorder::ReorderBuffer,
    },
};

use super::socket::Socket;
use ydl_net::client::{CallError, Client, Payload};
use ydl_proto::messages::{LINKS_BYTES_MAX, LINKS_NUMBER_BYTES};

/// How long the master may take to take something in: it may be writing it down.
const SAY_MAX: Duration = Duration::from_secs(60);
/// How long it may have nothing to say, and how much longer its answer may take.
const LISTEN: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// Between two tries to reach a master, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long a program may take to accept a connection on a port that it has named itself.
const DIAL_MAX: Duration = Duration::from_secs(30);
/// What is held of all connections together, for a master that has not taken it.
const HELD_MAX: usize = 128 << 20;
/// Connections at once.
const CALLS_MAX: usize = 1024;
/// What the program has got is said after so long at the latest, and when it was so much.
const SETTLE: Duration = Duration::from_millis(200);
const SETTLE_BYTES: usize = 1 << 20;

/// What happens on this side.
pub(super) enum Heard {
    Accepted(TcpStream),
    Dialed(ConnId, Option<TcpStream>),
    Read(ConnId, Vec<u8>),
    Over(ConnId),
}

/// The frames of an answer, and its number; nothing, if nothing is to be told.
type Told = Option<(u64, Vec<ServerFrame>)>;

type Calling = Pin<Box<dyn Future<Output = Result<Told, CallError>> + Send>>;

pub(super) struct Passage {
    client: watch::Receiver<Arc<Client>>,
    round: u32,
    host: String,
    says: mpsc::Sender<Heard>,
    hears: mpsc::Receiver<Heard>,
    sender: LinkSender,
    sockets: BTreeMap<ConnId, Socket>,
    /// What is to be said to the master.
    ups: Vec<ClientFrame>,
    /// What the program has got, and the master need not know at once.
    settled: BTreeMap<ConnId, Seq>,
    settled_bytes: usize,
    settle_at: Option<Instant>,
    /// What was told on this connection.
    reorder: ReorderBuffer<Vec<ServerFrame>>,
    connection: u64,
    /// The master knows the connection.
    attached: bool,
    saying: Option<Calling>,
    listening: Option<Calling>,
    retry: Duration,
    not_before: Instant,
    noted: bool,
    quiet: watch::Sender<bool>,
}

impl Passage {
    pub(super) fn new(
        client: watch::Receiver<Arc<Client>>,
        round: u32,
        host: String,
        says: mpsc::Sender<Heard>,
        hears: mpsc::Receiver<Heard>,
    ) -> (Passage, watch::Receiver<bool>) {
        let sender = LinkSender::default();
        let (quiet, is_quiet) = watch::channel(true);
        let passage = Passage {
            client,
            round,
            host,
            says,
            hears,
            ups: sender.attach(),
            sender,
            sockets: BTreeMap::new(),
            settled: BTreeMap::new(),
            settled_bytes: 0,
            settle_at: None,
            reorder: ReorderBuffer::default(),
            connection: 1,
            attached: false,
            saying: None,
            listening: None,
            retry: RETRY.0,
            not_before: Instant::now(),
            noted: false,
            quiet,
        };
        (passage, is_quiet)
    }

    /// Until the round is over.
    pub(super) async fn run(mut self) {
        loop {
            self.call();
            let quiet = self.sender.is_empty() && self.saying.is_none() && self.ups.is_empty();
            self.quiet.send_if_modified(|was| std::mem::replace(was, quiet) != quiet);
            tokio::select! {
                Some(heard) = self.hears.recv() => self.on_heard(heard),
                said = ready(&mut self.saying) => {
                    self.saying = None;
                    self.attached |= said.is_ok();
                    if !self.on_answer(said) {
                        return;
                    }
                }
                told = ready(&mut self.listening) => {
                    self.listening = None;
                    if !self.on_answer(told) {
                        return;
                    }
                }
                changed = self.client.changed() => match changed {
                    Ok(()) => self.begin_anew(RETRY.0),
                    Err(_) => return,
                },
                () = at(self.settle_at) => self.settle(),
                () = sleep_until(self.not_before), if self.saying.is_none() && self.not_before > Instant::now() => {}
            }
        }
    }

    /// Says what there is to say, and listens, if neither is being done.
    fn call(&mut self) {
        if Instant::now() < self.not_before {
            return;
        }
        if self.saying.is_none() && !self.ups.is_empty() {
            if self.attached {
                self.settle();
            }
            let body = self.take_ups();
            self.saying = Some(self.calling(Method::POST, Payload::Raw(body), SAY_MAX));
        }
        if self.listening.is_none() && self.attached {
            self.listening = Some(self.calling(Method::GET, Payload::Nothing, LISTEN.0 + LISTEN.1));
        }
    }

    fn calling(&self, method: Method, payload: Payload, deadline: Duration) -> Calling {
        let client = self.client.borrow().clone();
        let (round, connection) = (self.round, self.connection);
        let wait = LISTEN.0.as_millis();
        let path = format!("/v1/links?round={round}&connection={connection}&wait_ms={wait}");
        Box::pin(async move {
            let answer = client.call(method, &path, payload, deadline).await?;
            if answer.body.is_empty() {
                return Ok(None);
            }
            let wrong = |what: String| CallError::Protocol { what };
            let parts = answer.body.split_first_chunk::<LINKS_NUMBER_BYTES>();
            let (number, frames) = parts.ok_or_else(|| wrong("it has no number".to_owned()))?;
            let frames = decode_all(frames).map_err(|error| wrong(error.to_string()))?;
            Ok(Some((u64::from_be_bytes(*number), frames)))
        })
    }

    /// What the program has got is said next.
    fn settle(&mut self) {
        let settled = std::mem::take(&mut self.settled).into_iter();
        let ups = settled.map(|(call, mark)| ClientFrame::Ack(call, mark));
        // A call that is used anew has another name, so that nothing said before can be meant.
        self.ups.splice(..0, ups);
        self.settled_bytes = 0;
        self.settle_at = None;
    }

    /// As many as go together, but one at least.
    fn take_ups(&mut self) -> Bytes {
        let (mut body, mut count) = (Vec::new(), 0);
        for up in &self.ups {
            let before = body.len();
            up.encode(&mut body);
            if count > 0 && body.len() > LINKS_BYTES_MAX {
                body.truncate(before);
                break;
            }
            count += 1;
        }
        self.ups.drain(..count);
        body.into()
    }

    /// False if there is nobody to talk to in this round any more.
    fn on_answer(&mut self, answer: Result<Told, CallError>) -> bool {
        match answer {
            Ok(told) => {
                self.retry = RETRY.0;
                let Some((number, downs)) = told else {
                    return true;
                };
                match self.reorder.insert(number, downs) {
                    Some(reorder) => {
                        let downs = reorder.into_iter().flatten();
                        downs.for_each(|down| self.on_down(down));
                    }
                    None => self.begin_anew(self.retry),
                }
            }
            Err(CallError::Refused { status: 410, .. }) => return false,
            Err(error) => {
                tracing::debug!("the rendezvous cannot be reached: {error}");
                // A master that does not know the connection is there, and takes another at once.
                let unknown = matches!(error, CallError::Refused { status: 409, .. });
                let pause = if unknown && self.attached { Duration::ZERO } else { self.retry };
                self.retry = (self.retry * 2).min(RETRY.1);
                self.begin_anew(pause);
            }
        }
        true
    }

    fn begin_anew(&mut self, pause: Duration) {
        self.connection += 1;
        self.attached = false;
        self.saying = None;
        self.listening = None;
        // Who attaches says how far it is.
        self.settled.clear();
        self.settle();
        self.ups = self.sender.attach();
        self.reorder = ReorderBuffer::default();
        self.not_before = Instant::now() + pause;
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Accepted(stream) => {
                if self.sockets.len() >= CALLS_MAX {
                    return self.note("the program has too many connections to its rendezvous");
                }
                let (call, up) = self.sender.accept();
                self.open(call, stream, up);
            }
            Heard::Dialed(call, Some(stream)) => {
                let up = self.sender.connected(call);
                self.open(call, stream, up);
            }
            Heard::Dialed(call, None) => {
                let up = self.sender.close(call);
                self.ups.push(up);
            }
            Heard::Read(call, bytes) => {
                self.ups.extend(self.sender.read(call, &bytes));
                if self.sender.buffered() > HELD_MAX {
                    self.note("the program says more to its rendezvous than is taken in");
                    self.over(call);
                }
            }
            Heard::Over(call) => self.over(call),
        }
    }

    fn open(&mut self, call: ConnId, stream: TcpStream, up: ClientFrame) {
        self.sockets.insert(call, Socket::open(stream, call, self.says.clone()));
        self.ups.push(up);
    }

    fn over(&mut self, call: ConnId) {
        if self.sender.contains(call) {
            self.ups.push(self.sender.close(call));
        }
    }

    fn on_down(&mut self, down: ServerFrame) {
        let (errand, up) = self.sender.receive(down);
        match up {
            Some(ClientFrame::Ack(call, mark)) => {
                self.settled.insert(call, mark);
                self.settle_at.get_or_insert_with(|| Instant::now() + SETTLE);
            }
            other => self.ups.extend(other),
        }
        match errand {
            Some(SocketAction::Write(call, bytes)) => {
                self.settled_bytes += bytes.len();
                if self.settled_bytes > SETTLE_BYTES {
                    self.settle();
                }
                let taken = self.sockets.get(&call).is_none_or(|socket| socket.write(bytes));
                if !taken {
                    self.sockets.remove(&call);
                    self.over(call);
                }
            }
            Some(SocketAction::Close(call)) => {
                self.sockets.remove(&call);
            }
            Some(SocketAction::Dial(call, port)) => {
                let (says, host) = (self.says.clone(), self.host.clone());
                tokio::spawn(async move {
                    let stream = timeout(DIAL_MAX, TcpStream::connect((host.as_str(), port))).await;
                    let stream = stream.ok().and_then(Result::ok);
                    let _ = says.send(Heard::Dialed(call, stream)).await;
                });
            }
            None => {}
        }
    }

    /// Once: a program must not be able to fill the log.
    fn note(&mut self, what: &str) {
        if !std::mem::replace(&mut self.noted, true) {
            tracing::warn!("{what}");
        }
    }
}

/// Waits for that moment, or for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn ready(calling: &mut Option<Calling>) -> Result<Told, CallError> {
    match calling {
        Some(calling) => calling.await,
        None => std::future::pending().await,
    }
}
