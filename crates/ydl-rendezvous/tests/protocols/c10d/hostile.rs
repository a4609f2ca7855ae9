//! PyTorch's store with arbitrary input, fragmentation and failovers.

use std::collections::BTreeMap;

use crate::support::{
    ProtocolRunner, ReplayEntry, Rng,
    c10d::{TestDialect, command, format_actions},
    link, peer,
};
use expect_test::expect;
use ydl_rendezvous::{
    Action, Effects, Protocol,
    c10d::{C10dLimits, C10dStore, KEY_MAX, LIST_MAX, MESSAGE_MAX},
};

const SMALL: C10dLimits = C10dLimits { stored_bytes: 4096, wait_bytes: 2048, response_bytes: 512 };

/// Returns the dialect of a link: 1 to 3 the newest, 4 that of torch 2.1, 5 that of torch 2.0.
fn dialect(number: u64) -> TestDialect {
    match number {
        1..=3 => TestDialect::New,
        4 => TestDialect::Torch21,
        _ => TestDialect::Torch20,
    }
}

/// Returns a command that determines the dialect of a link.
fn hello(number: u64) -> Vec<u8> {
    match dialect(number) {
        TestDialect::New => command(TestDialect::New, "validate"),
        TestDialect::Torch21 => command(TestDialect::Torch21, "cancel"),
        TestDialect::Torch20 => command(TestDialect::Torch20, "delete a"),
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
    let all: Vec<String> = match dialect(number) {
        TestDialect::New => old.into_iter().chain(extended).chain(new).collect(),
        TestDialect::Torch21 => old.into_iter().chain(extended).collect(),
        TestDialect::Torch20 => old.into(),
    };
    command(dialect(number), &all[rng.below(all.len())])
}

fn opened(limits: C10dLimits) -> ProtocolRunner<C10dStore> {
    let mut runner = ProtocolRunner::new(C10dStore::new(limits));
    for number in 1..=5 {
        runner.open(link(number), number as u32);
        runner.feed(link(number), &hello(number));
    }
    runner
}

#[test]
fn fragmentation_does_not_change_the_actions() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut whole = opened(SMALL);
        let mut cut = opened(SMALL);
        let steps: Vec<(u64, Vec<u8>)> = (0..40)
            .map(|_| {
                let number = 1 + rng.below(5) as u64;
                let input = (0..=rng.below(2)).flat_map(|_| any_command(&mut rng, number));
                (number, input.collect())
            })
            .collect();
        // A link may have sent a part of its next message long before the rest.
        let mut early: BTreeMap<u64, usize> = BTreeMap::new();
        for (place, (number, input)) in steps.iter().enumerate() {
            let expected = whole.feed(link(*number), input);
            let rest = &input[early.remove(number).unwrap_or(0)..];
            let mut actions = Vec::new();
            for chunk in rng.split(rest) {
                actions.extend(cut.feed(link(*number), chunk));
            }
            assert_eq!(actions, expected, "seed {seed}, step {place}");
            if let Some((_, next)) = steps[place + 1..].iter().find(|(of, _)| of == number)
                && let Some(first) = first_message_len(&whole, *number, next)
            {
                let part = rng.below(first);
                assert_eq!(cut.feed(link(*number), &next[..part]), []);
                early.insert(*number, part);
            }
        }
        assert_eq!(whole.persisted, cut.persisted, "seed {seed}");
        assert_eq!(whole.protocol.bytes(), cut.protocol.bytes());
    }
}

/// Returns the length of the first message, as determined by a separate store.
fn first_message_len(
    runner: &ProtocolRunner<C10dStore>,
    number: u64,
    input: &[u8],
) -> Option<usize> {
    if !runner.is_open(link(number)) {
        return None;
    }
    let mut store = opened(C10dLimits::default()).protocol;
    store.receive(link(number), input, &mut Effects::default()).expect("what a client says")
}

