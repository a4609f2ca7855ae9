//! Link senders and a link server with failovers, broken sessions and random fragmentation: no byte in either direction
//! is lost or delivered twice.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ydl_core::TaskId;
use ydl_rendezvous::{
    AgentLinks, ClientFrame, ConnId, Effects, LinkId, LinkOutput, LinkRecord, LinkServer, Peer,
    Protocol, Rejection, RetryTimer, ServerFrame, SocketAction,
};

/// A counter shared by all programs. Messages have two bytes:
/// `a n` adds n and responds with the sum, `s n` adds n without a response, `r _` responds with the sum, `w n` responds
/// with `w` when the sum has reached n, `d n` dials port n and sends the number of additions there, now and after each
/// one, `h _` sends `b` there. The number of expired timers is sent there too.
#[derive(Debug, Default)]
struct Counter {
    sum: u64,
    additions: u64,
    waits: BTreeMap<LinkId, u64>,
    tasks: BTreeMap<LinkId, TaskId>,
    listeners: BTreeMap<TaskId, LinkId>,
    dials: u64,
    retries: u64,
}

/// Maximum number of expired timers.
const RETRIES_MAX: u64 = 8;

impl Counter {
    fn add(&mut self, amount: u8, effects: &mut Effects) {
        self.sum += u64::from(amount);
        self.additions += 1;
        for listener in self.listeners.values() {
            effects.send(*listener, self.additions.to_be_bytes());
        }
        let sum = self.sum;
        self.waits.retain(|link, awaited| {
            if *awaited <= sum {
                effects.send(*link, *b"w");
            }
            *awaited > sum
        });
        effects.persist();
    }

    /// Encodes the number of expired timers.
    fn timer_message(&self) -> Vec<u8> {
        [&b"t"[..], &self.retries.to_be_bytes()].concat()
    }
}

impl Protocol for Counter {
    fn max_message_len(&self) -> usize {
        2
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        if matches!(link, LinkId::Dialed(_)) {
            effects.send(link, *b"hello");
            effects.send(link, self.additions.to_be_bytes());
            effects.send(link, self.timer_message());
            self.listeners.insert(peer.task.clone(), link);
            effects.persist();
        } else {
            self.tasks.insert(link, peer.task.clone());
        }
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let [command, amount, ..] = *bytes else {
            return Ok(None);
        };
        match command {
            b'a' => {
                self.add(amount, effects);
                effects.send(link, self.sum.to_be_bytes());
            }
            b's' => self.add(amount, effects),
            b'r' => effects.send(link, self.sum.to_be_bytes()),
            b'w' if self.sum >= u64::from(amount) => effects.send(link, *b"w"),
            b'w' => {
                self.waits.insert(link, u64::from(amount));
            }
            b'd' => {
                let task = self.tasks[&link].clone();
                self.dials += 1;
                let back = LinkId::Dialed(self.dials);
                effects.dial(back, task, u16::from(amount));
                effects.persist();
            }
            b'h' => {
                if let Some(listener) = self.listeners.get(&self.tasks[&link]) {
                    effects.send(*listener, *b"b");
                }
            }
            _ => return Err(Rejection::new("unknown command")),
        }
        Ok(Some(2))
    }

    fn close(&mut self, link: LinkId, _effects: &mut Effects) {
        self.waits.remove(&link);
    }

    fn retry_timer(&self) -> Option<RetryTimer> {
        (self.retries < RETRIES_MAX)
            .then_some(RetryTimer { id: self.retries, delay: Duration::ZERO })
    }

