//! PyTorch's store among clients that say anything, in any pieces, and masters that die.

mod support;

use std::collections::BTreeMap;

use expect_test::expect;
use support::{
    ProtocolRunner, ReplayEntry, Rng,
    c10d::{TestDialect, command, told},
    link, peer,
};
use ydl_rendezvous::{
    Action, Effects, Protocol,
    c10d::{C10dLimits, C10dStore, KEY_MAX, LIST_MAX, MESSAGE_MAX},
};

const SMALL: C10dLimits = C10dLimits { stored_bytes: 4096, wait_bytes: 2048, response_bytes: 512 };

/// Every link speaks one dialect: 1 to 3 the newest, 4 that of torch 2.1, 5 that of torch 2.0.
fn speaks(number: u64) -> TestDialect {
    match number {
        1..=3 => TestDialect::New,
        4 => TestDialect::Extended,
        _ => TestDialect::Watching,
    }
}

/// What tells how a link speaks.
fn hello(number: u64) -> Vec<u8> {
    match speaks(number) {
        TestDialect::New => command(TestDialect::New, "validate"),
        TestDialect::Extended => command(TestDialect::Extended, "cancel"),
        TestDialect::Watching => command(TestDialect::Watching, "delete a"),
    }
}

fn any_command(rng: &mut Rng, number: u64) -> Vec<u8> {
    let key = rng.one_of(&["a", "b", "c", "''"]);
    let value = rng.one_of(&["1", "-7", "x", "''", "a-long-value-that-is-long"]);
    let old = [
        format!("set {key} {value}"),
        format!("compare_set {key} '' {value}"),
        format!("compare_set {key} {value} x"),
        format!("get {key}"),
        format!("add n{key} {}", rng.below(5)),
        format!("check {key} b"),
        format!("wait {key}"),
        "count".to_owned(),
        format!("delete {key}"),
    ];
    let extended = [
        format!("append {key} {value}"),
        format!("multi_get {key} b"),
        format!("multi_set {key} {value} c 3"),
        "cancel".to_owned(),
    ];
    let new = [
        "ping 9".to_owned(),
        format!("push {key} {value}"),
        format!("push {key} {value}"),
        format!("pop {key}"),
        format!("length {key}"),
        "list".to_owned(),
        format!("barrier w{key} {}", 1 + rng.below(3)),
    ];
    let all: Vec<String> = match speaks(number) {
        TestDialect::New => old.into_iter().chain(extended).chain(new).collect(),
        TestDialect::Extended => old.into_iter().chain(extended).collect(),
        TestDialect::Watching => old.into(),
    };
    command(speaks(number), &all[rng.below(all.len())])
}

fn opened(limits: C10dLimits) -> ProtocolRunner<C10dStore> {
    let mut runner = ProtocolRunner::new(C10dStore::new(limits));
    for number in 1..=5 {
        runner.open(link(number), number as u32);
        runner.say(link(number), &hello(number));
    }
    runner
}

#[test]
fn however_a_stream_is_cut_into_pieces_the_acts_are_the_same() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut whole = opened(SMALL);
        let mut cut = opened(SMALL);
        let steps: Vec<(u64, Vec<u8>)> = (0..40)
            .map(|_| {
                let number = 1 + rng.below(5) as u64;
                let said = (0..=rng.below(2)).flat_map(|_| any_command(&mut rng, number));
                (number, said.collect())
            })
            .collect();
        // A link may have said a part of what it says next long before the rest.
        let mut early: BTreeMap<u64, usize> = BTreeMap::new();
        for (place, (number, said)) in steps.iter().enumerate() {
            let expected = whole.say(link(*number), said);
            let rest = &said[early.remove(number).unwrap_or(0)..];
            let mut acts = Vec::new();
            for piece in rng.pieces(rest) {
                acts.extend(cut.say(link(*number), piece));
            }
            assert_eq!(acts, expected, "seed {seed}, step {place}");
            if let Some((_, next)) = steps[place + 1..].iter().find(|(of, _)| of == number)
                && let Some(first) = one(&whole, *number, next)
            {
                let part = rng.below(first);
                assert_eq!(cut.say(link(*number), &next[..part]), []);
                early.insert(*number, part);
            }
        }
        assert_eq!(whole.kept, cut.kept, "seed {seed}");
        assert_eq!(whole.protocol.bytes(), cut.protocol.bytes());
    }
}