#[test]
fn a_truncated_stream_contains_its_complete_messages_only() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let messages: Vec<Vec<u8>> = (0..6).map(|_| any_command(&mut rng, 1)).collect();
        let stream = messages.concat();
        for end in 0..=stream.len() {
            let mut cut = opened(C10dLimits::default());
            let actions = cut.feed(link(1), &stream[..end]);
            cut.close(link(1));
            let mut whole = opened(C10dLimits::default());
            let mut expected = Vec::new();
            let mut input = 0;
            for message in &messages {
                input += message.len();
                if input <= end {
                    expected.extend(whole.feed(link(1), message));
                }
            }
            whole.close(link(1));
            assert_eq!(actions, expected, "seed {seed}, {end} bytes");
            assert_eq!(cut.persisted, whole.persisted, "seed {seed}, {end} bytes");
        }
    }
}

#[test]
fn arbitrary_bytes_stay_within_the_memory_limits() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut runner = opened(SMALL);
        for _ in 0..30 {
            let number = 1 + rng.below(6) as u64;
            let mut input = match rng.below(4) {
                0 => rng.bytes(40),
                _ => any_command(&mut rng, number),
            };
            if rng.below(3) == 0 && !input.is_empty() {
                let place = rng.below(input.len());
                input[place] ^= 1 << rng.below(8);
            }
            if !runner.is_open(link(number)) {
                runner.open(link(number), number as u32);
                if rng.below(2) == 0 && number < 6 {
                    runner.feed(link(number), &hello(number));
                }
            }
            let actions = runner.feed(link(number), &input);
            if rng.below(20) == 0 {
                runner.close(link(number));
            }
            let (stored, awaited) = runner.protocol.bytes();
            assert!(stored <= SMALL.stored_bytes, "seed {seed}");
            assert!(awaited <= 2 * SMALL.wait_bytes, "seed {seed}");
            for action in actions {
                if let Action::Send(_, bytes) = action {
                    assert!(bytes.len() <= SMALL.response_bytes + 16, "seed {seed}");
                }
            }
        }
        for number in 1..=6 {
            runner.close(link(number));
        }
        assert_eq!(runner.protocol.bytes().1, 0, "seed {seed}: no wait is left");
    }
}

#[test]
fn a_new_master_continues_where_the_old_one_stopped() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let mut old = opened(C10dLimits::default());
        // Waits that were not persisted: the clients repeat them, in the order of their waits.
        let mut waiting: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut first = Vec::new();
        for _ in 0..rng.below(40) {
            let number = 1 + rng.below(5) as u64;
            let input = any_command(&mut rng, number);
            // A push wakes one of two links that wait for a queue. If the other repeats its wait before the first one
            // pops, it gets a response too.
            let push = command(TestDialect::New, "push q 1")[0];
            if dialect(number) == TestDialect::New && input[0] == push && !waiting.is_empty() {
                continue;
            }
            let persisted = old.persisted.len();
            let actions = old.feed(link(number), &input);
            first.extend(actions.iter().cloned());
            waiting.retain(|(of, _)| *of != number);
            let wait = command(dialect(number), "wait")[0];
            if input[0] == wait && actions.is_empty() && old.persisted.len() == persisted {
                waiting.push((number, input));
            }
            waiting.retain(|(of, _)| {
                !actions
                    .iter()
                    .any(|action| matches!(action, Action::Send(to, _) if *to == link(*of)))
            });
        }
        let (mut new, again) = old.replayed(C10dStore::default());
        assert_eq!(new.persisted, old.persisted, "seed {seed}");
        for action in &again {
            assert!(
                first.contains(action) || is_hello(action),
                "seed {seed}: {action:?} was never input"
            );
        }
        for (number, input) in &waiting {
            assert_eq!(new.feed(link(*number), input), [], "seed {seed}");
        }
        assert_eq!(new.protocol.bytes(), old.protocol.bytes(), "seed {seed}");
        for place in 0..30 {
            let number = 1 + rng.below(5) as u64;
            let input = any_command(&mut rng, number);
            let (expected, actions) =
                (old.feed(link(number), &input), new.feed(link(number), &input));
            assert_eq!(actions, expected, "seed {seed}, step {place}");
        }
    }
}