    fn retry(&mut self, effects: &mut Effects) {
        self.retries += 1;
        for listener in self.listeners.values() {
            effects.send(*listener, self.timer_message());
        }
        effects.persist();
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let spread = (self.0 >> 33).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(spread >> 32).unwrap_or(0) % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A program and its agent.
struct Client {
    peer: Peer,
    sender: AgentLinks,
    up: VecDeque<ClientFrame>,
    down: VecDeque<ServerFrame>,
    connection: u64,
    attached: bool,
    dialing: Vec<ConnId>,
    conn: ConnId,
    script: VecDeque<[u8; 2]>,
    /// Bytes written by the program and not yet read by the agent.
    written: VecDeque<u8>,
    /// The pending command and the length of its response.
    awaiting: Option<(u8, usize)>,
    answer: Vec<u8>,
    least: u64,
    back: Vec<u8>,
    added: u64,
}

impl Client {
    fn new(index: u32, rng: &mut Rng) -> Client {
        let mut sender = AgentLinks::default();
        let (conn, _) = sender.accept();
        let commands = [b"a", b"s", b"r", b"w", b"h", b"s", b"a"];
        let mut script: VecDeque<[u8; 2]> = (0..10 + rng.below(20))
            .map(|_| [commands[rng.below(commands.len())][0], 1 + rng.below(3) as u8])
            .collect();
        // A program waits only for a sum that its own additions reach.
        let mut sure = 0;
        for command in &mut script {
            match command[0] {
                b'a' | b's' => sure += command[1],
                b'w' => command[1] = sure,
                _ => {}
            }
        }
        let at = rng.below(script.len());
        script.insert(at, [b'd', 7]);
        let added = script.iter().filter(|command| matches!(command[0], b'a' | b's'));
        Client {
            peer: Peer {
                task: format!("worker:{index}").parse().expect("a task"),
                attempt: 1,
                host: "10.0.0.1".into(),
            },
            added: added.map(|command| u64::from(command[1])).sum(),
            up: sender.attach().into(),
            sender,
            down: VecDeque::new(),
            connection: 1,
            attached: false,
            dialing: Vec::new(),
            conn,
            script,
            written: VecDeque::new(),
            awaiting: None,
            answer: Vec::new(),
            least: 0,
            back: Vec::new(),
        }
    }

    fn write(&mut self) {
        let Some(command) = self.script.pop_front() else {
            return;
        };
        self.written.extend(command);
        self.awaiting = match command[0] {
            b'a' | b'r' => Some((command[0], 8)),
            b'w' => Some((b'w', 1)),
            _ => None,
        };
    }

    fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        if conn != self.conn {
            self.back.extend_from_slice(bytes);
            return;
        }
        self.answer.extend_from_slice(bytes);
        let (command, length) = self.awaiting.expect("a pending command");
        assert!(self.answer.len() <= length, "the response is too long");
        if self.answer.len() < length {
            return;
        }
        let answer = std::mem::take(&mut self.answer);
        self.awaiting = None;
        if command == b'w' {
            assert_eq!(answer, b"w");
            return;
        }
        let number = u64::from_be_bytes(answer.try_into().expect("eight bytes"));
        assert!(number >= self.least, "{number} after {}", self.least);
        self.least = number;
    }

    fn reconnect(&mut self) {
        self.connection += 1;
        self.attached = false;
        self.down.clear();
        self.up = self.sender.attach().into();
    }

    fn is_done(&self) -> bool {
        self.script.is_empty()
            && self.written.is_empty()
            && self.awaiting.is_none()
            && self.dialing.is_empty()
    }
}

/// Output of the server. Frames go over the session that was attached when they were produced, or are dropped: the next
/// session resends them.
struct Pending {
    keep: Vec<LinkRecord>,
    down: Vec<(usize, u64, ServerFrame)>,
}

struct World {
    rng: Rng,
    clients: Vec<Client>,
    server: LinkServer,
    /// Durable records.
    journal: Vec<LinkRecord>,
    /// Output with records that are not durable yet.
    waiting: VecDeque<Pending>,
    failovers: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng(seed);
        let count = 1 + rng.below(4) as u32;
        World {
            clients: (0..count).map(|index| Client::new(index, &mut rng)).collect(),
            rng,
            server: LinkServer::new(Box::<Counter>::default()),
            journal: Vec::new(),
            waiting: VecDeque::new(),
            failovers: 0,
        }
    }

    fn wait(&mut self, output: LinkOutput) {
        assert_eq!(output.rejected, []);
        let mut down = Vec::new();
        for (task, one) in output.frames {
            let which = self.clients.iter().position(|client| client.peer.task == task);
            let which = which.expect("a client");
            if self.clients[which].attached {
                down.push((which, self.clients[which].connection, one));
            }
        }
        let keep = output.records;
        self.waiting.push_back(Pending { keep, down });
    }

    fn step(&mut self, faults: bool) {
        let which = self.rng.below(self.clients.len());
        let client = &mut self.clients[which];
        match self.rng.below(if faults { 14 } else { 12 }) {
            0 | 1 if client.dialing.is_empty() && client.awaiting.is_none() => client.write(),
            0 | 1 => {
                let conn = client.dialing.pop();
                client.up.extend(conn.map(|conn| client.sender.connected(conn)));
            }
            2 | 3 if !client.written.is_empty() => {
                let length = 1 + self.rng.below(client.written.len());
                let bytes: Vec<u8> = client.written.drain(..length).collect();
                client.up.extend(client.sender.read(client.conn, &bytes));
            }
            4..=6 => {
                if let Some(up) = client.up.pop_front() {
                    client.attached |= matches!(up, ClientFrame::Attach(_));
                    let output = self.server.receive(&client.peer, up);
                    self.wait(output);
                }
            }
            7 | 8 => {
                if let Some(pending) = self.waiting.pop_front() {
                    self.journal.extend(pending.keep);
                    for (which, connection, down) in pending.down {
                        if self.clients[which].connection == connection {
                            self.clients[which].down.push_back(down);
                        }
                    }
                }
            }
            9..=11 => {
                if let Some(down) = client.down.pop_front() {
                    let (errand, up) = client.sender.receive(down);
                    client.up.extend(up);
                    match errand {
                        Some(SocketAction::Write(conn, bytes)) => client.receive(conn, &bytes),
                        Some(SocketAction::Dial(conn, port)) => {
                            assert_eq!(port, 7);
                            assert!(!client.dialing.contains(&conn), "duplicate dial");
                            client.dialing.push(conn);
                        }
                        Some(SocketAction::Close(conn)) => panic!("{conn:?} was closed"),
                        None => {}
                    }
                }
            }
            12 if self.rng.one_in(3) => {
                // A new master has only the durable records.
                self.failovers += 1;
                self.waiting.clear();
                self.server = LinkServer::new(Box::<Counter>::default());
                for record in &self.journal {
                    self.server.replay(record.clone());
                }
                self.clients.iter_mut().for_each(Client::reconnect);
            }
            12 => client.reconnect(),
            13 if self.rng.one_in(8) => {
                if let Some(timer) = self.server.retry_timer() {
                    let output = self.server.retry(timer);
                    self.wait(output);
                    // The same timer has no effect twice.
                    let again = self.server.retry(timer);
                    assert!(again.records.is_empty() && again.frames.is_empty());
                }
            }
            _ => {}
        }
    }
}

