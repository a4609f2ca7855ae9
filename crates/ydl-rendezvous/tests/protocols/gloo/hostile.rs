//! Horovod's store with arbitrary input, fragmentation and failovers.

use crate::support::{ProtocolRunner, Rng, link, peer};
use expect_test::expect;
use ydl_core::Cluster;
use ydl_rendezvous::{
    Action, Effects, Protocol,
    gloo::{
        BODY_MAX, GlooDriver, GlooLimits, GlooMember, GlooStore, HEAD_MAX, NotificationEndpoint,
        World,
    },
};

const SMALL: GlooLimits = GlooLimits { stored_bytes: 4096, pair_bytes: 0, rank_requests: 3 };

fn world() -> World {
    let members = ["a:0", "a:1", "b:0"].iter().zip(0..);
    let members = members.map(|(slot, index)| GlooMember {
        task: peer(index).task,
        slot: slot.parse().expect("a slot"),
    });
    World::new(members.collect()).expect("a world")
}

fn store(limits: GlooLimits) -> GlooStore {
    GlooStore::new(world(), limits)
}

/// Returns a worker and its request, which is mostly valid.
fn any_request(rng: &mut Rng) -> (u32, Vec<u8>) {
    let worker = rng.below(3) as u32;
    let method = rng.one_of(&["GET", "PUT", "PUT", "DELETE", "POST"]);
    let scope = rng.one_of(&["global", "local_a", "cross_0", "other", "rank_and_size"]);
    let own = worker.to_string();
    let slot = ["a:0", "a:1", "b:0"][worker as usize];
    let key = match scope {
        "rank_and_size" => slot,
        _ => rng.one_of(&["0", own.as_str(), own.as_str(), "rank_0", "x"]),
    };
    let mut input = format!("{method} /{scope}/{key} HTTP/1.1\r\nHost: x\r\n").into_bytes();
    let body = match method {
        "PUT" => rng.bytes(60),
        _ => Vec::new(),
    };
    input.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
    input.extend(body);
    (worker, input)
}

/// Stores the addresses of each worker for all others, in both scopes of the world.
fn rendezvous(
    protocol: &mut impl Protocol,
    workers: std::ops::Range<u32>,
    all: u32,
) -> Option<String> {
    let addresses = vec![7; 136 * (all as usize - 1)];
    let head = |scope: &str, rank: u32| {
        let length = addresses.len();
        format!("PUT /{scope}/rank_{rank} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n")
    };
    for scope in ["global", "cross_0"] {
        for rank in workers.clone() {
            let input = [head(scope, rank).as_bytes(), &addresses].concat();
            let link = link(u64::from(rank) + if scope == "global" { 0 } else { 10_000 });
            protocol.open(link, &peer(rank), &mut Effects::default());
            if let Err(why) = protocol.receive(link, &input, &mut Effects::default()) {
                return Some(why.to_string());
            }
        }
    }
    None
}

fn cluster(workers: u32) -> Cluster {
    Cluster {
        round: 1,
        roles: vec![ydl_core::RoleMembers {
            role: "worker".into(),
            instances: workers,
            processes: 1,
            indexes: (0..workers).collect(),
            endpoints: Vec::new(),
        }],
    }
}

#[test]
fn a_large_world_fits_into_the_memory_limit() {
    let mut driver = GlooDriver::new(&cluster(600), GlooLimits::default());
    assert_eq!(rendezvous(&mut driver, 0..600, 600), None);
    // The documentation states the limit.
    let largest = GlooLimits::default().stored_bytes_for(1024);
    assert!(largest > 2 * 1024 * 1023 * 136 && largest < 400 << 20, "{largest}");
    assert_eq!(GlooLimits::default().stored_bytes_for(usize::MAX), largest);
}

#[test]
fn the_memory_limit_grows_with_a_planned_world() {
    let mut driver = GlooDriver::new(&cluster(1), GlooLimits::default());
    driver.members_changed(&cluster(1000), &mut Effects::default());
    // New workers send one request each, and wait.
    let mut new_worker = |rank: u32| {
        let input = format!("PUT /global/rank_{rank} HTTP/1.1\r\nContent-Length: 135864\r\n\r\n");
        let input = [input.as_bytes(), &[7; 135_864]].concat();
        driver.open(link(rank.into()), &peer(rank), &mut Effects::default());
        driver.receive(link(rank.into()), &input, &mut Effects::default())
    };
    for rank in 1..700 {
        assert!(matches!(new_worker(rank), Ok(Some(_))), "{rank}");
    }
}

