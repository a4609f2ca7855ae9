//! Horovod's store among clients that say anything, in any pieces, and masters that die.

mod support;

use expect_test::expect;
use support::{Chance, Runner, link, peer};
use ydl_core::Cluster;
use ydl_rendezvous::{
    Act, Protocol, Reaction,
    gloo::{BODY_MAX, Driver, HEAD_MAX, Limits, Member, Store, Worker, World},
};

const SMALL: Limits = Limits { stored_bytes: 4096, pair_bytes: 0, asking: 3 };

fn world() -> World {
    let members = ["a:0", "a:1", "b:0"].iter().zip(0..);
    let members = members.map(|(place, index)| Member {
        task: peer(index).task,
        place: place.parse().expect("a place"),
    });
    World::new(members.collect()).expect("a world")
}

fn store(limits: Limits) -> Store {
    Store::new(world(), limits)
}

/// A request that makes sense, mostly: of which worker, and what.
fn any_request(chance: &mut Chance) -> (u32, Vec<u8>) {
    let worker = chance.below(3) as u32;
    let verb = chance.one_of(&["GET", "PUT", "PUT", "DELETE", "POST"]);
    let scope = chance.one_of(&["global", "local_a", "cross_0", "other", "rank_and_size"]);
    let own = worker.to_string();
    let place = ["a:0", "a:1", "b:0"][worker as usize];
    let key = match scope {
        "rank_and_size" => place,
        _ => chance.one_of(&["0", own.as_str(), own.as_str(), "rank_0", "x"]),
    };
    let mut said = format!("{verb} /{scope}/{key} HTTP/1.1\r\nHost: x\r\n").into_bytes();
    let body = match verb {
        "PUT" => chance.bytes(60),
        _ => Vec::new(),
    };
    said.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
    said.extend(body);
    (worker, said)
}

/// What each of so many says to all others, in both scopes in which everybody meets.
fn meet(protocol: &mut impl Protocol, workers: std::ops::Range<u32>, all: u32) -> Option<String> {
    let addresses = vec![7; 136 * (all as usize - 1)];
    let head = |scope: &str, rank: u32| {
        let length = addresses.len();
        format!("PUT /{scope}/rank_{rank} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n")
    };
    for scope in ["global", "cross_0"] {
        for rank in workers.clone() {
            let said = [head(scope, rank).as_bytes(), &addresses].concat();
            let link = link(u64::from(rank) + if scope == "global" { 0 } else { 10_000 });
            protocol.open(link, &peer(rank), &mut Reaction::default());
            if let Err(why) = protocol.take(link, &said, &mut Reaction::default()) {
                return Some(why.to_string());
            }
        }
    }
    None
}

fn cluster(workers: u32) -> Cluster {
    Cluster {
        round: 1,
        roles: vec![ydl_core::Member {
            role: "worker".into(),
            instances: workers,
            processes: 1,
            indexes: (0..workers).collect(),
            endpoints: Vec::new(),
        }],
    }
}

#[test]
fn however_many_processes_a_world_has_they_can_meet() {
    let mut driver = Driver::new(&cluster(600), Limits::default());
    assert_eq!(meet(&mut driver, 0..600, 600), None);
    // And no more than that: the largest that can be met in is written down in the documents.
    let largest = Limits::default().stored(1024);
    assert!(largest > 2 * 1024 * 1023 * 136 && largest < 400 << 20, "{largest}");
    assert_eq!(Limits::default().stored(usize::MAX), largest);
}

#[test]
fn a_world_that_grows_is_given_room_and_its_newcomers_before_it_begins() {
    let mut driver = Driver::new(&cluster(1), Limits::default());
    driver.told(&cluster(1000), &mut Reaction::default());
    // Newcomers say one thing each, and wait.
    let mut newcomer = |rank: u32| {
        let said = format!("PUT /global/rank_{rank} HTTP/1.1\r\nContent-Length: 135864\r\n\r\n");
        let said = [said.as_bytes(), &[7; 135_864]].concat();
        driver.open(link(rank.into()), &peer(rank), &mut Reaction::default());
        driver.take(link(rank.into()), &said, &mut Reaction::default())
    };
    for rank in 1..700 {
        assert!(matches!(newcomer(rank), Ok(Some(_))), "{rank}");
    }
}

