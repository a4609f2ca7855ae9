//! Porters and a server, with a master that dies, connections that break, and pieces of every length: nothing that a
//! program said is lost or counted twice, and nothing that it is told comes twice or not at all.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ydl_core::TaskId;
use ydl_rendezvous::{
    ClientFrame, ConnId, Effects, LinkId, LinkOutput, LinkRecord, LinkSender, LinkServer, Peer,
    Protocol, Rejection, RetryTimer, ServerFrame, SocketAction,
};

/// A number that all programs add to. Messages have two bytes:
/// `a n` adds and is told the sum, `s n` adds and is told nothing, `r _` is told the sum, `w n` is told `w` when the sum
/// has reached n, `d n` wants to be called back on port n and to be told there how many additions there were, now and at
/// each of them, `h _` is told `b` over there. How often it was time to say something again is told there, too.
#[derive(Debug, Default)]
struct Sum {
    sum: u64,
    additions: u64,
    waits: BTreeMap<LinkId, u64>,
    tasks: BTreeMap<LinkId, TaskId>,
    listeners: BTreeMap<TaskId, LinkId>,
    dials: u64,
    reminded: u64,
}

/// So often it is time.
const REMINDED_MAX: u64 = 8;

impl Sum {
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

    /// How often it was time.
    fn now(&self) -> Vec<u8> {
        [&b"t"[..], &self.reminded.to_be_bytes()].concat()
    }
}