#[test]
fn fragmentation_does_not_change_the_actions() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut whole = ProtocolRunner::new(store(SMALL));
        let mut cut = ProtocolRunner::new(store(SMALL));
        for number in 1..40 {
            let (worker, input) = any_request(&mut rng);
            whole.open(link(number), worker);
            cut.open(link(number), worker);
            let expected = whole.feed(link(number), &input);
            let mut actions = Vec::new();
            for chunk in rng.split(&input) {
                actions.extend(cut.feed(link(number), chunk));
            }
            assert_eq!(actions, expected, "seed {seed}, request {number}");
        }
        assert_eq!(whole.persisted, cut.persisted, "seed {seed}");
    }
}

#[test]
fn a_truncated_request_has_no_effect() {
    for seed in 0..100 {
        let (worker, input) = any_request(&mut Rng::new(seed));
        for end in 0..input.len() {
            let mut runner = ProtocolRunner::new(store(SMALL));
            runner.open(link(1), worker);
            assert_eq!(runner.feed(link(1), &input[..end]), [], "seed {seed}, {end} bytes");
            assert_eq!(runner.close(link(1)), []);
            assert_eq!(runner.persisted, []);
            assert_eq!(runner.protocol.bytes(), 0);
        }
    }
}

#[test]
fn arbitrary_bytes_stay_within_the_memory_limits() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut runner = ProtocolRunner::new(store(SMALL));
        for number in 1..40 {
            let (worker, mut input) = any_request(&mut rng);
            match rng.below(4) {
                0 => input = rng.bytes(80),
                1 => {
                    let slot = rng.below(input.len());
                    input[slot] ^= 1 << rng.below(8);
                }
                _ => {}
            }
            runner.open(link(number), worker);
            for action in runner.feed(link(number), &input) {
                if let Action::Send(_, bytes) = action {
                    assert!(bytes.starts_with(b"HTTP/1.0 "), "seed {seed}");
                }
            }
            assert!(runner.protocol.bytes() <= SMALL.stored_bytes, "seed {seed}");
            assert!(runner.protocol.rank_requests().count() <= SMALL.rank_requests, "seed {seed}");
        }
    }
}

#[test]
fn a_new_master_continues_where_the_old_one_stopped() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut old = ProtocolRunner::new(store(SMALL));
        let mut number = 0;
        for _ in 0..rng.below(40) {
            let (worker, input) = any_request(&mut rng);
            number += 1;
            old.open(link(number), worker);
            old.feed(link(number), &input);
        }
        let (mut new, _) = old.replayed(store(SMALL));
        assert_eq!(new.persisted, old.persisted, "seed {seed}");
        assert_eq!(new.protocol.bytes(), old.protocol.bytes(), "seed {seed}");
        assert_eq!(new.protocol.missing(), old.protocol.missing(), "seed {seed}");
        for _ in 0..20 {
            let (worker, input) = any_request(&mut rng);
            number += 1;
            old.open(link(number), worker);
            new.open(link(number), worker);
            let (expected, actions) =
                (old.feed(link(number), &input), new.feed(link(number), &input));
            assert_eq!(actions, expected, "seed {seed}");
        }
    }
}

#[test]
fn invalid_requests_are_rejected() {
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"\x16\x03\x01".into(), "not an HTTP request"),
        (b"get / HTTP/1.1\r\n\r\n".into(), "not an HTTP request"),
        (b"GET /a/b\r\n\r\n".into(), "invalid request line"),
        (b"GET /a/b HTTP/2\r\n\r\n".into(), "invalid request line"),
        (b"GET  /a/b HTTP/1.1\r\n\r\n".into(), "invalid request line"),
        (b"GET a HTTP/1.1\r\n\r\n".into(), "invalid request path"),
        (b"GET /\x01 HTTP/1.1\r\n\r\n".into(), "invalid request path"),
        (b"GeT /a/b HTTP/1.1\r\n\r\n".into(), "invalid request method"),
        (b"GET /\xff HTTP/1.1\r\n\r\n".into(), "request head is not ASCII"),
        (b"GET /a/b HTTP/1.1\r\nno header\r\n\r\n".into(), "invalid request header"),
        (b"GET /a/b HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n".into(), "invalid request header"),
        (b"GET /a/b HTTP/1.1\r\nA: b\nC: d\r\n\r\n".into(), "invalid request header"),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n".into(), "invalid Content-Length"),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: +1\r\n\r\n".into(), "invalid Content-Length"),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
            "invalid Content-Length",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: 4294967296\r\n\r\n".into(),
            "request body of `4294967296` bytes exceeds the maximum of `524288`",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n".into(),
            "invalid Content-Length",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            "unsupported request header `Transfer-Encoding`",
        ),
        (vec![b'G'; HEAD_MAX], "request head exceeds `8192` bytes"),
        (
            format!("GET /a/b HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65)).into(),
            "more than `64` request headers",
        ),
    ];
    for (input, why) in cases {
        let mut runner = ProtocolRunner::new(store(SMALL));
        runner.open(link(1), 0);
        let actions = runner.feed(link(1), &input);
        assert_eq!(actions, [Action::Log(why.to_owned()), Action::Close(link(1))], "{input:?}");
    }
}

