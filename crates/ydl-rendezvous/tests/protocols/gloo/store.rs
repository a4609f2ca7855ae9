//! Horovod's store: recorded exchanges of its clients and workers, and the semantics of each request.

use crate::support::{ProtocolRunner, bytes, hex, link, peer};
use expect_test::{Expect, expect};
use ydl_core::{Cluster, Framework, framework::ProcessContext};
use ydl_rendezvous::{
    Action, Effects, LinkId, Protocol,
    gloo::{
        GlooLimits, GlooMember, GlooStore, HostChange, NotificationEndpoint, ProcessSlot, World,
        WorldEvent,
    },
};

fn world(slots: &[&str]) -> World {
    let members = slots.iter().zip(0..).map(|(slot, index)| GlooMember {
        task: peer(index).task,
        slot: slot.parse().expect("a slot"),
    });
    World::new(members.collect()).expect("a world")
}

/// Creates a world of three processes, each on its own host.
fn three() -> World {
    world(&["hostA:0", "hostB:0", "hostC:0"])
}

struct Server {
    runner: ProtocolRunner<GlooStore>,
    connections: u64,
}

impl Server {
    fn new(world: World) -> Server {
        Server {
            runner: ProtocolRunner::new(GlooStore::new(world, GlooLimits::default())),
            connections: 0,
        }
    }

    /// Sends bytes of a worker on a new connection and returns the actions.
    fn send(&mut self, worker: u32, input: &str) -> Vec<Action> {
        self.connections += 1;
        self.runner.open(link(self.connections), worker);
        self.runner.feed(link(self.connections), input.as_bytes())
    }

    /// Runs a request per line, after the number of its worker: `0 PUT /scope/key value`.
    fn script(&mut self, script: &str) -> String {
        let mut all = String::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split(' ');
            let worker: u32 = words.next().and_then(|word| word.parse().ok()).expect("a worker");
            let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
            let value = words.next().unwrap_or_default();
            let input = request(method, path, value);
            all += &format!("{method} {path}: {}\n", format_actions(&self.send(worker, &input)));
        }
        all
    }
}

fn request(method: &str, path: &str, value: &str) -> String {
    let length = value.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n{value}"
    )
}

fn format_actions(actions: &[Action]) -> String {
    let text: Vec<String> = actions
        .iter()
        .map(|action| match action {
            Action::Send(_, bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
                let status = head.lines().next().unwrap_or_default();
                format!("{} `{body}`", status.trim_start_matches("HTTP/1.0 "))
            }
            Action::Close(_) => "closed".to_owned(),
            Action::Log(line) => line.clone(),
            Action::Dial(_, task, port) => format!("dial {task} {port}"),
        })
        .collect();
    text.join(", ")
}

fn check(world: World, script: &str, expected: Expect) {
    expected.assert_eq(&Server::new(world).script(script));
}