impl Protocol for Sum {
    fn max_message_len(&self) -> usize {
        2
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        if matches!(link, LinkId::Dialed(_)) {
            effects.send(link, *b"hello");
            effects.send(link, self.additions.to_be_bytes());
            effects.send(link, self.now());
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
        let [word, amount, ..] = *bytes else {
            return Ok(None);
        };
        match word {
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
            _ => return Err(Rejection::new("no word of ours")),
        }
        Ok(Some(2))
    }

    fn close(&mut self, link: LinkId, _reaction: &mut Effects) {
        self.waits.remove(&link);
    }

    fn retry_timer(&self) -> Option<RetryTimer> {
        (self.reminded < REMINDED_MAX)
            .then_some(RetryTimer { id: self.reminded, delay: Duration::ZERO })
    }

    fn retry(&mut self, effects: &mut Effects) {
        self.reminded += 1;
        for listener in self.listeners.values() {
            effects.send(*listener, self.now());
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

/// A program and the agent beside it.
struct Side {
    peer: Peer,
    sender: LinkSender,
    up: VecDeque<ClientFrame>,
    down: VecDeque<ServerFrame>,
    connection: u64,
    attached: bool,
    dialing: Vec<ConnId>,
    conn: ConnId,
    script: VecDeque<[u8; 2]>,
    /// Bytes that the program has written and the agent has not read.
    written: VecDeque<u8>,
    /// How many bytes of answer are outstanding, and to what.
    awaiting: Option<(u8, usize)>,
    answer: Vec<u8>,
    least: u64,
    back: Vec<u8>,
    added: u64,
}

impl Side {
    fn new(index: u32, rng: &mut Rng) -> Side {
        let mut sender = LinkSender::default();
        let (conn, _) = sender.accept();
        let words = [b"a", b"s", b"r", b"w", b"h", b"s", b"a"];
        let mut script: VecDeque<[u8; 2]> = (0..10 + rng.below(20))
            .map(|_| [words[rng.below(words.len())][0], 1 + rng.below(3) as u8])
            .collect();
        // Nobody waits for more than he and the others are sure to add.
        let mut sure = 0;
        for word in &mut script {
            match word[0] {
                b'a' | b's' => sure += word[1],
                b'w' => word[1] = sure,
                _ => {}
            }
        }
        let at = rng.below(script.len());
        script.insert(at, [b'd', 7]);
        let added = script.iter().filter(|word| matches!(word[0], b'a' | b's'));
        Side {
            peer: Peer {
                task: format!("worker:{index}").parse().expect("a task"),
                attempt: 1,
                host: "10.0.0.1".into(),
            },
            added: added.map(|word| u64::from(word[1])).sum(),
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
        let Some(word) = self.script.pop_front() else {
            return;
        };
        self.written.extend(word);
        self.awaiting = match word[0] {
            b'a' | b'r' => Some((word[0], 8)),
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
        let (word, length) = self.awaiting.expect("nothing is said unasked");
        assert!(self.answer.len() <= length, "told more than was asked");
        if self.answer.len() < length {
            return;
        }
        let answer = std::mem::take(&mut self.answer);
        self.awaiting = None;
        if word == b'w' {
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

/// What is told goes over the connection that there was when it was said, or nowhere: an agent that comes again is told
/// anew what it has not heard.
struct Pending {
    keep: Vec<LinkRecord>,
    down: Vec<(usize, u64, ServerFrame)>,
}

struct World {
    rng: Rng,
    sides: Vec<Side>,
    server: LinkServer,
    /// Written down for good.
    journal: Vec<LinkRecord>,
    /// Neither written down nor said yet.
    waiting: VecDeque<Pending>,
    deaths: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng(seed);
        let count = 1 + rng.below(4) as u32;
        World {
            sides: (0..count).map(|index| Side::new(index, &mut rng)).collect(),
            rng,
            server: LinkServer::new(Box::<Sum>::default()),
            journal: Vec::new(),
            waiting: VecDeque::new(),
            deaths: 0,
        }
    }

    fn wait(&mut self, output: LinkOutput) {
        assert_eq!(output.rejected, []);
        let mut down = Vec::new();
        for (task, one) in output.frames {
            let which = self.sides.iter().position(|side| side.peer.task == task);
            let which = which.expect("a side");
            if self.sides[which].attached {
                down.push((which, self.sides[which].connection, one));
            }
        }
        let keep = output.records;
        self.waiting.push_back(Pending { keep, down });
    }

    fn step(&mut self, faults: bool) {
        let which = self.rng.below(self.sides.len());
        let side = &mut self.sides[which];
        match self.rng.below(if faults { 14 } else { 12 }) {
            0 | 1 if side.dialing.is_empty() && side.awaiting.is_none() => side.write(),
            0 | 1 => {
                let conn = side.dialing.pop();
                side.up.extend(conn.map(|conn| side.sender.connected(conn)));
            }
            2 | 3 if !side.written.is_empty() => {
                let length = 1 + self.rng.below(side.written.len());
                let bytes: Vec<u8> = side.written.drain(..length).collect();
                side.up.extend(side.sender.read(side.conn, &bytes));
            }
            4..=6 => {
                if let Some(up) = side.up.pop_front() {
                    side.attached |= matches!(up, ClientFrame::Attach(_));
                    let output = self.server.receive(&side.peer, up);
                    self.wait(output);
                }
            }
            7 | 8 => {
                if let Some(pending) = self.waiting.pop_front() {
                    self.journal.extend(pending.keep);
                    for (which, connection, down) in pending.down {
                        if self.sides[which].connection == connection {
                            self.sides[which].down.push_back(down);
                        }
                    }
                }
            }
            9..=11 => {
                if let Some(down) = side.down.pop_front() {
                    let (errand, up) = side.sender.receive(down);
                    side.up.extend(up);
                    match errand {
                        Some(SocketAction::Write(conn, bytes)) => side.receive(conn, &bytes),
                        Some(SocketAction::Dial(conn, port)) => {
                            assert_eq!(port, 7);
                            assert!(!side.dialing.contains(&conn), "twice at once");
                            side.dialing.push(conn);
                        }
                        Some(SocketAction::Close(conn)) => panic!("{conn:?} was closed"),
                        None => {}
                    }
                }
            }
            12 if self.rng.one_in(3) => {
                // A new master has what is written down, and nothing else.
                self.deaths += 1;
                self.waiting.clear();
                self.server = LinkServer::new(Box::<Sum>::default());
                for record in &self.journal {
                    self.server.replay(record.clone());
                }
                self.sides.iter_mut().for_each(Side::reconnect);
            }
            12 => side.reconnect(),
            13 if self.rng.one_in(8) => {
                if let Some(reminder) = self.server.retry_timer() {
                    let output = self.server.retry(reminder);
                    self.wait(output);
                    // OutputItem already, and nothing of it twice.
                    let again = self.server.retry(reminder);
                    assert!(again.records.is_empty() && again.frames.is_empty());
                }
            }
            _ => {}
        }
    }
}

fn live(seed: u64) -> (usize, u64) {
    let mut world = World::new(seed);
    for step in 0..200_000 {
        world.step(step < 600);
        let quiet = world.waiting.is_empty()
            && world
                .sides
                .iter()
                .all(|side| side.is_done() && side.up.is_empty() && side.down.is_empty());
        if quiet && step >= 600 {
            break;
        }
    }
    let sum: u64 = world.sides.iter().map(|side| side.added).sum();
    let additions = world.journal.iter().filter(
        |record| matches!(record, LinkRecord::Message(_, _, _, bytes) if matches!(bytes[0], b'a' | b's')),
    );
    let additions = additions.count() as u64;
    let reminded = world.journal.iter().filter(|record| **record == LinkRecord::RetryDue);
    let reminded = reminded.count() as u64;
    for side in &world.sides {
        assert!(side.is_done(), "seed {seed}: {} waits for {:?}", side.peer.task, side.awaiting);
        let mut told = &side.back[..];
        told = told.strip_prefix(b"hello").expect("a greeting");
        let (mut expected, mut times) = (None, None);
        while !told.is_empty() {
            if let Some(rest) = told.strip_prefix(b"b") {
                told = rest;
                continue;
            }
            if let Some(rest) = told.strip_prefix(b"t") {
                let (number, rest) = rest.split_at(8);
                let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
                assert!(times.is_none_or(|times| number == times), "seed {seed}");
                times = Some(number + 1);
                told = rest;
                continue;
            }
            let (number, rest) = told.split_at(8);
            let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
            assert!(expected.is_none_or(|expected| number == expected), "seed {seed}");
            expected = Some(number + 1);
            told = rest;
        }
        assert_eq!(times, Some(reminded + 1), "seed {seed}");
        assert_eq!(expected, Some(additions + 1), "seed {seed}: {} missed some", side.peer.task);
    }
    let mut last = LinkServer::new(Box::<Sum>::default());
    world.journal.into_iter().for_each(|record| last.replay(record));
    assert!(
        format!("{last:?}").contains(&format!("sum: {sum},")),
        "seed {seed}: not {sum}: {last:?}"
    );
    (world.deaths, reminded)
}

#[test]
fn programs_notice_nothing_of_masters_that_die() {
    let (mut deaths, mut reminded) = (0, 0);
    for seed in 0..2000 {
        let (died, told) = live(seed);
        (deaths, reminded) = (deaths + died, reminded + told);
    }
    assert!(
        deaths > 2000 && reminded > 2000,
        "{deaths} deaths and {reminded} times are too few to show anything"
    );
}

#[test]
fn what_is_held_for_a_master_goes_to_it_in_pieces_that_it_takes() {
    let mut sender = LinkSender::default();
    let (conn, _) = sender.accept();
    let (other, _) = sender.accept();
    let value = vec![b's'; 900 << 10];
    for _ in 0..5 {
        sender.read(conn, &value);
    }
    sender.read(other, b"a");
    sender.close(conn);
    let (mut heard, mut over) = (0, false);
    let ups = sender.attach();
    assert!(matches!(ups[0], ClientFrame::Attach(ref all) if all.len() == 2));
    for up in &ups[1..] {
        match up {
            ClientFrame::Data(of, at, bytes) if *of == conn => {
                assert!(!over && *at == heard, "{at} after {heard}");
                assert!(!bytes.is_empty() && bytes.len() <= 1 << 20);
                heard += bytes.len() as u64;
            }
            ClientFrame::Closed(of, at) if *of == conn => {
                over = true;
                assert_eq!(*at, heard);
            }
            ClientFrame::Data(of, 0, bytes) if *of == other => assert_eq!(bytes, b"a"),
            unexpected => panic!("{unexpected:?}"),
        }
    }
    assert_eq!((heard, over), (5 * (900 << 10), true));
}