#[test]
fn the_longest_value_can_arrive_byte_by_byte() {
    let mut store = store(GlooLimits::default());
    store.open(link(1), &peer(0), &mut Effects::default());
    let head = format!("PUT /a/b HTTP/1.1\r\nContent-Length: {BODY_MAX}\r\n\r\n");
    let input = [head.as_bytes(), &vec![7; BODY_MAX]].concat();
    for end in 1..input.len() {
        let result = store.receive(link(1), &input[..end], &mut Effects::default());
        assert_eq!(result, Ok(None));
    }
    let result = store.receive(link(1), &input, &mut Effects::default());
    assert_eq!(result, Ok(Some(input.len())));
}

#[test]
fn a_full_store_closes_one_link_and_serves_the_others() {
    let mut runner = ProtocolRunner::new(store(SMALL));
    let put = |length: usize| {
        let head = format!("PUT /a/b HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &vec![7; length]].concat()
    };
    runner.open(link(1), 0);
    runner.open(link(2), 0);
    runner.feed(link(1), &put(3));
    let Some(Action::Log(rejection)) = runner.feed(link(2), &put(4000)).into_iter().next() else {
        panic!("it was stored");
    };
    expect!["store is full: `261` bytes stored, `4096` allowed"].assert_eq(&rejection);
    runner.open(link(3), 0);
    let actions = runner.feed(link(3), b"GET /a/b HTTP/1.1\r\n\r\n");
    assert!(
        matches!(&actions[0], Action::Send(_, bytes) if bytes.ends_with(b"\r\n\r\n\x07\x07\x07"))
    );
}

#[test]
fn a_second_request_during_a_pending_one_is_rejected() {
    let mut runner = ProtocolRunner::new(store(SMALL));
    runner.open(link(1), 0);
    let ask = b"GET /rank_and_size/a:0 HTTP/1.1\r\n\r\n";
    assert_eq!(runner.feed(link(1), ask), []);
    let actions = runner.feed(link(1), ask);
    let why = "second request before the response to the first";
    assert_eq!(actions, [Action::Log(why.to_owned()), Action::Close(link(1))]);
    assert_eq!(runner.protocol.rank_requests().count(), 0);
}

#[test]
fn arbitrary_pickles_are_handled() {
    let valid = crate::support::bytes(
        "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c\
         093132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b\
         1c1d1e1f9486942e",
    );
    assert!(NotificationEndpoint::parse(crate::support::base64(&valid).as_bytes()).is_some());
    for end in 0..valid.len() {
        assert!(
            NotificationEndpoint::parse(crate::support::base64(&valid[..end]).as_bytes()).is_none()
        );
    }
    let known = b"\x80\x05\x95}](\x8cCKM\x86aesu\x94h.\x00\x01\x02";
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let pickle: Vec<u8> = match rng.below(2) {
            0 => {
                let mut pickle = valid.clone();
                let slot = rng.below(pickle.len());
                pickle[slot] = rng.number() as u8;
                pickle
            }
            _ => (0..rng.below(60)).map(|_| known[rng.below(known.len())]).collect(),
        };
        NotificationEndpoint::parse(crate::support::base64(&pickle).as_bytes());
    }
    // Recursion on this input would overflow any stack.
    let deep = [b"K\x01".to_vec(), b"K\x01\x86".repeat(20_000), b".".to_vec()].concat();
    assert!(NotificationEndpoint::parse(crate::support::base64(&deep).as_bytes()).is_none());
    let lists = [b"]".repeat(20_000), b"a".repeat(19_999), b".".to_vec()].concat();
    assert!(NotificationEndpoint::parse(crate::support::base64(&lists).as_bytes()).is_none());
}