/// Returns true for responses to [`hello`].
fn is_hello(action: &Action) -> bool {
    matches!(action, Action::Send(_, bytes) if *bytes == [1] || *bytes == [0; 8])
}

#[test]
fn reads_are_not_persisted() {
    let mut runner = opened(C10dLimits::default());
    let words = [
        "set a 1",
        "push q 1",
        "add n 1", // Persisted from here on.
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
    let before = runner.persisted.len();
    for words in words {
        runner.feed(link(1), &command(TestDialect::New, words));
    }
    assert_eq!(runner.persisted.len() - before, 3);
}

#[test]
fn the_end_of_a_persisted_wait_is_persisted() {
    // The first command of a legacy client determines its dialect, and may be a wait.
    for end in ["count", "close", "nonsense"] {
        let mut runner = ProtocolRunner::new(C10dStore::default());
        runner.open(link(1), 1);
        runner.open(link(5), 5);
        runner.feed(link(5), &command(TestDialect::Torch20, "wait a"));
        match end {
            "close" => drop(runner.close(link(5))),
            "nonsense" => drop(runner.feed(link(5), &[99])),
            words => drop(runner.feed(link(5), &command(TestDialect::Torch20, words))),
        }
        runner.feed(link(1), &command(TestDialect::New, "validate"));
        runner.feed(link(1), &command(TestDialect::New, "set a 1"));
        let (_, again) = runner.replayed(C10dStore::default());
        let woken = Action::Send(link(5), vec![0]);
        assert!(!again.contains(&woken), "{end}: {again:?}");
        assert!(matches!(runner.persisted[1], ReplayEntry::Message(of, _) if of == link(5)));
    }
}

#[test]
fn a_barrier_and_its_waits_survive_a_failover() {
    let mut runner = opened(C10dLimits::default());
    runner.feed(link(1), &command(TestDialect::New, "barrier b 2"));
    let (mut new, _) = runner.replayed(C10dStore::default());
    expect![[r#"
        1 < 0
        2 < 0
    "#]]
    .assert_eq(&format_actions(&new.feed(link(2), &command(TestDialect::New, "barrier b 2"))));
}

fn announced(number: u8, lengths: &[u64]) -> Vec<u8> {
    let lengths = lengths.iter().flat_map(|length| length.to_le_bytes());
    std::iter::once(number).chain(lengths).collect()
}

#[test]
fn an_oversized_length_is_rejected_at_once() {
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
    for (input, why) in cases {
        let mut runner = opened(C10dLimits::default());
        assert_eq!(format_actions(&runner.feed(link(1), &input)), format!("{why}\n1 closed\n"));
    }
}

#[test]
fn an_oversized_message_is_rejected_once_detected() {
    let why = "message of at least `1048585` bytes exceeds the maximum of `1048576`";
    let list = announced(6, &[LIST_MAX as u64]);
    let mut runner = opened(C10dLimits::default());
    assert_eq!(format_actions(&runner.feed(link(1), &list)), format!("{why}\n1 closed\n"));
    // Detected either before or after the message is complete.
    let whole = [list, vec![0; LIST_MAX * 8]].concat();
    let mut runner = opened(C10dLimits::default());
    assert_eq!(format_actions(&runner.feed(link(2), &whole)), format!("{why}\n2 closed\n"));
}

#[test]
fn the_longest_key_and_value_are_stored() {
    let mut store = opened(C10dLimits::default()).protocol;
    let value = MESSAGE_MAX - KEY_MAX - 17;
    let mut input = announced(1, &[KEY_MAX as u64]);
    input.resize(input.len() + KEY_MAX, b'k');
    input.extend((value as u64).to_le_bytes());
    input.resize(input.len() + value, b'v');
    let taken = store.receive(link(1), &input, &mut Effects::default());
    assert_eq!(taken, Ok(Some(MESSAGE_MAX)));
}

#[test]
fn a_long_list_can_arrive_byte_by_byte() {
    let mut store = C10dStore::default();
    store.open(link(1), &peer(1), &mut Effects::default());
    let many = 80_000;
    let mut input = announced(5, &[many]);
    for _ in 0..many {
        input.extend(4_u64.to_le_bytes());
        input.extend(b"rank");
    }
    for end in 1..input.len() {
        let taken = store.receive(link(1), &input[..end], &mut Effects::default());
        assert_eq!(taken, Ok(None));
    }
    let taken = store.receive(link(1), &input, &mut Effects::default());
    assert_eq!(taken, Ok(Some(input.len())));
}

#[test]
fn a_full_store_closes_one_link_and_serves_the_others() {
    let mut runner = opened(SMALL);
    runner.feed(link(1), &command(TestDialect::New, "set a 1"));
    let large = format!("set b {}", "x".repeat(4000));
    expect![[r#"
        store is full: `130` bytes stored, `4129` requested, `4096` allowed
        2 closed
    "#]]
    .assert_eq(&format_actions(&runner.feed(link(2), &command(TestDialect::New, &large))));
    let many = format!("multi_set c 1 d {}", "x".repeat(4000));
    expect![[r#"
        store is full: `130` bytes stored, `4259` requested, `4096` allowed
        3 closed
    "#]]
    .assert_eq(&format_actions(&runner.feed(link(3), &command(TestDialect::New, &many))));
    expect![[r#"
        1 < i64 1
        1 < `1`
    "#]]
    .assert_eq(&format_actions(&runner.feed(
        link(1),
        &[command(TestDialect::New, "count"), command(TestDialect::New, "get a")].concat(),
    )));
}

#[test]
fn deleted_and_popped_values_free_their_memory() {
    let mut runner = opened(SMALL);
    for _ in 0..100 {
        for words in ["set a 1", "append a 2", "push q 1", "push q 2", "pop q", "pop q", "delete a"]
        {
            runner.feed(link(1), &command(TestDialect::New, words));
        }
        assert_eq!(runner.protocol.bytes(), (0, 0));
    }
}

#[test]
fn an_oversized_response_closes_the_link() {
    let mut runner = opened(SMALL);
    let value = "x".repeat(300);
    runner.feed(link(1), &command(TestDialect::New, &format!("set a {value}")));
    expect![[r#"
        response of `616` bytes exceeds the maximum of `512`
        1 closed
    "#]]
    .assert_eq(&format_actions(&runner.feed(link(1), &command(TestDialect::New, "multi_get a a"))));
}

#[test]
fn a_wait_beyond_the_memory_limit_is_rejected() {
    let mut runner = opened(SMALL);
    expect![[r#"
        too many waits: `0` bytes in use, `2058` requested, `2048` allowed
        1 closed
    "#]]
    .assert_eq(&format_actions(
        &runner.feed(link(1), &command(TestDialect::New, "wait 1 2 3 4 5 6 7 890")),
    ));
}

#[test]
fn watchers_that_cannot_be_notified_are_closed() {
    let mut runner = opened(SMALL);
    for number in 11..=13 {
        runner.open(link(number), 1);
        runner.feed(link(number), &command(TestDialect::Torch20, "watch a"));
    }
    let set = format!("set a {}", "x".repeat(200));
    let actions = runner.feed(link(1), &command(TestDialect::New, &set));
    assert!(
        matches!(&actions[..], [
        Action::Send(first, _),
        Action::Send(second, _),
        Action::Close(third),
    ] if [first, second, third] == [&link(11), &link(12), &link(13)]),
        "{actions:?}"
    );
}
