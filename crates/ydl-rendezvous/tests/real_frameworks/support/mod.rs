//! A protocol on real sockets: a master and its agents in threads of one process.
//!
//! Each task has its own loopback port, as it has at its agent. A connection to a port belongs to its task. The master
//! fails over as often as requested; the next one has the journal and the state of the agents.
#![allow(dead_code)]

pub mod programs;

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use ydl_core::{Cluster, TaskId};
use ydl_rendezvous::{
    AgentLinks, ClientFrame, ConnId, LinkOutput, LinkRecord, LinkServer, Peer, Protocol,
    RetryTimer, ServerFrame, SocketAction,
};

pub const HOST: &str = "127.0.0.1";

/// Stops a master without events after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

type ProtocolFactory = Box<dyn Fn() -> Box<dyn Protocol> + Send>;

enum Event {
    Accepted(TaskId, TcpStream),
    Bytes(Peer, ConnId, Vec<u8>),
    Closed(Peer, ConnId),
    Ended(Peer),
    MembersChanged(Cluster),
    Retry(RetryTimer),
    Status(Sender<Status>),
    Stop,
}

/// Observations of a master so far.
#[derive(Debug, Clone, Default)]
pub struct Status {
    pub log: Vec<String>,
    pub rejected: Vec<String>,
    pub missing: Vec<TaskId>,
    pub failovers: usize,
    /// Number of expired retry timers.
    pub retries: usize,
}

/// A served protocol. Stops when dropped.
pub struct Sockets {
    ports: BTreeMap<TaskId, u16>,
    events: Sender<Event>,
    master: Option<thread::JoinHandle<()>>,
}