#[test]
fn however_a_request_is_cut_into_pieces_the_acts_are_the_same() {
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let mut whole = Runner::new(store(SMALL));
        let mut cut = Runner::new(store(SMALL));
        for number in 1..40 {
            let (worker, said) = any_request(&mut chance);
            whole.open(link(number), worker);
            cut.open(link(number), worker);
            let expected = whole.say(link(number), &said);
            let mut acts = Vec::new();
            for piece in chance.pieces(&said) {
                acts.extend(cut.say(link(number), piece));
            }
            assert_eq!(acts, expected, "seed {seed}, request {number}");
        }
        assert_eq!(whole.kept, cut.kept, "seed {seed}");
    }
}

#[test]
fn a_request_that_ends_anywhere_but_at_its_end_changes_nothing() {
    for seed in 0..100 {
        let (worker, said) = any_request(&mut Chance::new(seed));
        for end in 0..said.len() {
            let mut runner = Runner::new(store(SMALL));
            runner.open(link(1), worker);
            assert_eq!(runner.say(link(1), &said[..end]), [], "seed {seed}, {end} bytes");
            assert_eq!(runner.close(link(1)), []);
            assert_eq!(runner.kept, []);
            assert_eq!(runner.protocol.bytes(), 0);
        }
    }
}

#[test]
fn no_bytes_do_harm_and_nothing_grows_beyond_its_limits() {
    for seed in 0..2000 {
        let mut chance = Chance::new(seed);
        let mut runner = Runner::new(store(SMALL));
        for number in 1..40 {
            let (worker, mut said) = any_request(&mut chance);
            match chance.below(4) {
                0 => said = chance.bytes(80),
                1 => {
                    let place = chance.below(said.len());
                    said[place] ^= 1 << chance.below(8);
                }
                _ => {}
            }
            runner.open(link(number), worker);
            for act in runner.say(link(number), &said) {
                if let Act::Send(_, bytes) = act {
                    assert!(bytes.starts_with(b"HTTP/1.0 "), "seed {seed}");
                }
            }
            assert!(runner.protocol.bytes() <= SMALL.stored_bytes, "seed {seed}");
            assert!(runner.protocol.asking().count() <= SMALL.asking, "seed {seed}");
        }
    }
}

#[test]
fn a_new_master_goes_on_where_the_old_one_stopped() {
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let mut old = Runner::new(store(SMALL));
        let mut number = 0;
        for _ in 0..chance.below(40) {
            let (worker, said) = any_request(&mut chance);
            number += 1;
            old.open(link(number), worker);
            old.say(link(number), &said);
        }
        let (mut new, _) = old.replayed(store(SMALL));
        assert_eq!(new.kept, old.kept, "seed {seed}");
        assert_eq!(new.protocol.bytes(), old.protocol.bytes(), "seed {seed}");
        assert_eq!(new.protocol.missing(), old.protocol.missing(), "seed {seed}");
        for _ in 0..20 {
            let (worker, said) = any_request(&mut chance);
            number += 1;
            old.open(link(number), worker);
            new.open(link(number), worker);
            let (expected, acts) = (old.say(link(number), &said), new.say(link(number), &said));
            assert_eq!(acts, expected, "seed {seed}");
        }
    }
}

#[test]
fn what_is_not_a_request_is_refused() {
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"\x16\x03\x01".into(), "this is not HTTP"),
        (b"get / HTTP/1.1\r\n\r\n".into(), "this is not HTTP"),
        (b"GET /a/b\r\n\r\n".into(), "the first line of a request is not one of HTTP/1.1"),
        (b"GET /a/b HTTP/2\r\n\r\n".into(), "the first line of a request is not one of HTTP/1.1"),
        (
            b"GET  /a/b HTTP/1.1\r\n\r\n".into(),
            "the first line of a request is not one of HTTP/1.1",
        ),
        (b"GET a HTTP/1.1\r\n\r\n".into(), "the path of a request is none"),
        (b"GET /\x01 HTTP/1.1\r\n\r\n".into(), "the path of a request is none"),
        (b"GeT /a/b HTTP/1.1\r\n\r\n".into(), "the verb of a request is none"),
        (b"GET /\xff HTTP/1.1\r\n\r\n".into(), "the head of a request is not text"),
        (b"GET /a/b HTTP/1.1\r\nno header\r\n\r\n".into(), "a header of a request is none"),
        (
            b"GET /a/b HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n".into(),
            "a header of a request is none",
        ),
        (b"GET /a/b HTTP/1.1\r\nA: b\nC: d\r\n\r\n".into(), "a header of a request is none"),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n".into(),
            "the length of a request is none",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: +1\r\n\r\n".into(),
            "the length of a request is none",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
            "the length of a request is none",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: 4294967296\r\n\r\n".into(),
            "a request of `4294967296` bytes was announced, and `524288` is the most",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n".into(),
            "the length of a request is none",
        ),
        (
            b"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            "a request has `Transfer-Encoding`, which is not understood",
        ),
        (vec![b'G'; HEAD_MAX], "the head of a request has more than `8192` bytes"),
        (
            format!("GET /a/b HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65)).into(),
            "a request has more than `64` headers",
        ),
    ];
    for (said, why) in cases {
        let mut runner = Runner::new(store(SMALL));
        runner.open(link(1), 0);
        let acts = runner.say(link(1), &said);
        assert_eq!(acts, [Act::Say(why.to_owned()), Act::Close(link(1))], "{said:?}");
    }
}

