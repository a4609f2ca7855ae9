//! A protocol on real sockets: a master and its agents, on one machine and in threads.
//!
//! Each task has a port of its own on loopback, as each has at its agent, and whoever connects there is that task. The
//! master dies as often as asked, and the next one knows what was written down and what the agents have.
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
use ydl_rendezvous::{Call, Desk, Down, Errand, Kept, Peer, Porter, Protocol, Reminder, Up, Work};

pub const HOST: &str = "127.0.0.1";

/// A master to whom nothing happens for so long has been forgotten.
const IDLE: Duration = Duration::from_secs(300);

type Fresh = Box<dyn Fn() -> Box<dyn Protocol> + Send>;

enum Event {
    Accepted(TaskId, TcpStream),
    Bytes(Peer, Call, Vec<u8>),
    Closed(Peer, Call),
    Ended(Peer),
    Told(Cluster),
    Remind(Reminder),
    Ask(Sender<Asked>),
    Stop,
}

/// What a protocol has said so far.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub said: Vec<String>,
    pub refused: Vec<String>,
    pub missing: Vec<TaskId>,
    pub deaths: usize,
    /// So often something was said again that nobody had heeded.
    pub reminded: usize,
}

/// A protocol that runs until it is dropped.
pub struct Sockets {
    ports: BTreeMap<TaskId, u16>,
    events: Sender<Event>,
    master: Option<thread::JoinHandle<()>>,
}

impl Sockets {
    /// After so many things that have happened the master dies, each time; 0 for never.
    pub fn serve(fresh: Fresh, peers: &[Peer], dies_after: usize) -> Sockets {
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
            let agent =
                Agent { peer: peer.clone(), porter: Porter::default(), streams: HashMap::new() };
            (peer.task.clone(), agent)
        });
        let master = Master {
            desk: Desk::new(fresh()),
            fresh,
            agents: agents.collect(),
            journal: Vec::new(),
            asked: Asked::default(),
            events: events.clone(),
        };
        let master = thread::spawn(move || run(master, &inbox, dies_after));
        Sockets { ports, events, master: Some(master) }
    }

    /// The port at which a task finds the protocol.
    pub fn port(&self, task: &str) -> u16 {
        self.ports[&task.parse::<TaskId>().unwrap()]
    }

    /// An attempt is over; what connects from now on is the next one.
    pub fn ended(&self, peer: &Peer) {
        self.events.send(Event::Ended(peer.clone())).unwrap();
    }

    /// Others are members from now on.
    pub fn told(&self, members: &Cluster) {
        self.events.send(Event::Told(members.clone())).unwrap();
    }

    pub fn ask(&self) -> Asked {
        let (sender, answer) = channel();
        self.events.send(Event::Ask(sender)).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    /// Waits until what is known is as it should be.
    pub fn until(&self, what: &str, is: impl Fn(&Asked) -> bool) -> Asked {
        let deadline = Instant::now() + Duration::from_secs(120);
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
        if let Some(master) = self.master.take() {
            let _ = master.join();
        }
    }
}

struct Agent {
    peer: Peer,
    porter: Porter,
    streams: HashMap<Call, TcpStream>,
}

/// What a new master is told, in its order.
enum Entry {
    Kept(Kept),
    Ended(Peer),
    Told(Cluster),
}

struct Master {
    desk: Desk,
    fresh: Fresh,
    agents: BTreeMap<TaskId, Agent>,
    journal: Vec<Entry>,
    asked: Asked,
    events: Sender<Event>,
}

