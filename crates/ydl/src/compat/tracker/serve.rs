//! Socket server for the tracker protocol of a job's master.
//!
//! In a job the agent identifies the task of a connection. Here only the worker itself does, so the server reads its first
//! message before the protocol: it contains an earlier rank, or a name, which gets the same rank each time.

use super::hello::WorkerHello;
use crate::terminal;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use ydl_core::TaskId;
use ydl_rendezvous::{Action, Effects, LinkId, Peer, Protocol, tracker::Tracker};

const MAGIC: [u8; 4] = 0xff99_u32.to_le_bytes();
/// Connections beyond one for each worker: messages to print, and other clients.
const EXTRA_CONNECTIONS: usize = 256;
/// Maximum time for a connection to identify itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for a worker to read a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Length of the queue of received chunks, and of the queue of responses to a worker.
const QUEUE_LEN: usize = 64;

enum ConnectionEvent {
    Opened(u64, SocketAddr, mpsc::Sender<Vec<u8>>, Arc<AtomicBool>),
    Received(u64, Vec<u8>),
    Closed(u64),
}

/// Serves until every worker has shut down.
pub(crate) async fn serve(listener: TcpListener, workers: u32) {
    let (events, mut received) = mpsc::channel(QUEUE_LEN);
    let permits = Arc::new(Semaphore::new(workers as usize + EXTRA_CONNECTIONS));
    let accepting = tokio::spawn(accept(listener, permits, events));
    let mut server = TrackerServer::new(workers);
    while let Some(event) = received.recv().await {
        server.handle(event);
        if server.down.len() == workers as usize {
            break;
        }
    }
    accepting.abort();
}

