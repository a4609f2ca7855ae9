use std::fmt::Write as _;

use expect_test::expect;

use super::{
    EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole, PsScheduler, members::node_identity,
};
use crate::{
    LinkId, Peer,
    harness::{ProtocolHarness, Rng, peer},
    zmtp::{self, SocketType, ZmtpEvent, ZmtpSession},
};

/// The sending socket of a node.
struct Client {
    peer: Peer,
    link: LinkId,
}

fn meta(control: PsControl, request: bool) -> Vec<u8> {
    let meta = PsMeta {
        control: Some(control),
        request,
        app: request.then_some(0),
        timestamp: Some(0),
        customer: if request { 0 } else { EMPTY },
    };
    zmtp::message(&meta.write())
}

fn announcement(peer: &Peer, port: u16) -> Vec<u8> {
    let node = PsNode {
        role: node_identity(&peer.task).unwrap().0,
        id: EMPTY,
        host: peer.host.to_string(),
        port: port.into(),
        is_recovery: false,
        customer: 0,
    };
    let control = PsControl { command: PsCommand::AddNode, nodes: vec![node], group: 0 };
    meta(control, false)
}

fn barrier(group: i32) -> Vec<u8> {
    let control = PsControl { command: PsCommand::Barrier, nodes: vec![], group };
    meta(control, true)
}

fn heartbeat(peer: &Peer, id: i32) -> Vec<u8> {
    let node = PsNode {
        role: node_identity(&peer.task).unwrap().0,
        id,
        host: peer.host.to_string(),
        port: 1,
        is_recovery: false,
        customer: 0,
    };
    let control = PsControl { command: PsCommand::Heartbeat, nodes: vec![node], group: 0 };
    meta(control, false)
}

fn connect(harness: &mut ProtocolHarness<PsScheduler>, peer: &Peer) -> Client {
    let link = harness.accept(peer);
    assert!(harness.feed(link, &zmtp::handshake(SocketType::Dealer, b"")));
    assert_eq!(harness.take_sent(link), zmtp::handshake(SocketType::Router, b""));
    Client { peer: peer.clone(), link }
}

/// Returns a port that is unique to a node and its attempt.
fn port(peer: &Peer) -> u16 {
    let role = if peer.task.role.as_str() == "server" { 1 } else { 2 };
    (peer.attempt * 10_000 + role * 1000 + peer.task.index) as u16
}

fn announce(harness: &mut ProtocolHarness<PsScheduler>, client: &Client) -> bool {
    harness.feed(client.link, &announcement(&client.peer, port(&client.peer)))
}

/// Accepts every dial, as the node's ROUTER does.
fn accept_dials(harness: &mut ProtocolHarness<PsScheduler>) -> Vec<(LinkId, String)> {
    let mut lines = Vec::new();
    for (link, task, _) in std::mem::take(&mut harness.dials) {
        let node = peer(&task.to_string(), 1);
        harness.open(link, &node);
        let mut opening = zmtp::handshake(SocketType::Dealer, b"ps1");
        assert!(harness.take_sent(link).starts_with(&opening));
        opening = zmtp::handshake(SocketType::Router, b"");
        assert!(harness.feed(link, &opening));
        lines.push((link, task.to_string()));
    }
    lines
}

