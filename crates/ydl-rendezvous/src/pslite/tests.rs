use std::fmt::Write as _;

use expect_test::expect;

use super::{Command, Control, EMPTY, Meta, Node, Role, Scheduler, members::place};
use crate::{
    Link, Peer,
    trial::{Chance, Trial, peer},
    zmtp::{self, Heard, Session, Socket},
};

/// What a node's sockets do.
struct Client {
    peer: Peer,
    link: Link,
}

fn meta(control: Control, request: bool) -> Vec<u8> {
    let meta = Meta {
        control: Some(control),
        request,
        app: request.then_some(0),
        timestamp: Some(0),
        customer: if request { 0 } else { EMPTY },
    };
    zmtp::message(&meta.write())
}

fn announcement(peer: &Peer, port: u16) -> Vec<u8> {
    let node = Node {
        role: place(&peer.task).unwrap().0,
        id: EMPTY,
        host: peer.host.to_string(),
        port: port.into(),
        is_recovery: false,
        customer: 0,
    };
    let control = Control { command: Command::AddNode, nodes: vec![node], group: 0 };
    meta(control, false)
}

fn barrier(group: i32) -> Vec<u8> {
    let control = Control { command: Command::Barrier, nodes: vec![], group };
    meta(control, true)
}

fn heartbeat(peer: &Peer, id: i32) -> Vec<u8> {
    let node = Node {
        role: place(&peer.task).unwrap().0,
        id,
        host: peer.host.to_string(),
        port: 1,
        is_recovery: false,
        customer: 0,
    };
    let control = Control { command: Command::Heartbeat, nodes: vec![node], group: 0 };
    meta(control, false)
}

fn connect(trial: &mut Trial<Scheduler>, peer: &Peer) -> Client {
    let link = trial.accept(peer);
    assert!(trial.give(link, &zmtp::opening(Socket::Dealer, b"")));
    assert_eq!(trial.heard(link), zmtp::opening(Socket::Router, b""));
    Client { peer: peer.clone(), link }
}

/// The node's port is the attempt and index, so that nobody's is another's.
fn port(peer: &Peer) -> u16 {
    let role = if peer.task.role.as_str() == "server" { 1 } else { 2 };
    (peer.attempt * 10_000 + role * 1000 + peer.task.index) as u16
}

fn announce(trial: &mut Trial<Scheduler>, client: &Client) -> bool {
    trial.give(client.link, &announcement(&client.peer, port(&client.peer)))
}

/// Every dial is answered as the node's ROUTER does.
fn answer_dials(trial: &mut Trial<Scheduler>) -> Vec<(Link, String)> {
    let mut lines = Vec::new();
    for (link, task, _) in std::mem::take(&mut trial.dials) {
        let node = peer(&task.to_string(), 1);
        trial.open(link, &node);
        let mut opening = zmtp::opening(Socket::Dealer, b"ps1");
        assert!(trial.heard(link).starts_with(&opening));
        opening = zmtp::opening(Socket::Router, b"");
        assert!(trial.give(link, &opening));
        lines.push((link, task.to_string()));
    }
    lines
}

/// The messages in these bytes, in words.
fn told(bytes: &[u8]) -> String {
    let mut session = Session::with(Socket::Dealer);
    let opening = zmtp::opening(Socket::Dealer, b"");
    for part in [&opening[..], &opening[64..]] {
        session.take(part, 4096).unwrap().unwrap();
    }
    let (mut at, mut words) = (0, String::new());
    while at < bytes.len() {
        let (length, heard) = session.take(&bytes[at..], 1 << 20).unwrap().unwrap();
        at += length;
        let Heard::Message(frames) = heard else { panic!("{heard:?}") };
        let meta = Meta::read(frames[0]).unwrap();
        assert!(!meta.request);
        let control = meta.control.unwrap();
        write!(words, "{:?}", control.command).unwrap();
        if control.command == Command::Barrier {
            write!(words, " {}", control.group).unwrap();
        }
        for node in control.nodes {
            let again = if node.is_recovery { " again" } else { "" };
            write!(words, " [{} {}:{}{again}]", node.id, node.host, node.port).unwrap();
        }
        words.push('\n');
    }
    words
}

fn everybody(workers: u32, servers: u32) -> Vec<Peer> {
    let of = |role: &'static str, count| (0..count).map(move |i| peer(&format!("{role}:{i}"), 1));
    of("worker", workers).chain(of("server", servers)).collect()
}

