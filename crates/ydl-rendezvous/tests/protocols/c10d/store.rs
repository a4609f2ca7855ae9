//! PyTorch's store: recorded exchanges of torch's clients and servers, and the semantics of each command.

use crate::support::{
    ProtocolRunner, bytes,
    c10d::{TestDialect, command, format_actions},
    hex, link,
};
use expect_test::{Expect, expect};
use ydl_rendezvous::{Action, Protocol, c10d::C10dStore};

/// Replays the input of a transcript and compares the output. A line is input (`>`) or output (`<`) of a link, by
/// default the first one.
fn replay(transcript: &str) {
    let mut runner = ProtocolRunner::new(C10dStore::default());
    let mut output = String::new();
    let mut expected = String::new();
    for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (who, input) = line.split_once(['>', '<']).expect("a line has a direction");
        let number: u64 = who.trim().parse().unwrap_or(1);
        if line.contains('<') {
            expected += &format!("{number} < {}\n", hex(&bytes(input)));
            continue;
        }
        if !runner.is_open(link(number)) {
            runner.open(link(number), number as u32);
        }
        for action in runner.feed(link(number), &bytes(input)) {
            let Action::Send(to, answer) = action else {
                panic!("{action:?} after {line}");
            };
            let to = (1..9).find(|number| link(*number) == to).expect("a known link");
            output += &format!("{to} < {}\n", hex(&answer));
        }
    }
    assert_eq!(output, expected);
}

/// Runs a command per line, after the number of its link: `2 wait key`. Links 1 to 4 use the dialect of torch 2.2 and
/// later, 5 and 6 that of torch 2.1, 7 and 8 that of torch 2.0.
fn run(runner: &mut ProtocolRunner<C10dStore>, script: &str) -> String {
    let mut all = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (number, words) = line.split_once(' ').expect("a link and a command");
        let number: u64 = number.parse().expect("the number of a link");
        let dialect = match number {
            1..=4 => TestDialect::New,
            5..=6 => TestDialect::Torch21,
            _ => TestDialect::Torch20,
        };
        if words == "close" {
            all += &format_actions(&runner.close(link(number)));
            continue;
        }
        if !runner.is_open(link(number)) {
            runner.open(link(number), number as u32);
            if dialect == TestDialect::New && words != "validate" {
                runner.feed(link(number), &command(dialect, "validate"));
            }
        }
        all += &format_actions(&runner.feed(link(number), &command(dialect, words)));
    }
    all
}

fn check(script: &str, expected: Expect) {
    expected.assert_eq(&run(&mut ProtocolRunner::new(C10dStore::default()), script));
}