/// How long the first message of these bytes is: found with a store of its own.
fn one(runner: &ProtocolRunner<C10dStore>, number: u64, said: &[u8]) -> Option<usize> {
    if !runner.is_open(link(number)) {
        return None;
    }
    let mut store = opened(C10dLimits::default()).protocol;
    store.receive(link(number), said, &mut Effects::default()).expect("what a client says")
}

#[test]
fn a_stream_that_ends_anywhere_has_said_its_whole_messages_and_nothing_else() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let messages: Vec<Vec<u8>> = (0..6).map(|_| any_command(&mut rng, 1)).collect();
        let stream = messages.concat();
        for end in 0..=stream.len() {
            let mut cut = opened(C10dLimits::default());
            let acts = cut.say(link(1), &stream[..end]);
            cut.close(link(1));
            let mut whole = opened(C10dLimits::default());
            let mut expected = Vec::new();
            let mut said = 0;
            for message in &messages {
                said += message.len();
                if said <= end {
                    expected.extend(whole.say(link(1), message));
                }
            }
            whole.close(link(1));
            assert_eq!(acts, expected, "seed {seed}, {end} bytes");
            assert_eq!(cut.kept, whole.kept, "seed {seed}, {end} bytes");
        }
    }
}

#[test]
fn no_bytes_do_harm_and_nothing_grows_beyond_its_limits() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut runner = opened(SMALL);
        for _ in 0..30 {
            let number = 1 + rng.below(6) as u64;
            let mut said = match rng.below(4) {
                0 => rng.bytes(40),
                _ => any_command(&mut rng, number),
            };
            if rng.below(3) == 0 && !said.is_empty() {
                let place = rng.below(said.len());
                said[place] ^= 1 << rng.below(8);
            }
            if !runner.is_open(link(number)) {
                runner.open(link(number), number as u32);
                if rng.below(2) == 0 && number < 6 {
                    runner.say(link(number), &hello(number));
                }
            }
            let acts = runner.say(link(number), &said);
            if rng.below(20) == 0 {
                runner.close(link(number));
            }
            let (stored, awaited) = runner.protocol.bytes();
            assert!(stored <= SMALL.stored_bytes, "seed {seed}");
            assert!(awaited <= 2 * SMALL.wait_bytes, "seed {seed}");
            for act in acts {
                if let Action::Send(_, bytes) = act {
                    assert!(bytes.len() <= SMALL.response_bytes + 16, "seed {seed}");
                }
            }
        }
        for number in 1..=6 {
            runner.close(link(number));
        }
        assert_eq!(runner.protocol.bytes().1, 0, "seed {seed}: nobody is left to wait");
    }
}

#[test]
fn a_new_master_goes_on_where_the_old_one_stopped() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let mut old = opened(C10dLimits::default());
        // Waits that were not written down: those who wait ask again, in the order of their waiting.
        let mut waiting: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut first = Vec::new();
        for _ in 0..rng.below(40) {
            let number = 1 + rng.below(5) as u64;
            let said = any_command(&mut rng, number);
            // Of two who wait for a queue, a push wakes one; the other, asking again before that one has popped, is
            // answered too.
            let push = command(TestDialect::New, "push q 1")[0];
            if speaks(number) == TestDialect::New && said[0] == push && !waiting.is_empty() {
                continue;
            }
            let kept = old.kept.len();
            let acts = old.say(link(number), &said);
            first.extend(acts.iter().cloned());
            waiting.retain(|(of, _)| *of != number);
            let wait = command(speaks(number), "wait")[0];
            if said[0] == wait && acts.is_empty() && old.kept.len() == kept {
                waiting.push((number, said));
            }
            waiting.retain(|(of, _)| {
                !acts.iter().any(|act| matches!(act, Action::Send(to, _) if *to == link(*of)))
            });
        }
        let (mut new, again) = old.replayed(C10dStore::default());
        assert_eq!(new.kept, old.kept, "seed {seed}");
        for act in &again {
            assert!(first.contains(act) || is_hello(act), "seed {seed}: {act:?} was never said");
        }
        for (number, said) in &waiting {
            assert_eq!(new.say(link(*number), said), [], "seed {seed}");
        }
        assert_eq!(new.protocol.bytes(), old.protocol.bytes(), "seed {seed}");
        for place in 0..30 {
            let number = 1 + rng.below(5) as u64;
            let said = any_command(&mut rng, number);
            let (expected, acts) = (old.say(link(number), &said), new.say(link(number), &said));
            assert_eq!(acts, expected, "seed {seed}, step {place}");
        }
    }
}