fn simulate(seed: u64) -> (usize, u64) {
    let mut world = World::new(seed);
    for step in 0..200_000 {
        world.step(step < 600);
        let idle = world.waiting.is_empty()
            && world
                .clients
                .iter()
                .all(|client| client.is_done() && client.up.is_empty() && client.down.is_empty());
        if idle && step >= 600 {
            break;
        }
    }
    let sum: u64 = world.clients.iter().map(|client| client.added).sum();
    let additions = world.journal.iter().filter(
        |record| matches!(record, LinkRecord::Message(_, _, _, bytes) if matches!(bytes[0], b'a' | b's')),
    );
    let additions = additions.count() as u64;
    let retries = world.journal.iter().filter(|record| **record == LinkRecord::RetryDue);
    let retries = retries.count() as u64;
    for client in &world.clients {
        assert!(
            client.is_done(),
            "seed {seed}: {} waits for {:?}",
            client.peer.task,
            client.awaiting
        );
        let mut received = &client.back[..];
        received = received.strip_prefix(b"hello").expect("a greeting");
        let (mut expected, mut times) = (None, None);
        while !received.is_empty() {
            if let Some(rest) = received.strip_prefix(b"b") {
                received = rest;
                continue;
            }
            if let Some(rest) = received.strip_prefix(b"t") {
                let (number, rest) = rest.split_at(8);
                let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
                assert!(times.is_none_or(|times| number == times), "seed {seed}");
                times = Some(number + 1);
                received = rest;
                continue;
            }
            let (number, rest) = received.split_at(8);
            let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
            assert!(expected.is_none_or(|expected| number == expected), "seed {seed}");
            expected = Some(number + 1);
            received = rest;
        }
        assert_eq!(times, Some(retries + 1), "seed {seed}");
        assert_eq!(expected, Some(additions + 1), "seed {seed}: {} missed some", client.peer.task);
    }
    let mut last = LinkServer::new(Box::<Counter>::default());
    world.journal.into_iter().for_each(|record| last.replay(record));
    assert!(
        format!("{last:?}").contains(&format!("sum: {sum},")),
        "seed {seed}: not {sum}: {last:?}"
    );
    (world.failovers, retries)
}

#[test]
fn failovers_are_invisible_to_programs() {
    let (mut failovers, mut retries) = (0, 0);
    for seed in 0..2000 {
        let (failed_over, received) = simulate(seed);
        (failovers, retries) = (failovers + failed_over, retries + received);
    }
    assert!(
        failovers > 2000 && retries > 2000,
        "{failovers} failovers and {retries} times are too few"
    );
}

#[test]
fn buffered_bytes_are_resent_in_bounded_chunks() {
    let mut sender = AgentLinks::default();
    let (conn, _) = sender.accept();
    let (other, _) = sender.accept();
    let value = vec![b's'; 900 << 10];
    for _ in 0..5 {
        sender.read(conn, &value);
    }
    sender.read(other, b"a");
    sender.close(conn);
    let (mut offset, mut closed) = (0, false);
    let ups = sender.attach();
    assert!(matches!(ups[0], ClientFrame::Attach(ref all) if all.len() == 2));
    for up in &ups[1..] {
        match up {
            ClientFrame::Data(of, at, bytes) if *of == conn => {
                assert!(!closed && *at == offset, "{at} after {offset}");
                assert!(!bytes.is_empty() && bytes.len() <= 1 << 20);
                offset += bytes.len() as u64;
            }
            ClientFrame::Closed(of, at) if *of == conn => {
                closed = true;
                assert_eq!(*at, offset);
            }
            ClientFrame::Data(of, 0, bytes) if *of == other => assert_eq!(bytes, b"a"),
            unexpected => panic!("{unexpected:?}"),
        }
    }
    assert_eq!((offset, closed), (5 * (900 << 10), true));
}