impl Sockets {
    /// Serves a protocol. The master fails over after every `failover_every` events; never if 0.
    pub fn serve(new_protocol: ProtocolFactory, peers: &[Peer], failover_every: usize) -> Sockets {
        let (events, inbox) = channel();
        let mut ports = BTreeMap::new();
        for peer in peers {
            let listener = TcpListener::bind((HOST, 0)).unwrap();
            ports.insert(peer.task.clone(), listener.local_addr().unwrap().port());
            let (events, task) = (events.clone(), peer.task.clone());
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if events.send(Event::Accepted(task.clone(), stream)).is_err() {
                        return;
                    }
                }
            });
        }
        let agents = peers.iter().map(|peer| {
            let agent = Agent {
                peer: peer.clone(),
                sender: AgentLinks::default(),
                streams: HashMap::new(),
            };
            (peer.task.clone(), agent)
        });
        let master = Master {
            server: LinkServer::new(new_protocol()),
            new_protocol,
            agents: agents.collect(),
            journal: Vec::new(),
            status: Status::default(),
            events: events.clone(),
        };
        let master = thread::spawn(move || run(master, &inbox, failover_every));
        Sockets { ports, events, master: Some(master) }
    }

    /// Returns the port of a task.
    pub fn port(&self, task: &str) -> u16 {
        self.ports[&task.parse::<TaskId>().unwrap()]
    }

    /// Ends an attempt. Later connections belong to the next one.
    pub fn attempt_ended(&self, peer: &Peer) {
        self.events.send(Event::Ended(peer.clone())).unwrap();
    }

    /// Changes the members of the round.
    pub fn members_changed(&self, members: &Cluster) {
        self.events.send(Event::MembersChanged(members.clone())).unwrap();
    }

    pub fn status(&self) -> Status {
        let (reply, answer) = channel();
        self.events.send(Event::Status(reply)).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    /// Waits for a condition.
    pub fn wait_for(&self, what: &str, is: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let status = self.status();
            if is(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "not {what}: {status:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Stop);
        if let Some(master) = self.master.take() {
            let _ = master.join();
        }
    }
}

struct Agent {
    peer: Peer,
    sender: AgentLinks,
    streams: HashMap<ConnId, TcpStream>,
}

/// Input of a new master, in order.
enum JournalEntry {
    Link(LinkRecord),
    Ended(Peer),
    MembersChanged(Cluster),
}

struct Master {
    server: LinkServer,
    new_protocol: ProtocolFactory,
    agents: BTreeMap<TaskId, Agent>,
    journal: Vec<JournalEntry>,
    status: Status,
    events: Sender<Event>,
}

fn run(mut master: Master, inbox: &Receiver<Event>, failover_every: usize) {
    let mut events_handled = 0;
    let mut idle = Instant::now();
    let mut timer: Option<(RetryTimer, Instant)> = None;
    loop {
        // Restart the clock when the retry timer changes.
        let due = master.server.retry_timer();
        if due != timer.map(|(timer, _)| timer) {
            timer = due.map(|due| (due, Instant::now() + due.delay));
        }
        let until = timer.map_or(idle + IDLE_TIMEOUT, |(_, at)| at);
        let wait = until.saturating_duration_since(Instant::now());
        let event = match (inbox.recv_timeout(wait), timer) {
            (Ok(event), _) => event,
            (Err(RecvTimeoutError::Timeout), Some((due, _))) => Event::Retry(due),
            (Err(_), _) => return,
        };
        idle = Instant::now();
        match event {
            Event::Stop => return,
            Event::Status(reply) => {
                master.status.missing = master.server.missing();
                let _ = reply.send(master.status.clone());
            }
            event => {
                master.on(event);
                events_handled += 1;
                if failover_every > 0 && events_handled % failover_every == 0 {
                    master.fail_over();
                }
            }
        }
    }
}

impl Master {
    fn on(&mut self, event: Event) {
        match event {
            Event::Accepted(task, stream) => {
                let agent = self.agents.get_mut(&task).unwrap();
                let (conn, frame) = agent.sender.accept();
                let peer = agent.peer.clone();
                self.connected(&peer, conn, stream, frame);
            }
            Event::Bytes(peer, conn, bytes) => {
                if let Some(agent) = self.agent(&peer)
                    && let Some(frame) = agent.sender.read(conn, &bytes)
                {
                    self.receive(&peer, frame);
                }
            }
            Event::Closed(peer, conn) => {
                if let Some(agent) = self.agent(&peer)
                    && agent.sender.contains(conn)
                {
                    let frame = agent.sender.close(conn);
                    self.receive(&peer, frame);
                }
            }
            Event::Ended(peer) => {
                let agent = self.agents.get_mut(&peer.task).unwrap();
                agent.peer.attempt = peer.attempt + 1;
                agent.sender = AgentLinks::default();
                agent.streams.clear();
                let output = self.server.attempt_ended(&peer);
                self.journal.push(JournalEntry::Ended(peer));
                self.apply(output);
            }
            Event::MembersChanged(members) => {
                let output = self.server.members_changed(&members);
                self.journal.push(JournalEntry::MembersChanged(members));
                self.apply(output);
            }
            Event::Retry(timer) => {
                self.status.retries += 1;
                let output = self.server.retry(timer);
                self.apply(output);
            }
            Event::Status(_) | Event::Stop => {}
        }
    }

    fn agent(&mut self, peer: &Peer) -> Option<&mut Agent> {
        self.agents.get_mut(&peer.task).filter(|agent| agent.peer == *peer)
    }

    fn connected(&mut self, peer: &Peer, conn: ConnId, stream: TcpStream, frame: ClientFrame) {
        stream.set_nodelay(true).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let (events, of) = (self.events.clone(), peer.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let bytes = bytes[..length].to_vec();
                if events.send(Event::Bytes(of.clone(), conn, bytes)).is_err() {
                    return;
                }
            }
            let _ = events.send(Event::Closed(of, conn));
        });
        if let Some(agent) = self.agent(peer) {
            agent.streams.insert(conn, stream);
        }
        self.receive(peer, frame);
    }

    fn receive(&mut self, peer: &Peer, frame: ClientFrame) {
        let output = self.server.receive(peer, frame);
        self.apply(output);
    }

    fn apply(&mut self, output: LinkOutput) {
        self.journal.extend(output.records.into_iter().map(JournalEntry::Link));
        self.status.log.extend(output.log);
        let rejected = output.rejected.into_iter().map(|(_, rejection)| rejection.0);
        self.status.rejected.extend(rejected);
        for (task, frame) in output.frames {
            self.deliver(&task, frame);
        }
    }

    fn deliver(&mut self, task: &TaskId, frame: ServerFrame) {
        let agent = self.agents.get_mut(task).unwrap();
        let peer = agent.peer.clone();
        let (action, response) = agent.sender.receive(frame);
        match action {
            Some(SocketAction::Write(conn, bytes)) => {
                if let Some(stream) = agent.streams.get_mut(&conn) {
                    // The reader reports a closed connection.
                    let _ = stream.write_all(&bytes);
                }
            }
            Some(SocketAction::Close(conn)) => {
                if let Some(stream) = agent.streams.remove(&conn) {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
            Some(SocketAction::Dial(conn, port)) => match TcpStream::connect((&*peer.host, port)) {
                Ok(stream) => {
                    let frame = agent.sender.connected(conn);
                    self.connected(&peer, conn, stream, frame);
                }
                Err(_) => {
                    let frame = agent.sender.close(conn);
                    self.receive(&peer, frame);
                }
            },
            None => {}
        }
        if let Some(frame) = response {
            self.receive(&peer, frame);
        }
    }

    fn fail_over(&mut self) {
        self.status.failovers += 1;
        self.server = LinkServer::new((self.new_protocol)());
        for entry in &self.journal {
            match entry {
                JournalEntry::Link(record) => self.server.replay(record.clone()),
                JournalEntry::Ended(peer) => _ = self.server.attempt_ended(peer),
                JournalEntry::MembersChanged(members) => _ = self.server.members_changed(members),
            }
        }
        let sessions =
            self.agents.values().map(|agent| (agent.peer.clone(), agent.sender.attach()));
        for (peer, frames) in sessions.collect::<Vec<_>>() {
            for frame in frames {
                self.receive(&peer, frame);
            }
        }
    }
}

/// Returns the first attempts of `count` tasks of a role.
pub fn peers(role: &str, count: u32) -> Vec<Peer> {
    let peer =
        |index| Peer { task: TaskId { role: role.into(), index }, attempt: 1, host: HOST.into() };
    (0..count).map(peer).collect()
}