fn run(mut master: Master, inbox: &Receiver<Event>, dies_after: usize) {
    let mut happened = 0;
    let mut idle = Instant::now();
    let mut reminder: Option<(Reminder, Instant)> = None;
    loop {
        // What nobody has heeded is said again when it is time.
        let due = master.desk.reminder();
        if due != reminder.map(|(reminder, _)| reminder) {
            reminder = due.map(|due| (due, Instant::now() + due.after));
        }
        let until = reminder.map_or(idle + IDLE, |(_, at)| at);
        let wait = until.saturating_duration_since(Instant::now());
        let event = match (inbox.recv_timeout(wait), reminder) {
            (Ok(event), _) => event,
            (Err(RecvTimeoutError::Timeout), Some((due, _))) => Event::Remind(due),
            (Err(_), _) => return,
        };
        idle = Instant::now();
        match event {
            Event::Stop => return,
            Event::Ask(sender) => {
                master.asked.missing = master.desk.missing();
                let _ = sender.send(master.asked.clone());
            }
            event => {
                master.on(event);
                happened += 1;
                if dies_after > 0 && happened % dies_after == 0 {
                    master.die();
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
                let (call, up) = agent.porter.accept();
                let peer = agent.peer.clone();
                self.connected(&peer, call, stream, up);
            }
            Event::Bytes(peer, call, bytes) => {
                if let Some(agent) = self.agent(&peer)
                    && let Some(up) = agent.porter.read(call, &bytes)
                {
                    self.hear(&peer, up);
                }
            }
            Event::Closed(peer, call) => {
                if let Some(agent) = self.agent(&peer)
                    && agent.porter.knows(call)
                {
                    let up = agent.porter.close(call);
                    self.hear(&peer, up);
                }
            }
            Event::Ended(peer) => {
                let agent = self.agents.get_mut(&peer.task).unwrap();
                agent.peer.attempt = peer.attempt + 1;
                agent.porter = Porter::default();
                agent.streams.clear();
                let work = self.desk.ended(&peer);
                self.journal.push(Entry::Ended(peer));
                self.work(work);
            }
            Event::Told(members) => {
                let work = self.desk.told(&members);
                self.journal.push(Entry::Told(members));
                self.work(work);
            }
            Event::Remind(reminder) => {
                self.asked.reminded += 1;
                let work = self.desk.remind(reminder);
                self.work(work);
            }
            Event::Ask(_) | Event::Stop => {}
        }
    }

    fn agent(&mut self, peer: &Peer) -> Option<&mut Agent> {
        self.agents.get_mut(&peer.task).filter(|agent| agent.peer == *peer)
    }

    fn connected(&mut self, peer: &Peer, call: Call, stream: TcpStream, up: Up) {
        stream.set_nodelay(true).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let (events, of) = (self.events.clone(), peer.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let bytes = bytes[..length].to_vec();
                if events.send(Event::Bytes(of.clone(), call, bytes)).is_err() {
                    return;
                }
            }
            let _ = events.send(Event::Closed(of, call));
        });
        if let Some(agent) = self.agent(peer) {
            agent.streams.insert(call, stream);
        }
        self.hear(peer, up);
    }

    fn hear(&mut self, peer: &Peer, up: Up) {
        let work = self.desk.hear(peer, up);
        self.work(work);
    }

    fn work(&mut self, work: Work) {
        self.journal.extend(work.keep.into_iter().map(Entry::Kept));
        self.asked.said.extend(work.say);
        let refused = work.refused.into_iter().map(|(_, refusal)| refusal.0);
        self.asked.refused.extend(refused);
        for (task, down) in work.down {
            self.down(&task, down);
        }
    }

    fn down(&mut self, task: &TaskId, down: Down) {
        let agent = self.agents.get_mut(task).unwrap();
        let peer = agent.peer.clone();
        let (errand, up) = agent.porter.hear(down);
        match errand {
            Some(Errand::Write(call, bytes)) => {
                if let Some(stream) = agent.streams.get_mut(&call) {
                    // Who has gone is heard of as a link that has ended.
                    let _ = stream.write_all(&bytes);
                }
            }
            Some(Errand::Close(call)) => {
                if let Some(stream) = agent.streams.remove(&call) {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
            Some(Errand::Dial(call, port)) => match TcpStream::connect((&*peer.host, port)) {
                Ok(stream) => {
                    let up = agent.porter.dialed(call);
                    self.connected(&peer, call, stream, up);
                }
                Err(_) => {
                    let up = agent.porter.close(call);
                    self.hear(&peer, up);
                }
            },
            None => {}
        }
        if let Some(up) = up {
            self.hear(&peer, up);
        }
    }

    fn die(&mut self) {
        self.asked.deaths += 1;
        self.desk = Desk::new((self.fresh)());
        for entry in &self.journal {
            match entry {
                Entry::Kept(kept) => self.desk.replay(kept.clone()),
                Entry::Ended(peer) => _ = self.desk.ended(peer),
                Entry::Told(members) => _ = self.desk.told(members),
            }
        }
        let attached =
            self.agents.values().map(|agent| (agent.peer.clone(), agent.porter.attach()));
        for (peer, ups) in attached.collect::<Vec<_>>() {
            for up in ups {
                self.hear(&peer, up);
            }
        }
    }
}

/// The first attempts of so many tasks of a role, on this machine.
pub fn peers(role: &str, count: u32) -> Vec<Peer> {
    let peer =
        |index| Peer { task: TaskId { role: role.into(), index }, attempt: 1, host: HOST.into() };
    (0..count).map(peer).collect()
}