#[test]
fn the_longest_value_may_come_byte_by_byte() {
    let mut store = store(Limits::default());
    store.open(link(1), &peer(0), &mut Reaction::default());
    let head = format!("PUT /a/b HTTP/1.1\r\nContent-Length: {BODY_MAX}\r\n\r\n");
    let said = [head.as_bytes(), &vec![7; BODY_MAX]].concat();
    for end in 1..said.len() {
        let taken = store.take(link(1), &said[..end], &mut Reaction::default());
        assert_eq!(taken, Ok(None));
    }
    let taken = store.take(link(1), &said, &mut Reaction::default());
    assert_eq!(taken, Ok(Some(said.len())));
}

#[test]
fn a_full_store_refuses_one_link_and_goes_on_with_the_others() {
    let mut runner = Runner::new(store(SMALL));
    let put = |length: usize| {
        let head = format!("PUT /a/b HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &vec![7; length]].concat()
    };
    runner.open(link(1), 0);
    runner.open(link(2), 0);
    runner.say(link(1), &put(3));
    let Some(Act::Say(refused)) = runner.say(link(2), &put(4000)).into_iter().next() else {
        panic!("it was stored");
    };
    expect!["the store holds `261` bytes, and `4096` is the most"].assert_eq(&refused);
    runner.open(link(3), 0);
    let acts = runner.say(link(3), b"GET /a/b HTTP/1.1\r\n\r\n");
    assert!(matches!(&acts[0], Act::Send(_, bytes) if bytes.ends_with(b"\r\n\r\n\x07\x07\x07")));
}

#[test]
fn a_second_request_is_not_heard_while_the_first_waits() {
    let mut runner = Runner::new(store(SMALL));
    runner.open(link(1), 0);
    let ask = b"GET /rank_and_size/a:0 HTTP/1.1\r\n\r\n";
    assert_eq!(runner.say(link(1), ask), []);
    let acts = runner.say(link(1), ask);
    let why = "a second request came before the first was answered";
    assert_eq!(acts, [Act::Say(why.to_owned()), Act::Close(link(1))]);
    assert_eq!(runner.protocol.asking().count(), 0);
}

#[test]
fn no_pickle_does_harm() {
    let good = support::bytes(
        "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c\
         093132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b\
         1c1d1e1f9486942e",
    );
    assert!(Worker::read(support::base64(&good).as_bytes()).is_some());
    for end in 0..good.len() {
        assert!(Worker::read(support::base64(&good[..end]).as_bytes()).is_none());
    }
    let known = b"\x80\x05\x95}](\x8cCKM\x86aesu\x94h.\x00\x01\x02";
    for seed in 0..20_000 {
        let mut chance = Chance::new(seed);
        let pickle: Vec<u8> = match chance.below(2) {
            0 => {
                let mut pickle = good.clone();
                let place = chance.below(pickle.len());
                pickle[place] = chance.number() as u8;
                pickle
            }
            _ => (0..chance.below(60)).map(|_| known[chance.below(known.len())]).collect(),
        };
        Worker::read(support::base64(&pickle).as_bytes());
    }
    // Deeper than any stack, if it were followed.
    let deep = [b"K\x01".to_vec(), b"K\x01\x86".repeat(20_000), b".".to_vec()].concat();
    assert!(Worker::read(support::base64(&deep).as_bytes()).is_none());
    let lists = [b"]".repeat(20_000), b"a".repeat(19_999), b".".to_vec()].concat();
    assert!(Worker::read(support::base64(&lists).as_bytes()).is_none());
}