#[test]
fn a_client_of_torch_2_15_gets_the_responses_of_torch() {
    replay(
        "
        > 00 ce f7 85 3c  0d 40 73 00 00
        < 40 73 00 00
        > 04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00
        < 01 00 00 00 00 00 00 00
        > 01 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31
        > 06 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61
        < 00
        > 03 02 00 00 00 00 00 00 00 2f 61
        < 01 00 00 00 00 00 00 00 31
        > 04 02 00 00 00 00 00 00 00 2f 6e 05 00 00 00 00 00 00 00
        < 05 00 00 00 00 00 00 00
        > 04 02 00 00 00 00 00 00 00 2f 6e f9 ff ff ff ff ff ff ff
        < fe ff ff ff ff ff ff ff
        > 03 02 00 00 00 00 00 00 00 2f 6e
        < 02 00 00 00 00 00 00 00 2d 32
        > 02 02 00 00 00 00 00 00 00 2f 63 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 76 31
        < 02 00 00 00 00 00 00 00 76 31
        > 02 02 00 00 00 00 00 00 00 2f 63 02 00 00 00 00 00 00 00 76 31 02 00 00 00 00 00 00 00 76 32
        < 02 00 00 00 00 00 00 00 76 32
        > 02 02 00 00 00 00 00 00 00 2f 63 02 00 00 00 00 00 00 00 7a 7a 02 00 00 00 00 00 00 00 76 33
        < 02 00 00 00 00 00 00 00 76 32
        > 02 03 00 00 00 00 00 00 00 2f 63 32 01 00 00 00 00 00 00 00 78 01 00 00 00 00 00 00 00 79
        < 01 00 00 00 00 00 00 00 78
        > 05 01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 63 32
        < 01
        > 08 02 00 00 00 00 00 00 00 2f 61
        < 01 00 00 00 00 00 00 00
        > 08 02 00 00 00 00 00 00 00 2f 61
        < 00 00 00 00 00 00 00 00
        > 07
        < 03 00 00 00 00 00 00 00
        > 06 02 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 2f 6e 6f 70 65 06 00 00 00 00 00 00 00 2f 6e 6f 70 65 32
        > 0c
        < 01
        > 09 03 00 00 00 00 00 00 00 2f 61 70 01 00 00 00 00 00 00 00 78
        > 0b 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6d 31 01 00 00 00 00 00 00 00 31 03 00 00 00 00 00 00 00 2f 6d 32 02 00 00 00 00 00 00 00 32 32
        > 0a 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6d 31 03 00 00 00 00 00 00 00 2f 6d 32
        < 01 00 00 00 00 00 00 00 31 02 00 00 00 00 00 00 00 32 32
        > 0e 02 00 00 00 00 00 00 00 2f 71 01 00 00 00 00 00 00 00 31
        > 0e 02 00 00 00 00 00 00 00 2f 71 01 00 00 00 00 00 00 00 32
        > 0f 02 00 00 00 00 00 00 00 2f 71
        < 02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 31
        > 10 02 00 00 00 00 00 00 00 2f 71
        < 01 00 00 00 00 00 00 00
        > 12 04 00 00 00 00 00 00 00 2f 62 61 72 02 00 00 00 00 00 00 00
        2 > 00 ce f7 85 3c
        2 > 12 04 00 00 00 00 00 00 00 2f 62 61 72 02 00 00 00 00 00 00 00
        1 < 00
        2 < 00
        > 03 04 00 00 00 00 00 00 00 2f 62 61 72
        < 01 00 00 00 00 00 00 00 32
        ",
    );
}

#[test]
fn a_cancel_after_a_wait_was_satisfied_gets_both_responses() {
    replay(
        "
        > 00 ce f7 85 3c
        > 06 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61
        2 > 00 ce f7 85 3c 01 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31
        1 < 00
        1 > 0c
        1 < 01
        ",
    );
}

#[test]
fn keys_are_listed_with_their_slash() {
    replay(
        "
        > 00 ce f7 85 3c 01 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31
        > 04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00
        < 01 00 00 00 00 00 00 00
        > 11
        < 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 05 00 00 00 00 00 00 00 69 6e 69 74 2f
        ",
    );
}

#[test]
fn a_client_of_torch_2_1_gets_the_responses_of_torch() {
    replay(
        "
        > 03 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00
        < 01 00 00 00 00 00 00 00
        > 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31
        > 06
        < 02 00 00 00 00 00 00 00
        > 07 02 00 00 00 00 00 00 00 2f 61
        < 01 00 00 00 00 00 00 00
        > 08 02 00 00 00 00 00 00 00 2f 62 01 00 00 00 00 00 00 00 78
        > 0a 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 63 01 00 00 00 00 00 00 00 79
        > 09 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 62 02 00 00 00 00 00 00 00 2f 63
        < 01 00 00 00 00 00 00 00 78 01 00 00 00 00 00 00 00 79
        > 05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 64
        > 0b
        < 01
        ",
    );
}

#[test]
fn a_client_of_torch_2_0_gets_the_responses_of_torch() {
    replay(
        "
        > 03 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00
        < 01 00 00 00 00 00 00 00
        > 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31
        > 06
        < 02 00 00 00 00 00 00 00
        > 08 02 00 00 00 00 00 00 00 2f 61
        < 01 00 00 00 00 00 00 00
        > 08 02 00 00 00 00 00 00 00 2f 61
        < 00 00 00 00 00 00 00 00
        ",
    );
}

#[test]
fn a_legacy_client_can_start_with_a_key_of_46_bytes() {
    replay(&format!(
        "> 00 2e 00 00 00 00 00 00 00 {} 01 00 00 00 00 00 00 00 31\n> 06\n< 01 00 00 00 00 00 00 00",
        "2f ".repeat(46)
    ));
}

