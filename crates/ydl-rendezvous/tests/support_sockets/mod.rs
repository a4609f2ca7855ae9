//! A protocol on real sockets: what a master and its agents do, on one machine and in threads.
//!
//! Each task has a port of its own on loopback, as each has at its agent, and whoever connects there is that task.

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use ydl_core::TaskId;
use ydl_rendezvous::{Act, Link, Peer, Protocol, Reaction};

pub const HOST: &str = "127.0.0.1";

enum Event {
    Accepted(Link, TaskId, TcpStream),
    Open(Link, Peer, TcpStream),
    Bytes(Link, Vec<u8>),
    Closed(Link),
    Ended(Peer),
    Ask(Sender<Asked>),
    Stop,
}

/// What a protocol has said so far.
#[derive(Debug, Clone, Default)]
#[allow(dead_code)]
pub struct Asked {
    pub said: Vec<String>,
    pub refused: Vec<String>,
    pub missing: Vec<TaskId>,
}

/// A protocol that runs until it is dropped.
pub struct Sockets {
    ports: BTreeMap<TaskId, u16>,
    events: Sender<Event>,
    loop_: Option<thread::JoinHandle<()>>,
}

#[allow(dead_code)]
impl Sockets {
    pub fn serve(protocol: Box<dyn Protocol>, peers: &[Peer]) -> Sockets {
        let (events, inbox) = channel();
        let mut ports = BTreeMap::new();
        let mut accepted = 0;
        for peer in peers {
            let listener = TcpListener::bind((HOST, 0)).unwrap();
            ports.insert(peer.task.clone(), listener.local_addr().unwrap().port());
            let (events, task, first) = (events.clone(), peer.task.clone(), accepted);
            // Numbers of links must differ, not follow each other.
            accepted += 1 << 32;
            thread::spawn(move || {
                for (number, stream) in listener.incoming().flatten().enumerate() {
                    let link = Link::Accepted(first + number as u64);
                    if events
                        .send(Event::Accepted(link, task.clone(), stream))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        let hosts = peers
            .iter()
            .map(|peer| (peer.task.clone(), peer.clone()))
            .collect();
        let sender = events.clone();
        let loop_ = thread::spawn(move || run(protocol, hosts, inbox, sender));
        Sockets {
            ports,
            events,
            loop_: Some(loop_),
        }
    }

    /// The port at which a task finds the protocol.
    pub fn port(&self, task: &str) -> u16 {
        self.ports[&task.parse::<TaskId>().unwrap()]
    }

    pub fn ended(&self, peer: &Peer) {
        self.events.send(Event::Ended(peer.clone())).unwrap();
    }

    pub fn ask(&self) -> Asked {
        let (sender, answer) = channel();
        self.events.send(Event::Ask(sender)).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    /// Waits until what is known is as it should be.
    pub fn until(&self, what: &str, is: impl Fn(&Asked) -> bool) -> Asked {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let asked = self.ask();
            if is(&asked) {
                return asked;
            }
            assert!(Instant::now() < deadline, "not {what}: {asked:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Stop);
        if let Some(handle) = self.loop_.take() {
            let _ = handle.join();
        }
    }
}

struct Loop {
    protocol: Box<dyn Protocol>,
    peers: HashMap<TaskId, Peer>,
    streams: HashMap<Link, TcpStream>,
    pending: HashMap<Link, Vec<u8>>,
    asked: Asked,
    events: Sender<Event>,
}

fn run(
    protocol: Box<dyn Protocol>,
    peers: HashMap<TaskId, Peer>,
    inbox: Receiver<Event>,
    events: Sender<Event>,
) {
    let mut state = Loop {
        protocol,
        peers,
        streams: HashMap::new(),
        pending: HashMap::new(),
        asked: Asked::default(),
        events,
    };
    loop {
        match inbox.recv_timeout(Duration::from_secs(300)) {
            Ok(Event::Stop) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return;
            }
            Ok(event) => state.on(event),
        }
    }
}

impl Loop {
    fn on(&mut self, event: Event) {
        let mut reaction = Reaction::default();
        match event {
            Event::Accepted(link, task, stream) => {
                let peer = self.peers[&task].clone();
                return self.on(Event::Open(link, peer, stream));
            }
            Event::Open(link, peer, stream) => {
                stream.set_nodelay(true).unwrap();
                let mut reader = stream.try_clone().unwrap();
                let events = self.events.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = reader.read(&mut bytes) {
                        if events
                            .send(Event::Bytes(link, bytes[..length].to_vec()))
                            .is_err()
                        {
                            return;
                        }
                    }
                    let _ = events.send(Event::Closed(link));
                });
                self.streams.insert(link, stream);
                self.protocol.open(link, &peer, &mut reaction);
            }
            Event::Bytes(link, bytes) => {
                if !self.streams.contains_key(&link) {
                    return;
                }
                self.pending.entry(link).or_default().extend(bytes);
                return self.take(link);
            }
            Event::Closed(link) => {
                if self.streams.remove(&link).is_some() || matches!(link, Link::Dialed(_)) {
                    self.protocol.close(link, &mut reaction);
                }
            }
            Event::Ended(peer) => {
                let next = Peer {
                    attempt: peer.attempt + 1,
                    ..peer.clone()
                };
                self.peers.insert(peer.task.clone(), next);
                self.protocol.ended(&peer, &mut reaction);
            }
            Event::Ask(sender) => {
                self.asked.missing = self.protocol.missing();
                let _ = sender.send(self.asked.clone());
            }
            Event::Stop => {}
        }
        self.act(reaction);
    }

    fn take(&mut self, link: Link) {
        loop {
            let mut reaction = Reaction::default();
            let Some(pending) = self.pending.get_mut(&link) else {
                return;
            };
            match self.protocol.take(link, pending, &mut reaction) {
                Ok(Some(length)) => {
                    pending.drain(..length);
                    self.act(reaction);
                }
                Ok(None) => return,
                Err(refusal) => {
                    self.asked.refused.push(refusal.0);
                    self.end(link);
                    let mut reaction = Reaction::default();
                    self.protocol.close(link, &mut reaction);
                    return self.act(reaction);
                }
            }
        }
    }

    fn end(&mut self, link: Link) {
        self.pending.remove(&link);
        if let Some(stream) = self.streams.remove(&link) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn act(&mut self, reaction: Reaction) {
        for act in reaction.into_parts().1 {
            match act {
                Act::Send(link, bytes) => {
                    if let Some(stream) = self.streams.get_mut(&link) {
                        // Who has gone is heard of as a link that has ended.
                        let _ = stream.write_all(&bytes);
                    }
                }
                Act::Close(link) => self.end(link),
                Act::Dial(link, task, port) => {
                    let peer = self.peers[&task].clone();
                    let event = match TcpStream::connect((&*peer.host, port)) {
                        Ok(stream) => Event::Open(link, peer, stream),
                        Err(_) => Event::Closed(link),
                    };
                    self.on(event);
                }
                Act::Say(line) => self.asked.said.push(line),
            }
        }
    }
}

/// The first attempts of so many tasks of a role, on this machine.
#[allow(dead_code)]
pub fn peers(role: &str, count: u32) -> Vec<Peer> {
    let peer = |index| Peer {
        task: TaskId {
            role: role.into(),
            index,
        },
        attempt: 1,
        host: HOST.into(),
    };
    (0..count).map(peer).collect()
}