/// Answers to what [`hello`] says.
fn is_hello(act: &Action) -> bool {
    matches!(act, Action::Send(_, bytes) if *bytes == [1] || *bytes == [0; 8])
}

#[test]
fn what_only_reads_is_not_kept() {
    let mut runner = opened(C10dLimits::default());
    let words = [
        "set a 1",
        "push q 1",
        "add n 1", // These are.
        "get a",
        "check a",
        "wait z",
        "count",
        "multi_get a b",
        "cancel",
        "ping 1",
        "length q",
        "list",
        "pop absent",
        "delete absent",
        "compare_set a 2 3",
        "add n 0",
        "wait z",
        "cancel",
    ];
    let before = runner.kept.len();
    for words in words {
        runner.say(link(1), &command(TestDialect::New, words));
    }
    assert_eq!(runner.kept.len() - before, 3);
}

#[test]
fn the_end_of_a_wait_that_was_kept_is_kept() {
    // The first word of an old client tells how it speaks, and may be a wait.
    for end in ["count", "close", "nonsense"] {
        let mut runner = ProtocolRunner::new(C10dStore::default());
        runner.open(link(1), 1);
        runner.open(link(5), 5);
        runner.say(link(5), &command(TestDialect::Watching, "wait a"));
        match end {
            "close" => drop(runner.close(link(5))),
            "nonsense" => drop(runner.say(link(5), &[99])),
            words => drop(runner.say(link(5), &command(TestDialect::Watching, words))),
        }
        runner.say(link(1), &command(TestDialect::New, "validate"));
        runner.say(link(1), &command(TestDialect::New, "set a 1"));
        let (_, again) = runner.replayed(C10dStore::default());
        let woken = Action::Send(link(5), vec![0]);
        assert!(!again.contains(&woken), "{end}: {again:?}");
        assert!(matches!(runner.kept[1], ReplayEntry::Message(of, _) if of == link(5)));
    }
}