#[test]
fn responses_have_the_expected_bytes() {
    let mut server = Server::new(three());
    let mut answered = |worker: u32, input: &str| match &server.send(worker, input)[..] {
        [Action::Send(_, bytes), Action::Close(_)] => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        answered(
            0,
            "PUT /global/rank_0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\nvm"
        ),
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(
        answered(0, "GET /global/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(
        answered(1, "GET /global/rank_0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nvm"
    );
    assert_eq!(
        answered(0, "DELETE /global/0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"
    );
    let request =
        "GET /rank_and_size/hostA:0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(server.send(0, request), []);
    let mut effects = Effects::default();
    server.runner.protocol.handle(WorldEvent::Started(three()), &mut effects);
    let (_, actions) = effects.into_parts();
    let expected = "HTTP/1.0 200 OK\r\nContent-Length: 11\r\n\r\n0,3,0,1,0,3";
    assert_eq!(actions, [Action::Send(link(5), expected.into()), Action::Close(link(5))]);
}

#[test]
fn a_request_of_python_is_accepted() {
    let input = "PUT /scope/key HTTP/1.1\r\nAccept-Encoding: identity\r\n\
        Content-Type: application/x-www-form-urlencoded\r\nContent-length: 5\r\nHost: 127.0.0.1:4242\r\n\
        User-Agent: Python-urllib/3.11\r\nConnection: close\r\n\r\nvalue";
    assert_eq!(format_actions(&Server::new(three()).send(0, input)), "200 OK ``, closed");
}

#[test]
fn an_empty_value_can_be_stored() {
    check(
        three(),
        "0 PUT /cross_0/0\n1 GET /cross_0/0",
        expect![[r#"
            PUT /cross_0/0: 200 OK ``, closed
            GET /cross_0/0: 200 OK ``, closed
        "#]],
    );
}

#[test]
fn unsupported_requests_get_the_status_codes_of_horovod() {
    check(
        three(),
        "0 POST /a/b\n0 GET /a\n0 GET /\n0 GET /a/b/c\n0 DELETE /a/b",
        expect![[r#"
            POST /a/b: 501 Not Implemented ``, closed
            GET /a: 400 Bad Request ``, closed
            GET /: 400 Bad Request ``, closed
            GET /a/b/c: request path has more than a scope and a key, closed
            DELETE /a/b: 200 OK ``, closed
        "#]],
    );
}

#[test]
fn a_scope_of_the_world_is_emptied_when_its_last_participant_is_done() {
    check(
        three(),
        "
        0 PUT /global/0 a
        1 PUT /global/1 b
        2 PUT /global/2 c
        0 DELETE /global/0
        0 DELETE /global/0
        0 DELETE /global/0
        1 DELETE /global/1
        0 GET /global/0
        2 DELETE /global/2
        0 GET /global/0
        0 PUT /global/0 d
        1 DELETE /global/1
        0 GET /global/0
        ",
        expect![[r#"
            PUT /global/0: 200 OK ``, closed
            PUT /global/1: 200 OK ``, closed
            PUT /global/2: 200 OK ``, closed
            DELETE /global/0: 200 OK ``, closed
            DELETE /global/0: 200 OK ``, closed
            DELETE /global/0: 200 OK ``, closed
            DELETE /global/1: 200 OK ``, closed
            GET /global/0: 200 OK `a`, closed
            DELETE /global/2: 200 OK ``, closed
            GET /global/0: 404 Not Found ``, closed
            PUT /global/0: 200 OK ``, closed
            DELETE /global/1: 200 OK ``, closed
            GET /global/0: 200 OK `d`, closed
        "#]],
    );
}

#[test]
fn participants_are_counted_per_scope() {
    check(
        world(&["a:0", "a:1", "b:0"]),
        "
        1 PUT /local_a/1 x
        1 PUT /cross_1/0 y
        0 DELETE /local_a/0
        1 DELETE /cross_1/0
        1 GET /cross_1/0
        1 GET /local_a/1
        1 DELETE /local_a/1
        1 GET /local_a/1
        ",
        expect![[r#"
            PUT /local_a/1: 200 OK ``, closed
            PUT /cross_1/0: 200 OK ``, closed
            DELETE /local_a/0: 200 OK ``, closed
            DELETE /cross_1/0: 200 OK ``, closed
            GET /cross_1/0: 404 Not Found ``, closed
            GET /local_a/1: 200 OK `x`, closed
            DELETE /local_a/1: 200 OK ``, closed
            GET /local_a/1: 404 Not Found ``, closed
        "#]],
    );
}

#[test]
fn keys_of_other_scopes_are_deleted_one_at_a_time() {
    let scope = "global_process_set_hash_4a";
    let mut server = Server::new(three());
    server.script(&format!("0 PUT /{scope}/0 a\n1 PUT /{scope}/1 b\n0 DELETE /{scope}/0"));
    expect![[r#"
        GET /global_process_set_hash_4a/0: 404 Not Found ``, closed
        GET /global_process_set_hash_4a/1: 200 OK `b`, closed
        DELETE /global_process_set_hash_4a/1: 200 OK ``, closed
    "#]]
    .assert_eq(&server.script(&format!("0 GET /{scope}/0\n0 GET /{scope}/1\n1 DELETE /{scope}/1")));
    assert_eq!(server.runner.protocol.bytes(), 0);
}

#[test]
fn requests_on_behalf_of_another_rank_are_rejected() {
    check(
        three(),
        "1 PUT /global/0 x\n1 PUT /global/rank_0 x\n2 DELETE /global/0\n1 GET /rank_and_size/hostA:0\n0 GET /global/0",
        expect![[r#"
            PUT /global/0: key belongs to `worker:0`, closed
            PUT /global/rank_0: key belongs to `worker:0`, closed
            DELETE /global/0: key belongs to `worker:0`, closed
            GET /rank_and_size/hostA:0: key belongs to `worker:0`, closed
            GET /global/0: 404 Not Found ``, closed
        "#]],
    );
}

#[test]
fn the_ranks_of_a_world_match_horovod() {
    let world = world(&["a:0", "a:1", "b:0", "b:1", "b:2", "c:0"]);
    let numbers: Vec<String> = world
        .members()
        .iter()
        .map(|member| {
            format!("{} {}", member.slot, world.rank_info(&member.slot).expect("its slot"))
        })
        .collect();
    expect![[r#"
        a:0 0,6,0,2,0,3
        a:1 1,6,1,2,0,2
        b:0 2,6,0,3,1,3
        b:1 3,6,1,3,1,2
        b:2 4,6,2,3,0,1
        c:0 5,6,0,1,2,3"#]]
    .assert_eq(&numbers.join("\n"));
}

#[test]
fn each_task_counts_as_a_host() {
    let world = World::of_tasks([peer(0).task, peer(1).task], 2);
    let numbers: Vec<String> = world
        .members()
        .iter()
        .map(|GlooMember { task, slot }| {
            format!("{task} {slot} {}", world.rank_info(slot).expect("its slot"))
        })
        .collect();
    expect![[r#"
        worker:0 worker-0:0 0,4,0,2,0,2
        worker:0 worker-0:1 1,4,1,2,0,2
        worker:1 worker-1:0 2,4,0,2,1,2
        worker:1 worker-1:1 3,4,1,2,1,2"#]]
    .assert_eq(&numbers.join("\n"));
    assert_eq!(World::new(world.members().to_vec()), Ok(world));
}

#[test]
fn the_environment_of_a_program_matches_its_world() {
    let role = |name: &str, instances, processes| ydl_core::RoleMembers {
        role: name.into(),
        instances,
        processes,
        indexes: Vec::new(),
        endpoints: Vec::new(),
    };
    let cluster = Cluster {
        round: 1,
        roles: vec![role("first", 1, 1), role("worker", 3, 2), role("last", 1, 3)],
    };
    let world = World::of(&cluster);
    for member in world.members() {
        let given = ProcessContext {
            cluster: &cluster,
            task: &member.task,
            local: member.slot.local_rank,
            elastic: false,
            attempt: 1,
            rendezvous_port: Some(1234),
            flags: false,
        };
        let env = Framework::Horovod.configure(&given).env;
        let of = |name: &str| env[&format!("HOROVOD_{name}")].as_str();
        assert_eq!(of("HOSTNAME"), member.slot.host);
        let numbers = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"];
        let slot = world.rank_info(&member.slot).unwrap();
        assert_eq!(numbers.map(of).join(","), slot.to_string());
    }
}

#[test]
fn a_world_with_missing_or_duplicate_local_ranks_is_invalid() {
    for slots in [["a:0", "a:2"], ["a:0", "a:0"], ["a:1", "b:0"]] {
        let members = slots
            .map(|slot| GlooMember { task: peer(0).task, slot: slot.parse().expect("a slot") });
        let refused = World::new(members.into()).expect_err("no world");
        assert!(refused.starts_with("the local ranks of `a` are not 0 to"), "{refused}");
    }
}

/// Passes an event to the store, and returns the actions and their text.
fn handle(server: &mut Server, event: WorldEvent) -> (Vec<Action>, String) {
    let mut effects = Effects::default();
    server.runner.protocol.handle(event, &mut effects);
    let (_, actions) = effects.into_parts();
    let text = format_actions(&actions);
    (actions, text)
}

#[test]
fn a_rank_request_waits_for_the_next_world() {
    let mut server = Server::new(three());
    server.script("0 PUT /global/0 old");
    assert_eq!(server.script("0 GET /rank_and_size/hostA:0"), "GET /rank_and_size/hostA:0: \n");
    server.script("2 GET /rank_and_size/hostC:0");
    let requested: Vec<String> =
        server.runner.protocol.rank_requests().map(ProcessSlot::to_string).collect();
    assert_eq!(requested, ["hostA:0", "hostC:0"]);
    assert_eq!(server.runner.protocol.missing(), [peer(1).task, peer(2).task]);
    // The second has left, the third leaves, another one joins.
    let next = World::new(vec![
        GlooMember { task: peer(0).task, slot: "hostA:0".parse().unwrap() },
        GlooMember { task: peer(3).task, slot: "hostD:0".parse().unwrap() },
    ]);
    expect!["200 OK `0,2,0,1,0,2`, closed, 200 OK `-1,-1,-1,-1,-1,-1`, closed"]
        .assert_eq(&handle(&mut server, WorldEvent::Started(next.unwrap())).1);
    expect![[r#"
        GET /global/0: 404 Not Found ``, closed
        PUT /global/1: 200 OK ``, closed
        GET /rank_and_size/hostA:0: 
    "#]]
    .assert_eq(
        &server.script("0 GET /global/0\n3 PUT /global/1 new\n0 GET /rank_and_size/hostA:0"),
    );
}

#[test]
fn a_closed_link_has_no_rank_request() {
    let mut server = Server::new(three());
    server.script("0 GET /rank_and_size/hostA:0");
    server.runner.close(link(1));
    assert_eq!(server.runner.protocol.rank_requests().count(), 0);
    assert_eq!(server.runner.persisted.len(), 3, "{:?}", server.runner.persisted);
}

#[test]
fn tasks_without_a_key_are_missing() {
    let mut server = Server::new(three());
    assert_eq!(server.runner.protocol.missing(), []);
    server.script("1 PUT /global/rank_1 host\n1 PUT /global/1 address");
    assert_eq!(server.runner.protocol.missing(), [peer(0).task, peer(2).task]);
    server.script("0 PUT /global/0 a\n2 PUT /global/2 c");
    assert_eq!(server.runner.protocol.missing(), []);
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const CHANGED: &str = "800263686f726f766f642e72756e6e65722e656c61737469632e776f726b65720a486f73747355706461746564526571756573740a29817d28580900000074696d657374616d704a00f15365580300000072657363686f726f766f642e72756e6e65722e656c61737469632e776f726b65720a486f7374557064617465526573756c740a4b02855275622e";
const ACK: &str = "80059539000000000000008c22686f726f766f642e72756e6e65722e636f6d6d6f6e2e7574696c2e6e6574776f726b948c0b41636b526573706f6e73659493942981942e";
const ENDPOINT: &str = "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c093132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f9486942e";

fn worker() -> NotificationEndpoint {
    NotificationEndpoint::parse(crate::support::base64(&bytes(ENDPOINT)).as_bytes())
        .expect("an endpoint")
}

fn signed(digest: &str, length: &str, body: &str) -> Vec<u8> {
    bytes(&[digest, length, body].concat())
}

#[test]
fn an_endpoint_is_parsed_and_its_key_is_not_shown() {
    expect![[
        r#"NotificationEndpoint { addresses: [("eth0", "10.0.0.7", 40000), ("lo", "127.0.0.1", 40000)], .. }"#
    ]]
    .assert_eq(&format!("{:?}", worker()));
    assert_eq!(worker().port(), Some(40000));
    // A dictionary with one interface uses other opcodes.
    let one = "80057d948c026c6f945d948c093132372e302e302e31944d409c8694617343010194 86942e";
    let one = NotificationEndpoint::parse(crate::support::base64(&bytes(one)).as_bytes())
        .expect("an endpoint");
    expect![[r#"NotificationEndpoint { addresses: [("lo", "127.0.0.1", 40000)], .. }"#]]
        .assert_eq(&format!("{one:?}"));
}

#[test]
fn notifications_are_signed_like_horovod() {
    let changed = "7a97a10305f7b9bddc30f60e000a93b484bd8da4f5268197dbf4faf61d657c31";
    assert_eq!(
        hex(&worker().hosts_changed(1_700_000_000, HostChange::Added)),
        hex(&signed(changed, "8b000000", CHANGED))
    );
    assert_eq!(bytes(KEY).len(), 32);
}

fn ack() -> Vec<u8> {
    let digest = "c41edba9650bd7f1bc648117db6dcbd46d4aaf63984f071b554bf122cb3a3418";
    signed(digest, "44000000", ACK)
}

#[test]
fn replies_are_accepted_only_with_a_valid_signature() {
    let answer = ack();
    assert_eq!(worker().parse_reply(&answer), Ok(Some(answer.len())));
    for end in 0..answer.len() {
        assert_eq!(worker().parse_reply(&answer[..end]), Ok(None));
    }
    for slot in (0..answer.len()).filter(|slot| !(32..36).contains(slot)) {
        let mut other = answer.clone();
        other[slot] ^= 1;
        expect!["reply is not signed with the worker's key"]
            .assert_eq(&worker().parse_reply(&other).expect_err("a wrong answer").to_string());
    }
}

#[test]
fn rank_0_is_notified_of_changed_hosts() {
    let mut server = Server::new(three());
    let (_, text) = handle(&mut server, WorldEvent::HostsChanged(HostChange::Added, 1));
    expect!["cannot notify worker:0 of the host change: no notification address registered"]
        .assert_eq(&text);
    let put = crate::support::base64(&bytes(ENDPOINT));
    expect!["PUT /worker_addresses/hostA:0: 200 OK ``, closed\n"]
        .assert_eq(&server.script(&format!("0 PUT /worker_addresses/hostA:0 {put}")));
    let (actions, text) =
        handle(&mut server, WorldEvent::HostsChanged(HostChange::Added, 1_700_000_000));
    expect!["dial worker:0 40000"].assert_eq(&text);
    let [Action::Dial(dialed @ LinkId::Dialed(1), _, _)] = actions[..] else {
        panic!("{actions:?}");
    };
    let input = server.runner.open(dialed, 0);
    assert_eq!(
        input,
        [Action::Send(dialed, worker().hosts_changed(1_700_000_000, HostChange::Added))]
    );
    assert_eq!(server.runner.feed(dialed, &ack()), [Action::Close(dialed)]);
    // The endpoint refuses the next connection.
    let (actions, _) =
        handle(&mut server, WorldEvent::HostsChanged(HostChange::Removed, 1_700_000_001));
    let [Action::Dial(dialed @ LinkId::Dialed(2), _, _)] = actions[..] else {
        panic!("{actions:?}");
    };
    server.runner.open(dialed, 0);
    let actions = server.runner.close(dialed);
    expect!["cannot notify worker:0 of the host change: no reply"]
        .assert_eq(&self::format_actions(&actions));
}

#[test]
fn only_members_can_register_an_endpoint_and_only_a_valid_one() {
    let put = crate::support::base64(&bytes(ENDPOINT));
    check(
        three(),
        &format!(
            "1 PUT /worker_addresses/hostA:0 {put}\n1 PUT /worker_addresses/hostX:0 {put}\n1 PUT /worker_addresses/hostB:0 abc\n1 PUT /worker_addresses/hostB {put}"
        ),
        expect![[r#"
            PUT /worker_addresses/hostA:0: key belongs to `worker:0`, closed
            PUT /worker_addresses/hostX:0: not a member of this world, closed
            PUT /worker_addresses/hostB:0: invalid notification address, closed
            PUT /worker_addresses/hostB: invalid process slot: expected one such as `host:0`, closed
        "#]],
    );
}
