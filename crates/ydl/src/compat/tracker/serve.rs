//! Sockets around the tracker that a job's master has.
//!
//! In a job the agent knows which task speaks; here only the worker itself does. So what a connection says first is
//! read before the protocol hears it: the rank that it had, or the name that it goes by, which gets the same rank each
//! time.

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
/// The longest name of a worker, and the longest command.
const TEXT_MAX: usize = 4096;
/// Beyond one connection for each worker: those that print, and strangers.
const SPARE: usize = 256;
/// Maximum time for a connection to identify itself.
const GREETING_MAX: Duration = Duration::from_secs(30);
/// Maximum time for a worker to read what it is told.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// Pieces that wait for the tracker, and answers that wait for a worker.
const QUEUE: usize = 64;

enum ConnectionEvent {
    Opened(u64, SocketAddr, mpsc::Sender<Vec<u8>>, Arc<AtomicBool>),
    Piece(u64, Vec<u8>),
    Closed(u64),
}

/// Serves until every worker has shut down.
pub async fn serve(listener: TcpListener, workers: u32) {
    let (tell, mut heard) = mpsc::channel(QUEUE);
    let room = Arc::new(Semaphore::new(workers as usize + SPARE));
    let accepting = tokio::spawn(accept(listener, room, tell));
    let mut server = TrackerServer::new(workers);
    while let Some(heard) = heard.recv().await {
        server.on(heard);
        if server.down.len() == workers as usize {
            break;
        }
    }
    accepting.abort();
}