#[test]
fn clients_of_every_torch_share_one_store() {
    check(
        "
        1 ping 7
        1 set a 1
        5 get a
        7 add a 1
        5 append b x
        7 get b
        1 get a
        ",
        expect![[r#"
            1 < 07 00 00 00
            5 < `1`
            7 < i64 2
            7 < `x`
            1 < `2`
        "#]],
    );
}

#[test]
fn a_detected_torch_2_1_client_can_append() {
    check(
        "5 cancel\n5 append b x\n5 append b y\n5 get b\n5 delete b",
        expect![[r#"
            5 < 1
            5 < `xy`
            5 < i64 1
        "#]],
    );
}

#[test]
fn a_legacy_watch_is_notified_of_every_change() {
    check(
        "
        7 watch a
        1 set a 1
        1 set a 2
        1 set b 2
        1 delete a
        7 close
        1 set a 3
        ",
        expect![[r#"
            7 < 3
            7 < 01 01 00 00 00 00 00 00 00 61 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 31
            7 < 00 01 00 00 00 00 00 00 00 61 01 00 00 00 00 00 00 00 31 01 00 00 00 00 00 00 00 32
            7 < 02 01 00 00 00 00 00 00 00 61 01 00 00 00 00 00 00 00 32 00 00 00 00 00 00 00 00
            1 < i64 1
        "#]],
    );
}

#[test]
fn compare_set_with_an_empty_expectation_stores_an_absent_key() {
    check(
        "1 compare_set a '' v\n1 get a",
        expect![[r#"
        1 < `v`
        1 < `v`
    "#]],
    );
}

#[test]
fn compare_set_of_an_absent_key_returns_the_expectation_and_stores_nothing() {
    check(
        "1 compare_set a x v\n1 check a",
        expect![[r#"
        1 < `x`
        1 < 1
    "#]],
    );
}

#[test]
fn compare_set_returns_the_stored_value() {
    check(
        "1 set a v\n1 compare_set a v w\n1 compare_set a v x",
        expect![[r#"
        1 < `w`
        1 < `w`
    "#]],
    );
}

#[test]
fn compare_set_wakes_waiting_links() {
    check(
        "1 wait a\n2 compare_set a '' v",
        expect![[r#"
        1 < 0
        2 < `v`
    "#]],
    );
}

#[test]
fn an_absent_key_reads_as_empty() {
    check(
        "1 set a v\n1 get b\n1 multi_get b a",
        expect![[r#"
        1 < i64 0
        1 < 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 76
    "#]],
    );
}

#[test]
fn adding_to_a_value_that_is_not_a_number_closes_the_link() {
    check(
        "1 set a v\n1 add a 1\n2 get a",
        expect![[r#"
        cannot add to a value that is not a number
        1 closed
        2 < `v`
    "#]],
    );
}

#[test]
fn numbers_are_parsed_like_stoll() {
    check(
        "1 set a +7x\n1 add a 1\n1 set a 9223372036854775808\n1 add a 1",
        expect![[r#"
        1 < i64 8
        cannot add to a value that is not a number
        1 closed
    "#]],
    );
}

#[test]
fn an_unknown_command_closes_the_link() {
    let mut runner = ProtocolRunner::new(C10dStore::default());
    run(&mut runner, "1 set a v");
    expect![[r#"
        unknown command `19`
        1 closed
    "#]]
    .assert_eq(&format_actions(&runner.feed(link(1), &[19])));
    runner.open(link(2), 2);
    expect![[r#"
        unknown command `12`
        2 closed
    "#]]
    .assert_eq(&format_actions(&runner.feed(link(2), &[12])));
}

#[test]
fn a_wrong_magic_number_closes_the_link() {
    let mut runner = ProtocolRunner::new(C10dStore::default());
    runner.open(link(1), 1);
    expect![[r#"
        key length `3704026830` exceeds the maximum of `8192`
        1 closed
    "#]]
    .assert_eq(&format_actions(&runner.feed(link(1), &bytes("00 ce f6 c6 dc 00 00 00 00"))));
}

#[test]
fn a_second_validate_closes_the_link() {
    check(
        "1 validate\n1 validate",
        expect![[r#"
        duplicate VALIDATE command
        1 closed
    "#]],
    );
}

#[test]
fn pop_returns_the_previous_length_and_items_in_order() {
    check(
        "1 push q 1\n1 push q 2\n1 length q\n1 count\n1 pop q\n1 pop q\n1 pop q\n1 length q",
        expect![[r#"
            1 < i64 2
            1 < i64 0
            1 < 02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 31
            1 < 01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 32
            1 < i64 0
            1 < i64 0
        "#]],
    );
}

#[test]
fn a_nonempty_queue_is_present_but_not_a_key() {
    check(
        "1 push q 1\n1 check q\n1 wait q\n1 delete q\n1 list\n1 pop q\n1 check q",
        expect![[r#"
        1 < 0
        1 < 0
        1 < i64 0
        1 < i64 0
        1 < 01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 31
        1 < 1
    "#]],
    );
}

#[test]
fn a_push_wakes_the_first_waiting_link_only() {
    check(
        "1 wait q\n2 wait q\n3 push q 1\n3 push q 2",
        expect![[r#"
        1 < 0
        2 < 0
    "#]],
    );
    check(
        "1 wait q\n2 wait q\n3 push q 1",
        expect![[r#"
        1 < 0
    "#]],
    );
}

#[test]
fn a_wait_ends_when_all_keys_have_been_set_even_if_deleted_since() {
    check(
        "1 wait a b b\n2 set a 1\n2 delete a\n2 append b 1\n2 set b 2",
        expect![[r#"
        2 < i64 1
        1 < 0
    "#]],
    );
}

#[test]
fn set_add_append_multi_set_compare_set_and_barrier_wake_waiting_links() {
    for waker in [
        "set a 1",
        "add a 1",
        "append a 1",
        "multi_set a 1 b 2",
        "compare_set a '' 1",
        "barrier a 1",
    ] {
        let text =
            run(&mut ProtocolRunner::new(C10dStore::default()), &format!("1 wait a\n2 {waker}"));
        assert!(text.contains("1 < 0\n"), "{waker}: {text}");
    }
}

#[test]
fn a_satisfied_wait_gets_a_response_at_once() {
    check(
        "1 wait\n1 check\n1 cancel",
        expect![[r#"
        1 < 0
        1 < 0
        1 < 1
    "#]],
    );
}

#[test]
fn a_canceled_wait_gets_no_later_response() {
    check(
        "1 wait a\n1 cancel\n2 set a 1",
        expect![[r#"
        1 < 1
    "#]],
    );
}

#[test]
fn another_command_ends_a_wait() {
    check(
        "7 wait a\n7 add n 1\n1 set a 1\n7 wait b\n7 set b 1",
        expect![[r#"
        7 < i64 1
    "#]],
    );
}

#[test]
fn a_closed_link_has_no_wait_and_its_keys_stay() {
    check(
        "1 set k v\n1 wait a\n1 close\n2 set a 1\n2 get k",
        expect![[r#"
        2 < `v`
    "#]],
    );
}

#[test]
fn a_late_link_passes_a_complete_barrier() {
    check(
        "1 barrier b 2\n2 barrier b 2\n3 barrier b 2\n3 get b",
        expect![[r#"
        1 < 0
        2 < 0
        3 < 0
        3 < `3`
    "#]],
    );
}

#[test]
fn an_abandoned_barrier_wait_counts_but_gets_no_response() {
    check(
        "1 barrier b 2\n1 cancel\n2 barrier b 2",
        expect![[r#"
        1 < 1
        2 < 0
    "#]],
    );
}

#[test]
fn absent_tasks_are_missing_while_a_link_waits() {
    let members = (0..3).map(|index| crate::support::peer(index).task).collect();
    let mut runner = ProtocolRunner::new(C10dStore::default().with_members(members));
    let missing = |runner: &ProtocolRunner<C10dStore>| -> Vec<String> {
        let missing = runner.protocol.missing();
        missing.iter().map(ToString::to_string).collect()
    };
    runner.open(link(1), 1);
    runner.feed(link(1), &command(TestDialect::New, "validate"));
    assert!(missing(&runner).is_empty(), "no link waits");
    runner.feed(link(1), &command(TestDialect::New, "wait go"));
    assert_eq!(missing(&runner), ["worker:0", "worker:2"]);
    runner.open(link(2), 2);
    runner.feed(link(2), &command(TestDialect::New, "validate"));
    assert_eq!(missing(&runner), ["worker:0"]);
    let mut effects = ydl_rendezvous::Effects::default();
    runner.protocol.attempt_ended(&crate::support::peer(2), &mut effects);
    assert_eq!(missing(&runner), ["worker:0", "worker:2"]);
    runner.open(link(3), 0);
    runner.feed(link(3), &command(TestDialect::New, "validate"));
    runner.feed(link(3), &command(TestDialect::New, "set go now"));
    assert!(missing(&runner).is_empty(), "no link waits any more");
}