/// All are there, and have passed the first barrier. The links over which each is told.
fn gathered(workers: u32, servers: u32) -> (Trial<Scheduler>, Vec<Client>, Vec<(Link, String)>) {
    let mut trial = Trial::of(Scheduler::new(workers, servers));
    let peers = everybody(workers, servers);
    let clients: Vec<Client> = peers.iter().map(|peer| connect(&mut trial, peer)).collect();
    for client in &clients {
        assert!(announce(&mut trial, client));
    }
    let lines = answer_dials(&mut trial);
    for client in &clients {
        assert!(trial.give(client.link, &barrier(7)));
    }
    for (line, _) in &lines {
        assert!(told(&trial.heard(*line)).ends_with("Barrier 7\n"));
    }
    (trial, clients, lines)
}

#[test]
fn a_job_from_its_first_word_to_its_last() {
    let mut trial = Trial::of(Scheduler::new(2, 1));
    assert_eq!(trial.missing(), "server:0 worker:0 worker:1");
    let clients: Vec<Client> =
        ["worker:1", "server:0", "worker:0"].map(|task| connect(&mut trial, &peer(task, 1))).into();
    for client in &clients {
        assert!(announce(&mut trial, client));
    }
    assert_eq!(trial.missing(), "");
    let lines = answer_dials(&mut trial);
    for (line, _) in &lines {
        expect![[r#"
            AddNode [8 10.0.0.7:11000] [9 10.0.0.7:12000] [11 10.0.0.7:12001]
        "#]]
        .assert_eq(&told(&trial.heard(*line)));
    }
    let mut words = String::new();
    // Barriers as MXNet waits at them; between them signs of life.
    for (group, who) in [(7, 0..3), (4, 0..3), (4, 0..3), (7, 0..3)] {
        for client in &clients[who] {
            let worker = client.peer.task.role.as_str() == "worker";
            if group == 7 || worker {
                assert!(trial.give(client.link, &barrier(group)));
                writeln!(words, "missing {}", trial.missing()).unwrap();
            }
        }
        for (line, task) in &lines {
            let heard = told(&trial.heard(*line));
            write!(words, "{task} {}", if heard.is_empty() { "-\n" } else { &heard }).unwrap();
        }
    }
    expect![[r#"
        missing server:0 worker:0
        missing worker:0
        missing 
        worker:1 Barrier 7
        server:0 Barrier 7
        worker:0 Barrier 7
        missing worker:0
        missing 
        worker:1 Barrier 4
        server:0 -
        worker:0 Barrier 4
        missing worker:0
        missing 
        worker:1 Barrier 4
        server:0 -
        worker:0 Barrier 4
        missing server:0 worker:0
        missing worker:0
        missing 
        worker:1 Barrier 7
        server:0 Barrier 7
        worker:0 Barrier 7
    "#]]
    .assert_eq(&words);
    let id = place(&clients[0].peer.task).unwrap().1;
    assert!(trial.give(clients[0].link, &heartbeat(&clients[0].peer, id)));
    assert_eq!(told(&trial.heard(lines[0].0)), "Heartbeat [1 :0]\n");
    assert!(trial.refused.is_empty() && trial.closed.is_empty() && trial.said.is_empty());
}

#[test]
fn jobs_of_every_size_gather() {
    for (workers, servers) in [(1, 1), (2, 1), (5, 3), (9, 9)] {
        let (trial, ..) = gathered(workers, servers);
        assert_eq!(trial.missing(), "");
        assert!(trial.refused.is_empty());
    }
}

#[test]
fn a_replacement_is_told_of_all_and_the_others_of_it() {
    let (mut trial, clients, lines) = gathered(2, 1);
    trial.ended(&clients[1].peer);
    assert_eq!(trial.missing(), "worker:1");
    assert!(!announce(&mut trial, &clients[1]), "its links ended with it");

    let second = connect(&mut trial, &peer("worker:1", 2));
    assert!(announce(&mut trial, &second));
    let [(line, _)] = &answer_dials(&mut trial)[..] else { panic!("one is dialed") };
    expect![[r#"
        AddNode [8 10.0.0.7:11000] [9 10.0.0.7:12000] [11 10.0.0.7:22001 again]
    "#]]
    .assert_eq(&told(&trial.heard(*line)));
    let alive = lines.iter().filter(|(_, task)| task != "worker:1");
    for (line, _) in alive {
        assert_eq!(told(&trial.heard(*line)), "AddNode [11 10.0.0.7:22001 again]\n");
    }
    assert!(trial.give(clients[0].link, &barrier(4)));
    assert!(trial.give(second.link, &barrier(4)));
    assert_eq!(told(&trial.heard(*line)), "Barrier 4\n");
}

#[test]
fn who_is_replaced_before_the_first_barrier_is_no_replacement() {
    let mut trial = Trial::of(Scheduler::new(2, 1));
    let clients: Vec<Client> =
        everybody(2, 1).iter().map(|peer| connect(&mut trial, peer)).collect();
    for client in &clients {
        announce(&mut trial, client);
    }
    answer_dials(&mut trial);
    assert!(trial.give(clients[0].link, &barrier(7)));
    assert!(trial.give(clients[1].link, &barrier(7)));
    trial.ended(&clients[1].peer);
    let second = connect(&mut trial, &peer("worker:1", 2));
    announce(&mut trial, &second);
    let lines = answer_dials(&mut trial);
    assert!(!told(&trial.heard(lines[0].0)).contains("again"));
    assert!(trial.give(clients[2].link, &barrier(7)));
    assert_eq!(trial.missing(), "worker:1", "the first attempt's barrier is not the second's");
    assert!(trial.give(second.link, &barrier(7)));
    assert_eq!(told(&trial.heard(lines[0].0)), "Barrier 7\n");
}

#[test]
fn nobody_is_told_anything_while_a_second_one_is_missing() {
    let (mut trial, clients, lines) = gathered(3, 1);
    trial.ended(&clients[0].peer);
    trial.ended(&clients[1].peer);
    let first = connect(&mut trial, &peer("worker:0", 2));
    announce(&mut trial, &first);
    let line = answer_dials(&mut trial)[0].0;
    assert_eq!(told(&trial.heard(line)), "");
    assert_eq!(trial.missing(), "worker:1");
    let second = connect(&mut trial, &peer("worker:1", 2));
    announce(&mut trial, &second);
    assert_eq!(told(&trial.heard(line)).matches('[').count(), 4);
    assert_eq!(told(&trial.heard(lines[2].0)).matches('[').count(), 2);
}

#[test]
fn a_second_customer_changes_nothing() {
    let (mut trial, clients, lines) = gathered(2, 1);
    assert!(announce(&mut trial, &clients[0]));
    let more = connect(&mut trial, &clients[0].peer);
    assert!(announce(&mut trial, &more));
    assert!(trial.dials.is_empty() && trial.refused.is_empty());
    assert_eq!(trial.heard(lines[0].0), b"");
}

#[test]
fn strangers_end_their_own_link_and_nobody_else_notices() {
    let (mut trial, clients, lines) = gathered(2, 1);
    let refused = |trial: &mut Trial<Scheduler>, peer: &Peer, bytes: &[u8]| {
        let link = trial.accept(peer);
        let opened = trial.give(link, &zmtp::opening(Socket::Dealer, b""));
        assert!(!opened || !trial.give(link, bytes));
    };
    let worker = peer("worker:1", 1);
    let server = peer("server:0", 1);
    refused(&mut trial, &peer("worker:2", 1), b"");
    refused(&mut trial, &peer("chief:0", 1), b"");
    refused(&mut trial, &worker, &announcement(&server, 11_000));
    refused(&mut trial, &worker, &announcement(&worker, 4));
    refused(&mut trial, &worker, &announcement(&worker, 0));
    let elsewhere = Peer { host: "10.0.0.8".into(), ..worker.clone() };
    refused(&mut trial, &worker, &announcement(&elsewhere, 12_001));
    let taken = port(&clients[0].peer);
    refused(&mut trial, &peer("worker:1", 2), &announcement(&worker, taken));
    refused(&mut trial, &worker, &heartbeat(&worker, 9));
    refused(&mut trial, &worker, &barrier(2));
    refused(&mut trial, &worker, &barrier(8 + 4));
    refused(&mut trial, &worker, &barrier(-1));
    refused(&mut trial, &worker, &zmtp::message(&[]));
    let link = trial.accept(&worker);
    assert!(!trial.give(link, &zmtp::opening(Socket::Dealer, b"ps9")));
    expect![[r#"
        worker:2 is neither a server nor a worker of this round
        chief:0 is neither a server nor a worker of this round
        worker:1 says that it is another
        worker:1 announces a second port
        worker:1 announces the port `0`
        worker:1 announces another address than `10.0.0.7`, that of its node
        worker:1 announces the port of worker:0
        worker:1 says that it is another
        worker:1 waits at a barrier of the group 2, which is not its
        worker:1 waits at a barrier of the group 12, which is not its
        worker:1 waits at a barrier of the group 0, which is not its
        worker:1 sends data to the scheduler
        worker:1 says that it is another"#]]
    .assert_eq(&trial.refused.join("\n"));
    // The attempt that is there is still there, and a later one takes its place.
    assert!(trial.give(clients[1].link, &barrier(4)));
    assert!(trial.give(clients[0].link, &barrier(4)));
    assert_eq!(told(&trial.heard(lines[0].0)), "Barrier 4\n");
    let third = connect(&mut trial, &peer("worker:1", 3));
    assert!(announce(&mut trial, &third));
    refused(&mut trial, &peer("worker:1", 2), &announcement(&worker, 12_001));
    assert_eq!(trial.refused.last().unwrap(), "attempt 2 of worker:1 is over");
}

#[test]
fn a_node_that_does_not_listen_is_named() {
    let mut trial = Trial::of(Scheduler::new(1, 1));
    let worker = connect(&mut trial, &peer("worker:0", 1));
    announce(&mut trial, &worker);
    let (link, ..) = trial.dials.remove(0);
    trial.close(link);
    assert_eq!(trial.said, ["worker:0 announced port 12000, but nothing answers there"]);
    assert_eq!(trial.missing(), "server:0 worker:0");
}

/// A whole job as pieces of bytes: which client says what, in order.
fn script(workers: u32, servers: u32) -> Vec<(usize, Vec<u8>)> {
    let peers = everybody(workers, servers);
    let mut script = Vec::new();
    for (who, peer) in peers.iter().enumerate() {
        script.push((who, zmtp::opening(Socket::Dealer, b"")));
        script.push((who, announcement(peer, port(peer))));
    }
    for group in [7, 4, 4, 7] {
        for (who, peer) in peers.iter().enumerate() {
            if group == 7 || place(&peer.task).unwrap().0 == Role::Worker {
                script.push((who, barrier(group)));
                script.push((who, heartbeat(peer, place(&peer.task).unwrap().1)));
            }
        }
    }
    script
}

/// What everybody has heard in the end, if each part is given in pieces, and the master dies after each with that chance.
fn played(mut chance: Option<Chance>, deaths: usize) -> Vec<Vec<u8>> {
    let (workers, servers) = (3, 2);
    let mut trial = Trial::of(Scheduler::new(workers, servers));
    let links: Vec<Link> =
        everybody(workers, servers).iter().map(|peer| trial.accept(peer)).collect();
    for (who, bytes) in script(workers, servers) {
        let pieces = chance.as_mut().map_or(vec![&bytes[..]], |chance| chance.cut(&bytes));
        for piece in pieces {
            assert!(trial.give(links[who], piece), "{:?}", trial.refused);
            if deaths > 0 && chance.as_mut().is_some_and(|chance| chance.below(deaths) == 0) {
                trial.moved_to(Scheduler::new(workers, servers));
            }
        }
        for (link, task, _) in std::mem::take(&mut trial.dials) {
            trial.open(link, &peer(&task.to_string(), 1));
            trial.give(link, &zmtp::opening(Socket::Router, b""));
        }
    }
    let dialed = (0..u64::from(workers + servers)).map(Link::Dialed);
    links.into_iter().chain(dialed).map(|link| trial.heard(link)).collect()
}

#[test]
fn pieces_and_masters_that_die_between_them_change_nothing() {
    let whole = played(None, 0);
    for seed in 0..100 {
        assert_eq!(played(Some(Chance(seed)), 0), whole, "{seed}");
        assert_eq!(played(Some(Chance(seed)), 10), whole, "{seed}");
    }
}

#[test]
fn spoiled_bytes_harm_nobody_but_who_sends_them() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let (mut trial, clients, lines) = gathered(2, 1);
        for _ in 0..20 {
            let link = trial.accept(&peer("worker:1", 1));
            let mut bytes = zmtp::opening(Socket::Dealer, b"");
            bytes.extend(announcement(&clients[1].peer, port(&clients[1].peer)));
            bytes.extend(heartbeat(&clients[1].peer, 11));
            let bytes = chance.spoil(&bytes);
            for piece in chance.cut(&bytes) {
                trial.give(link, piece);
            }
        }
        assert!(trial.give(clients[0].link, &barrier(4)));
        assert!(trial.give(clients[1].link, &barrier(4)));
        assert_eq!(told(&trial.heard(lines[0].0)), "Barrier 4\n", "{seed}");
    }
}