async fn accept(
    listener: TcpListener,
    permits: Arc<Semaphore>,
    events: mpsc::Sender<ConnectionEvent>,
) {
    for number in 0.. {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(connection(number, stream, address, permit, events.clone()));
            }
            // Out of descriptors, or the client disconnected: retry.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Forwards received chunks to the tracker, and its responses to the worker.
async fn connection(
    number: u64,
    stream: TcpStream,
    address: SocketAddr,
    _permit: OwnedSemaphorePermit,
    events: mpsc::Sender<ConnectionEvent>,
) {
    let (mut reader, writer) = stream.into_split();
    let (sender, responses) = mpsc::channel(QUEUE_LEN);
    let identified = Arc::new(AtomicBool::new(false));
    let opened = ConnectionEvent::Opened(number, address, sender, identified.clone());
    if events.send(opened).await.is_err() {
        return;
    }
    let mut writing = tokio::spawn(write(writer, responses));
    let mut chunk = vec![0; 16 << 10];
    let end = Instant::now() + HELLO_TIMEOUT;
    loop {
        let is_identified = || identified.load(Ordering::Relaxed);
        let read = tokio::select! {
            read = reader.read(&mut chunk) => read,
            // All responses are sent, or the worker disconnected.
            _ = &mut writing => break,
            // An identified worker waits for the others without a limit.
            () = sleep_until(end), if !is_identified() => match is_identified() {
                true => continue,
                false => break,
            },
        };
        let length = match read {
            Ok(length) if length > 0 => length,
            _ => break,
        };
        let event = ConnectionEvent::Received(number, chunk[..length].to_vec());
        if events.send(event).await.is_err() {
            return;
        }
    }
    // `write` still sends pending responses.
    let _ = events.send(ConnectionEvent::Closed(number)).await;
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut responses: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(bytes) = responses.recv().await {
        timeout(WRITE_TIMEOUT, writer.write_all(&bytes)).await??;
    }
    timeout(WRITE_TIMEOUT, writer.shutdown()).await?
}

/// Connection with its state.
struct WorkerConnection {
    state: ConnectionState,
    address: SocketAddr,
    responses: mpsc::Sender<Vec<u8>>,
    /// True after the first message.
    identified: Arc<AtomicBool>,
    /// Bytes received and not consumed.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Magic,
    WorkerHello,
    /// Handled by the protocol.
    Identified,
}

/// Tracker and its connections.
struct TrackerServer {
    protocol: Tracker,
    workers: u32,
    connections: BTreeMap<u64, WorkerConnection>,
    /// Ranks of workers by name.
    names: BTreeMap<Vec<u8>, u32>,
    /// Ranks in use.
    taken: BTreeSet<u32>,
    /// Ranks of workers that have shut down.
    down: BTreeSet<u32>,
}

impl TrackerServer {
    fn new(workers: u32) -> TrackerServer {
        let tasks = (0..workers).map(task).collect();
        TrackerServer {
            protocol: Tracker::new(tasks),
            workers,
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            down: BTreeSet::new(),
        }
    }

    fn handle(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Opened(number, address, responses, identified) => {
                let connection = WorkerConnection {
                    state: ConnectionState::Magic,
                    address,
                    responses,
                    identified,
                    bytes: Vec::new(),
                };
                self.connections.insert(number, connection);
            }
            ConnectionEvent::Received(number, chunk) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.bytes.extend(chunk);
                    if let Err(what) = self.process(number) {
                        self.reject(number, &what);
                    }
                }
            }
            ConnectionEvent::Closed(number) => self.close(number),
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number)
            && connection.state == ConnectionState::Identified
        {
            let mut effects = Effects::default();
            self.protocol.close(LinkId::Accepted(number), &mut effects);
            self.apply(effects);
        }
    }

    fn reject(&mut self, number: u64, what: &str) {
        if let Some(connection) = self.connections.get(&number) {
            terminal::message(format!("closed a connection from `{}`: {what}", connection.address));
        }
        self.close(number);
    }

    /// Handles all complete messages of a connection.
    fn process(&mut self, number: u64) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&number) else {
            return Ok(());
        };
        if connection.state == ConnectionState::Magic {
            let differs = connection.bytes.iter().zip(MAGIC).any(|(one, other)| *one != other);
            if differs {
                return Err("not a Rabit worker".to_owned());
            }
            if connection.bytes.len() < MAGIC.len() {
                return Ok(());
            }
            connection.bytes.drain(..MAGIC.len());
            connection.state = ConnectionState::WorkerHello;
            respond(connection, MAGIC.to_vec())?;
        }
        if connection.state == ConnectionState::WorkerHello {
            let Some(hello) = WorkerHello::parse(&connection.bytes)? else {
                return Ok(());
            };
            let host = connection.address.ip().to_string().into();
            connection.state = ConnectionState::Identified;
            connection.identified.store(true, Ordering::Relaxed);
            let rank = self.rank(&hello)?;
            let peer = Peer { task: task(rank), attempt: 1, host };
            let link = LinkId::Accepted(number);
            let mut effects = Effects::default();
            self.protocol.open(link, &peer, &mut effects);
            let length = self.protocol.receive(link, &MAGIC, &mut effects);
            length.map_err(|rejection| rejection.to_string())?;
            // This response was sent already.
            let (_, actions) = effects.into_parts();
            let is_sent = |action: &Action| *action == Action::Send(link, MAGIC.to_vec());
            self.apply_all(actions.into_iter().filter(|action| !is_sent(action)).collect());
            match hello.command.as_slice() {
                b"shutdown" => _ = self.down.insert(rank),
                b"start" | b"recover" => _ = self.down.remove(&rank),
                _ => {}
            }
        }
        self.pass_messages(number)
    }

    /// Passes all complete messages to the protocol.
    fn pass_messages(&mut self, number: u64) -> Result<(), String> {
        let link = LinkId::Accepted(number);
        while let Some(connection) = self.connections.get_mut(&number) {
            if connection.bytes.len() > self.protocol.max_message_len() {
                return Err("message too long".to_owned());
            }
            let mut effects = Effects::default();
            let length = self.protocol.receive(link, &connection.bytes, &mut effects);
            let length = length.map_err(|rejection| rejection.to_string())?;
            if let Some(length) = length {
                connection.bytes.drain(..length);
            }
            self.apply(effects);
            if length.is_none_or(|length| length == 0) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the rank of a worker: its earlier rank, the one of its name, the number in its name, or the first free one.
    fn rank(&mut self, hello: &WorkerHello) -> Result<u32, String> {
        let earlier = u32::try_from(hello.rank).ok();
        let earlier = earlier.or_else(|| self.names.get(&hello.name).copied());
        let numbered = || {
            let number = String::from_utf8_lossy(&hello.name).parse::<u32>().ok()?;
            (number < self.workers && !self.taken.contains(&number)).then_some(number)
        };
        let free = || (0..self.workers).find(|rank| !self.taken.contains(rank));
        let rank = earlier.or_else(numbered).or_else(free);
        let rank = rank.filter(|rank| *rank < self.workers);
        let rank =
            rank.ok_or_else(|| format!("all {} workers are connected already", self.workers))?;
        if hello.command != b"print" {
            self.taken.insert(rank);
            if hello.name != b"NULL" {
                self.names.insert(hello.name.clone(), rank);
            }
        }
        Ok(rank)
    }

    fn apply(&mut self, effects: Effects) {
        let (_, actions) = effects.into_parts();
        self.apply_all(actions);
    }

    fn apply_all(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(LinkId::Accepted(number), bytes) => {
                    let full =
                        |connection: &WorkerConnection| respond(connection, bytes.clone()).is_err();
                    if self.connections.get(&number).is_some_and(full) {
                        self.reject(number, "it does not read its responses");
                    }
                }
                // Responses sent before still arrive: `write` drains its queue.
                Action::Close(LinkId::Accepted(number)) => _ = self.connections.remove(&number),
                Action::Log(line) => terminal::message(line),
                // Not used by Rabit's first protocol.
                Action::Send(..) | Action::Close(_) | Action::Dial(..) => {}
            }
        }
    }
}

fn task(rank: u32) -> TaskId {
    TaskId { role: "worker".into(), index: rank }
}

fn respond(connection: &WorkerConnection, bytes: Vec<u8>) -> Result<(), String> {
    let sent = connection.responses.try_send(bytes);
    sent.map_err(|_| "it does not read its responses".to_owned())
}