#[test]
fn a_barrier_is_remembered_with_those_who_wait_at_it() {
    let mut runner = opened(C10dLimits::default());
    runner.say(link(1), &command(TestDialect::New, "barrier b 2"));
    let (mut new, _) = runner.replayed(C10dStore::default());
    expect![[r#"
        1 < 0
        2 < 0
    "#]]
    .assert_eq(&told(&new.say(link(2), &command(TestDialect::New, "barrier b 2"))));
}

fn announced(number: u8, lengths: &[u64]) -> Vec<u8> {
    let lengths = lengths.iter().flat_map(|length| length.to_le_bytes());
    std::iter::once(number).chain(lengths).collect()
}

#[test]
fn what_is_too_long_is_refused_when_it_is_announced() {
    let cases = [
        (announced(3, &[KEY_MAX as u64 + 1]), "key length `8193` exceeds the maximum of `8192`"),
        (
            announced(1, &[0, MESSAGE_MAX as u64 + 1]),
            "value length `1048577` exceeds the maximum of `1048576`",
        ),
        (
            announced(6, &[LIST_MAX as u64 + 1]),
            "list length `131073` exceeds the maximum of `131072`",
        ),
        (announced(11, &[4 << 30]), "list length `4294967296` exceeds the maximum of `131072`"),
        (
            announced(1, &[u64::MAX]),
            "key length `18446744073709551615` exceeds the maximum of `8192`",
        ),
    ];
    for (said, why) in cases {
        let mut runner = opened(C10dLimits::default());
        assert_eq!(told(&runner.say(link(1), &said)), format!("{why}\n1 closed\n"));
    }
}

#[test]
fn a_message_that_would_be_too_long_is_refused_when_that_is_clear() {
    let why = "message of at least `1048585` bytes exceeds the maximum of `1048576`";
    let list = announced(6, &[LIST_MAX as u64]);
    let mut runner = opened(C10dLimits::default());
    assert_eq!(told(&runner.say(link(1), &list)), format!("{why}\n1 closed\n"));
    // Whether it is clear before all of it is there, or afterwards.
    let whole = [list, vec![0; LIST_MAX * 8]].concat();
    let mut runner = opened(C10dLimits::default());
    assert_eq!(told(&runner.say(link(2), &whole)), format!("{why}\n2 closed\n"));
}

#[test]
fn the_longest_key_and_value_are_stored() {
    let mut store = opened(C10dLimits::default()).protocol;
    let value = MESSAGE_MAX - KEY_MAX - 17;
    let mut said = announced(1, &[KEY_MAX as u64]);
    said.resize(said.len() + KEY_MAX, b'k');
    said.extend((value as u64).to_le_bytes());
    said.resize(said.len() + value, b'v');
    let taken = store.receive(link(1), &said, &mut Effects::default());
    assert_eq!(taken, Ok(Some(MESSAGE_MAX)));
}

#[test]
fn a_long_list_may_come_byte_by_byte() {
    let mut store = C10dStore::default();
    store.open(link(1), &peer(1), &mut Effects::default());
    let many = 80_000;
    let mut said = announced(5, &[many]);
    for _ in 0..many {
        said.extend(4_u64.to_le_bytes());
        said.extend(b"rank");
    }
    for end in 1..said.len() {
        let taken = store.receive(link(1), &said[..end], &mut Effects::default());
        assert_eq!(taken, Ok(None));
    }
    let taken = store.receive(link(1), &said, &mut Effects::default());
    assert_eq!(taken, Ok(Some(said.len())));
}

#[test]
fn a_full_store_refuses_one_link_and_goes_on_with_the_others() {
    let mut runner = opened(SMALL);
    runner.say(link(1), &command(TestDialect::New, "set a 1"));
    let large = format!("set b {}", "x".repeat(4000));
    expect![[r#"
        store is full: `130` bytes stored, `4129` requested, `4096` allowed
        2 closed
    "#]]
    .assert_eq(&told(&runner.say(link(2), &command(TestDialect::New, &large))));
    let many = format!("multi_set c 1 d {}", "x".repeat(4000));
    expect![[r#"
        store is full: `130` bytes stored, `4259` requested, `4096` allowed
        3 closed
    "#]]
    .assert_eq(&told(&runner.say(link(3), &command(TestDialect::New, &many))));
    expect![[r#"
        1 < i64 1
        1 < `1`
    "#]]
    .assert_eq(&told(&runner.say(
        link(1),
        &[command(TestDialect::New, "count"), command(TestDialect::New, "get a")].concat(),
    )));
}

#[test]
fn what_was_deleted_or_popped_leaves_its_room() {
    let mut runner = opened(SMALL);
    for _ in 0..100 {
        for words in ["set a 1", "append a 2", "push q 1", "push q 2", "pop q", "pop q", "delete a"]
        {
            runner.say(link(1), &command(TestDialect::New, words));
        }
        assert_eq!(runner.protocol.bytes(), (0, 0));
    }
}

#[test]
fn an_answer_that_would_be_too_long_is_refused() {
    let mut runner = opened(SMALL);
    let value = "x".repeat(300);
    runner.say(link(1), &command(TestDialect::New, &format!("set a {value}")));
    expect![[r#"
        response of `616` bytes exceeds the maximum of `512`
        1 closed
    "#]]
    .assert_eq(&told(&runner.say(link(1), &command(TestDialect::New, "multi_get a a"))));
}

#[test]
fn whoever_waits_for_too_much_is_refused() {
    let mut runner = opened(SMALL);
    expect![[r#"
        too many waits: `0` bytes in use, `2058` requested, `2048` allowed
        1 closed
    "#]]
    .assert_eq(&told(&runner.say(link(1), &command(TestDialect::New, "wait 1 2 3 4 5 6 7 890"))));
}

#[test]
fn watchers_who_cannot_all_be_told_are_closed() {
    let mut runner = opened(SMALL);
    for number in 11..=13 {
        runner.open(link(number), 1);
        runner.say(link(number), &command(TestDialect::Watching, "watch a"));
    }
    let set = format!("set a {}", "x".repeat(200));
    let acts = runner.say(link(1), &command(TestDialect::New, &set));
    assert!(
        matches!(&acts[..], [
        Action::Send(first, _),
        Action::Send(second, _),
        Action::Close(third),
    ] if [first, second, third] == [&link(11), &link(12), &link(13)]),
        "{acts:?}"
    );
}