/// Describes the messages in `bytes`.
fn describe(bytes: &[u8]) -> String {
    let mut session = ZmtpSession::new(SocketType::Dealer);
    let opening = zmtp::handshake(SocketType::Dealer, b"");
    for part in [&opening[..], &opening[64..]] {
        session.receive(part, 4096).unwrap().unwrap();
    }
    let (mut at, mut words) = (0, String::new());
    while at < bytes.len() {
        let (length, event) = session.receive(&bytes[at..], 1 << 20).unwrap().unwrap();
        at += length;
        let ZmtpEvent::Message(frames) = event else { panic!("{event:?}") };
        let meta = PsMeta::parse(frames[0]).unwrap();
        assert!(!meta.request);
        let control = meta.control.unwrap();
        write!(words, "{:?}", control.command).unwrap();
        if control.command == PsCommand::Barrier {
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

fn all_peers(workers: u32, servers: u32) -> Vec<Peer> {
    let of = |role: &'static str, count| (0..count).map(move |i| peer(&format!("{role}:{i}"), 1));
    of("worker", workers).chain(of("server", servers)).collect()
}

/// Starts a job: all nodes have passed the first barrier. Returns the links to the nodes too.
fn started(
    workers: u32,
    servers: u32,
) -> (ProtocolHarness<PsScheduler>, Vec<Client>, Vec<(LinkId, String)>) {
    let mut harness = ProtocolHarness::new(PsScheduler::new(workers, servers));
    let peers = all_peers(workers, servers);
    let clients: Vec<Client> = peers.iter().map(|peer| connect(&mut harness, peer)).collect();
    for client in &clients {
        assert!(announce(&mut harness, client));
    }
    let lines = accept_dials(&mut harness);
    for client in &clients {
        assert!(harness.feed(client.link, &barrier(7)));
    }
    for (line, _) in &lines {
        assert!(describe(&harness.take_sent(*line)).ends_with("Barrier 7\n"));
    }
    (harness, clients, lines)
}

#[test]
fn a_job_registers_and_passes_its_barriers() {
    let mut harness = ProtocolHarness::new(PsScheduler::new(2, 1));
    assert_eq!(harness.missing(), "server:0 worker:0 worker:1");
    let clients: Vec<Client> = ["worker:1", "server:0", "worker:0"]
        .map(|task| connect(&mut harness, &peer(task, 1)))
        .into();
    for client in &clients {
        assert!(announce(&mut harness, client));
    }
    assert_eq!(harness.missing(), "");
    let lines = accept_dials(&mut harness);
    for (line, _) in &lines {
        expect![[r#"
            AddNode [8 10.0.0.7:11000] [9 10.0.0.7:12000] [11 10.0.0.7:12001]
        "#]]
        .assert_eq(&describe(&harness.take_sent(*line)));
    }
    let mut words = String::new();
    // The barriers of MXNet, with heartbeats between them.
    for (group, index) in [(7, 0..3), (4, 0..3), (4, 0..3), (7, 0..3)] {
        for client in &clients[index] {
            let worker = client.peer.task.role.as_str() == "worker";
            if group == 7 || worker {
                assert!(harness.feed(client.link, &barrier(group)));
                writeln!(words, "missing {}", harness.missing()).unwrap();
            }
        }
        for (line, task) in &lines {
            let event = describe(&harness.take_sent(*line));
            write!(words, "{task} {}", if event.is_empty() { "-\n" } else { &event }).unwrap();
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
    let id = node_identity(&clients[0].peer.task).unwrap().1;
    assert!(harness.feed(clients[0].link, &heartbeat(&clients[0].peer, id)));
    assert_eq!(describe(&harness.take_sent(lines[0].0)), "Heartbeat [1 :0]\n");
    assert!(harness.rejected.is_empty() && harness.closed.is_empty() && harness.log.is_empty());
}

#[test]
fn jobs_of_every_size_start() {
    for (workers, servers) in [(1, 1), (2, 1), (5, 3), (9, 9)] {
        let (harness, ..) = started(workers, servers);
        assert_eq!(harness.missing(), "");
        assert!(harness.rejected.is_empty());
    }
}

#[test]
fn a_replacement_receives_all_nodes_and_the_others_receive_it() {
    let (mut harness, clients, lines) = started(2, 1);
    harness.attempt_ended(&clients[1].peer);
    assert_eq!(harness.missing(), "worker:1");
    assert!(!announce(&mut harness, &clients[1]), "its links ended with it");

    let second = connect(&mut harness, &peer("worker:1", 2));
    assert!(announce(&mut harness, &second));
    let [(line, _)] = &accept_dials(&mut harness)[..] else { panic!("one is dialed") };
    expect![[r#"
        AddNode [8 10.0.0.7:11000] [9 10.0.0.7:12000] [11 10.0.0.7:22001 again]
    "#]]
    .assert_eq(&describe(&harness.take_sent(*line)));
    let others = lines.iter().filter(|(_, task)| task != "worker:1");
    for (line, _) in others {
        assert_eq!(describe(&harness.take_sent(*line)), "AddNode [11 10.0.0.7:22001 again]\n");
    }
    assert!(harness.feed(clients[0].link, &barrier(4)));
    assert!(harness.feed(second.link, &barrier(4)));
    assert_eq!(describe(&harness.take_sent(*line)), "Barrier 4\n");
}

#[test]
fn a_node_restarted_before_the_first_barrier_is_not_a_replacement() {
    let mut harness = ProtocolHarness::new(PsScheduler::new(2, 1));
    let clients: Vec<Client> =
        all_peers(2, 1).iter().map(|peer| connect(&mut harness, peer)).collect();
    for client in &clients {
        announce(&mut harness, client);
    }
    accept_dials(&mut harness);
    assert!(harness.feed(clients[0].link, &barrier(7)));
    assert!(harness.feed(clients[1].link, &barrier(7)));
    harness.attempt_ended(&clients[1].peer);
    let second = connect(&mut harness, &peer("worker:1", 2));
    announce(&mut harness, &second);
    let lines = accept_dials(&mut harness);
    assert!(!describe(&harness.take_sent(lines[0].0)).contains("again"));
    assert!(harness.feed(clients[2].link, &barrier(7)));
    assert_eq!(harness.missing(), "worker:1", "the first attempt's barrier is not the second's");
    assert!(harness.feed(second.link, &barrier(7)));
    assert_eq!(describe(&harness.take_sent(lines[0].0)), "Barrier 7\n");
}

#[test]
fn node_lists_are_held_back_while_a_node_is_missing() {
    let (mut harness, clients, lines) = started(3, 1);
    harness.attempt_ended(&clients[0].peer);
    harness.attempt_ended(&clients[1].peer);
    let first = connect(&mut harness, &peer("worker:0", 2));
    announce(&mut harness, &first);
    let line = accept_dials(&mut harness)[0].0;
    assert_eq!(describe(&harness.take_sent(line)), "");
    assert_eq!(harness.missing(), "worker:1");
    let second = connect(&mut harness, &peer("worker:1", 2));
    announce(&mut harness, &second);
    assert_eq!(describe(&harness.take_sent(line)).matches('[').count(), 4);
    assert_eq!(describe(&harness.take_sent(lines[2].0)).matches('[').count(), 2);
}

#[test]
fn a_second_customer_of_a_node_has_no_effect() {
    let (mut harness, clients, lines) = started(2, 1);
    assert!(announce(&mut harness, &clients[0]));
    let more = connect(&mut harness, &clients[0].peer);
    assert!(announce(&mut harness, &more));
    assert!(harness.dials.is_empty() && harness.rejected.is_empty());
    assert_eq!(harness.take_sent(lines[0].0), b"");
}

#[test]
fn invalid_messages_close_only_their_own_link() {
    let (mut harness, clients, lines) = started(2, 1);
    let reject = |harness: &mut ProtocolHarness<PsScheduler>, peer: &Peer, bytes: &[u8]| {
        let link = harness.accept(peer);
        let opened = harness.feed(link, &zmtp::handshake(SocketType::Dealer, b""));
        assert!(!opened || !harness.feed(link, bytes));
    };
    let worker = peer("worker:1", 1);
    let server = peer("server:0", 1);
    reject(&mut harness, &peer("worker:2", 1), b"");
    reject(&mut harness, &peer("chief:0", 1), b"");
    reject(&mut harness, &worker, &announcement(&server, 11_000));
    reject(&mut harness, &worker, &announcement(&worker, 4));
    reject(&mut harness, &worker, &announcement(&worker, 0));
    let elsewhere = Peer { host: "10.0.0.8".into(), ..worker.clone() };
    reject(&mut harness, &worker, &announcement(&elsewhere, 12_001));
    let taken = port(&clients[0].peer);
    reject(&mut harness, &peer("worker:1", 2), &announcement(&worker, taken));
    reject(&mut harness, &worker, &heartbeat(&worker, 9));
    reject(&mut harness, &worker, &barrier(2));
    reject(&mut harness, &worker, &barrier(8 + 4));
    reject(&mut harness, &worker, &barrier(-1));
    reject(&mut harness, &worker, &zmtp::message(&[]));
    let link = harness.accept(&worker);
    assert!(!harness.feed(link, &zmtp::handshake(SocketType::Dealer, b"ps9")));
    expect![[r#"
        worker:2 is neither a server nor a worker of this round
        chief:0 is neither a server nor a worker of this round
        worker:1 identified itself as another node
        worker:1 registered a second port
        worker:1 registered the invalid port `0`
        worker:1 registered an address other than `10.0.0.7`, its node's address
        worker:1 registered the port of worker:0
        worker:1 identified itself as another node
        worker:1 entered a barrier of group 2, to which it does not belong
        worker:1 entered a barrier of group 12, to which it does not belong
        worker:1 entered a barrier of group 0, to which it does not belong
        worker:1 sent data to the scheduler
        worker:1 identified itself as another node"#]]
    .assert_eq(&harness.rejected.join("\n"));
    // The registered attempt is unaffected, and a later one replaces it.
    assert!(harness.feed(clients[1].link, &barrier(4)));
    assert!(harness.feed(clients[0].link, &barrier(4)));
    assert_eq!(describe(&harness.take_sent(lines[0].0)), "Barrier 4\n");
    let third = connect(&mut harness, &peer("worker:1", 3));
    assert!(announce(&mut harness, &third));
    reject(&mut harness, &peer("worker:1", 2), &announcement(&worker, 12_001));
    assert_eq!(harness.rejected.last().unwrap(), "attempt 2 of worker:1 has ended");
}

#[test]
fn an_unreachable_node_is_reported() {
    let mut harness = ProtocolHarness::new(PsScheduler::new(1, 1));
    let worker = connect(&mut harness, &peer("worker:0", 1));
    announce(&mut harness, &worker);
    let (link, ..) = harness.dials.remove(0);
    harness.close(link);
    assert_eq!(harness.log, ["cannot connect to worker:0 on its registered port 12000"]);
    assert_eq!(harness.missing(), "server:0 worker:0");
}

/// Returns the messages of a job: the index of the client and the bytes, in order.
fn script(workers: u32, servers: u32) -> Vec<(usize, Vec<u8>)> {
    let peers = all_peers(workers, servers);
    let mut script = Vec::new();
    for (index, peer) in peers.iter().enumerate() {
        script.push((index, zmtp::handshake(SocketType::Dealer, b"")));
        script.push((index, announcement(peer, port(peer))));
    }
    for group in [7, 4, 4, 7] {
        for (index, peer) in peers.iter().enumerate() {
            if group == 7 || node_identity(&peer.task).unwrap().0 == PsRole::Worker {
                script.push((index, barrier(group)));
                script.push((index, heartbeat(peer, node_identity(&peer.task).unwrap().1)));
            }
        }
    }
    script
}

/// Returns the bytes that each node receives. Messages are split randomly, and the master fails over after a piece with
/// probability 1 in `failovers`.
fn transcript(mut rng: Option<Rng>, failovers: usize) -> Vec<Vec<u8>> {
    let (workers, servers) = (3, 2);
    let mut harness = ProtocolHarness::new(PsScheduler::new(workers, servers));
    let links: Vec<LinkId> =
        all_peers(workers, servers).iter().map(|peer| harness.accept(peer)).collect();
    for (index, bytes) in script(workers, servers) {
        let pieces = rng.as_mut().map_or(vec![&bytes[..]], |rng| rng.split(&bytes));
        for piece in pieces {
            assert!(harness.feed(links[index], piece), "{:?}", harness.rejected);
            if failovers > 0 && rng.as_mut().is_some_and(|rng| rng.below(failovers) == 0) {
                harness.fail_over(PsScheduler::new(workers, servers));
            }
        }
        for (link, task, _) in std::mem::take(&mut harness.dials) {
            harness.open(link, &peer(&task.to_string(), 1));
            harness.feed(link, &zmtp::handshake(SocketType::Router, b""));
        }
    }
    let dialed = (0..u64::from(workers + servers)).map(LinkId::Dialed);
    links.into_iter().chain(dialed).map(|link| harness.take_sent(link)).collect()
}

#[test]
fn fragmentation_and_failovers_do_not_change_the_output() {
    let whole = transcript(None, 0);
    for seed in 0..100 {
        assert_eq!(transcript(Some(Rng(seed)), 0), whole, "{seed}");
        assert_eq!(transcript(Some(Rng(seed)), 10), whole, "{seed}");
    }
}

#[test]
fn corrupted_bytes_affect_only_their_sender() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let (mut harness, clients, lines) = started(2, 1);
        for _ in 0..20 {
            let link = harness.accept(&peer("worker:1", 1));
            let mut bytes = zmtp::handshake(SocketType::Dealer, b"");
            bytes.extend(announcement(&clients[1].peer, port(&clients[1].peer)));
            bytes.extend(heartbeat(&clients[1].peer, 11));
            let bytes = rng.corrupt(&bytes);
            for piece in rng.split(&bytes) {
                harness.feed(link, piece);
            }
        }
        assert!(harness.feed(clients[0].link, &barrier(4)));
        assert!(harness.feed(clients[1].link, &barrier(4)));
        assert_eq!(describe(&harness.take_sent(lines[0].0)), "Barrier 4\n", "{seed}");
    }
}