async fn accept(listener: TcpListener, room: Arc<Semaphore>, tell: mpsc::Sender<ConnectionEvent>) {
    for number in 0.. {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(connection(number, stream, address, permit, tell.clone()));
            }
            // Out of descriptors, or gone before it was taken: the next may do better.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Passes on what is said, both ways.
async fn connection(
    number: u64,
    stream: TcpStream,
    address: SocketAddr,
    _permit: OwnedSemaphorePermit,
    tell: mpsc::Sender<ConnectionEvent>,
) {
    let (mut from, to) = stream.into_split();
    let (answer, answers) = mpsc::channel(QUEUE);
    let known = Arc::new(AtomicBool::new(false));
    let opened = ConnectionEvent::Opened(number, address, answer, known.clone());
    if tell.send(opened).await.is_err() {
        return;
    }
    let mut writing = tokio::spawn(write(to, answers));
    let mut piece = vec![0; 16 << 10];
    let end = Instant::now() + GREETING_MAX;
    loop {
        let is_known = || known.load(Ordering::Relaxed);
        let read = tokio::select! {
            read = from.read(&mut piece) => read,
            // It was told everything, or is gone.
            _ = &mut writing => break,
            // Who has said who it is may wait for the others for as long as they take.
            () = sleep_until(end), if !is_known() => match is_known() {
                true => continue,
                false => break,
            },
        };
        let length = match read {
            Ok(length) if length > 0 => length,
            _ => break,
        };
        let heard = ConnectionEvent::Piece(number, piece[..length].to_vec());
        if tell.send(heard).await.is_err() {
            return;
        }
    }
    // A closed connection is not closed again. `write` still sends pending answers.
    let _ = tell.send(ConnectionEvent::Closed(number)).await;
}

async fn write(mut to: OwnedWriteHalf, mut answers: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(bytes) = answers.recv().await {
        timeout(WRITE_MAX, to.write_all(&bytes)).await??;
    }
    timeout(WRITE_MAX, to.shutdown()).await?
}

/// One connection, as far as it has come.
struct WorkerConnection {
    stage: ConnectionState,
    address: SocketAddr,
    answers: mpsc::Sender<Vec<u8>>,
    /// True if it has said who it is.
    known: Arc<AtomicBool>,
    /// Bytes received and not consumed.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Magic,
    WorkerHello,
    /// The protocol has it.
    Known,
}

/// Tracker and its connections.
struct TrackerServer {
    protocol: Tracker,
    workers: u32,
    lines: BTreeMap<u64, WorkerConnection>,
    /// Workers by the names that they go by.
    names: BTreeMap<Vec<u8>, u32>,
    taken: BTreeSet<u32>,
    down: BTreeSet<u32>,
}

impl TrackerServer {
    fn new(workers: u32) -> TrackerServer {
        let tasks = (0..workers).map(task).collect();
        TrackerServer {
            protocol: Tracker::new(tasks),
            workers,
            lines: BTreeMap::new(),
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            down: BTreeSet::new(),
        }
    }

    fn on(&mut self, heard: ConnectionEvent) {
        match heard {
            ConnectionEvent::Opened(number, address, answers, known) => {
                let line = WorkerConnection {
                    stage: ConnectionState::Magic,
                    address,
                    answers,
                    known,
                    bytes: Vec::new(),
                };
                self.lines.insert(number, line);
            }
            ConnectionEvent::Piece(number, piece) => {
                if let Some(line) = self.lines.get_mut(&number) {
                    line.bytes.extend(piece);
                    if let Err(what) = self.take(number) {
                        self.refuse(number, &what);
                    }
                }
            }
            ConnectionEvent::Closed(number) => self.close(number),
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(line) = self.lines.remove(&number)
            && line.stage == ConnectionState::Known
        {
            let mut effects = Effects::default();
            self.protocol.close(LinkId::Accepted(number), &mut effects);
            self.act(effects);
        }
    }

    fn refuse(&mut self, number: u64, what: &str) {
        if let Some(line) = self.lines.get(&number) {
            terminal::message(format!("a connection from `{}` is ended: {what}", line.address));
        }
        self.close(number);
    }

    /// Whatever can be done with what has come.
    fn take(&mut self, number: u64) -> Result<(), String> {
        let Some(line) = self.lines.get_mut(&number) else {
            return Ok(());
        };
        if line.stage == ConnectionState::Magic {
            let differs = line.bytes.iter().zip(MAGIC).any(|(one, other)| *one != other);
            if differs {
                return Err("it is no worker of Rabit's".to_owned());
            }
            if line.bytes.len() < MAGIC.len() {
                return Ok(());
            }
            line.bytes.drain(..MAGIC.len());
            line.stage = ConnectionState::WorkerHello;
            answer(line, MAGIC.to_vec())?;
        }
        if line.stage == ConnectionState::WorkerHello {
            let Some(header) = WorkerHello::read(&line.bytes)? else {
                return Ok(());
            };
            let host = line.address.ip().to_string().into();
            line.stage = ConnectionState::Known;
            line.known.store(true, Ordering::Relaxed);
            let rank = self.rank(&header)?;
            let peer = Peer { task: task(rank), attempt: 1, host };
            let link = LinkId::Accepted(number);
            let mut effects = Effects::default();
            self.protocol.open(link, &peer, &mut effects);
            let taken = self.protocol.receive(link, &MAGIC, &mut effects);
            taken.map_err(|rejection| rejection.to_string())?;
            // It has been answered already.
            let (_, acts) = effects.into_parts();
            let already = |act: &Action| *act == Action::Send(link, MAGIC.to_vec());
            self.act_on(acts.into_iter().filter(|act| !already(act)).collect());
            match header.command.as_slice() {
                b"shutdown" => _ = self.down.insert(rank),
                b"start" | b"recover" => _ = self.down.remove(&rank),
                _ => {}
            }
        }
        self.pass(number)
    }

    /// Gives the protocol one whole message after the other.
    fn pass(&mut self, number: u64) -> Result<(), String> {
        let link = LinkId::Accepted(number);
        while let Some(line) = self.lines.get_mut(&number) {
            if line.bytes.len() > self.protocol.max_message_len() {
                return Err("it says more than any worker does".to_owned());
            }
            let mut effects = Effects::default();
            let taken = self.protocol.receive(link, &line.bytes, &mut effects);
            let taken = taken.map_err(|rejection| rejection.to_string())?;
            if let Some(length) = taken {
                line.bytes.drain(..length);
            }
            self.act(effects);
            if taken.is_none_or(|length| length == 0) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the rank of the speaking worker: its earlier rank, the one of its name, the announced one, or the first
    /// free one.
    fn rank(&mut self, header: &WorkerHello) -> Result<u32, String> {
        let known = u32::try_from(header.rank).ok();
        let known = known.or_else(|| self.names.get(&header.name).copied());
        let called = || {
            let number = String::from_utf8_lossy(&header.name).parse::<u32>().ok()?;
            (number < self.workers && !self.taken.contains(&number)).then_some(number)
        };
        let free = || (0..self.workers).find(|rank| !self.taken.contains(rank));
        let rank = known.or_else(called).or_else(free);
        let rank = rank.filter(|rank| *rank < self.workers);
        let rank = rank.ok_or_else(|| format!("all {} workers are there", self.workers))?;
        if header.command != b"print" {
            self.taken.insert(rank);
            if header.name != b"NULL" {
                self.names.insert(header.name.clone(), rank);
            }
        }
        Ok(rank)
    }

    fn act(&mut self, effects: Effects) {
        let (_, acts) = effects.into_parts();
        self.act_on(acts);
    }

    fn act_on(&mut self, acts: Vec<Action>) {
        for act in acts {
            match act {
                Action::Send(LinkId::Accepted(number), bytes) => {
                    let full = |line: &WorkerConnection| answer(line, bytes.clone()).is_err();
                    if self.lines.get(&number).is_some_and(full) {
                        self.refuse(number, "it does not read what it is told");
                    }
                }
                // What was sent before arrives: the sender drains what it has when this side lets go.
                Action::Close(LinkId::Accepted(number)) => _ = self.lines.remove(&number),
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

fn answer(line: &WorkerConnection, bytes: Vec<u8>) -> Result<(), String> {
    let sent = line.answers.try_send(bytes);
    sent.map_err(|_| "it does not read what it is told".to_owned())
}

/// First message of a worker.
struct WorkerHello {
    rank: i32,
    name: Vec<u8>,
    command: Vec<u8>,
}

impl WorkerHello {
    /// Nothing while there is too little of it.
    fn read(bytes: &[u8]) -> Result<Option<WorkerHello>, String> {
        let mut rest = bytes;
        let (Some(rank), Some(_world)) = (number(&mut rest), number(&mut rest)) else {
            return Ok(None);
        };
        let (Some(name), Some(command)) = (text(&mut rest)?, text(&mut rest)?) else {
            return Ok(None);
        };
        Ok(Some(WorkerHello { rank, name, command }))
    }
}

fn number(rest: &mut &[u8]) -> Option<i32> {
    let (first, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_le_bytes(*first))
}

fn text(rest: &mut &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(length) = number(rest) else {
        return Ok(None);
    };
    let length = usize::try_from(length).ok().filter(|it| *it <= TEXT_MAX);
    let length = length.ok_or("it is no worker of Rabit's")?;
    if rest.len() < length {
        return Ok(None);
    }
    let (text, after) = rest.split_at(length);
    *rest = after;
    Ok(Some(text.to_vec()))
}
