//! The driver of elastic Horovod jobs: the start of worlds and the notifications before it.

use std::{collections::BTreeMap, time::Duration};

use crate::support::{ProtocolRunner, base64, bytes, link, peer};
use expect_test::{Expect, expect};
use ydl_core::{Cluster, RoleMembers};
use ydl_rendezvous::{
    Action, Effects, LinkId, Protocol,
    gloo::{GlooDriver, GlooLimits},
};

/// Notification endpoint of a worker: port 40000, with the key 00 01 … 1f.
const ENDPOINT: &str = "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c09\
    3132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f9486942e";
/// Reply of a worker, signed with that key.
const ACK: &str = "c41edba9650bd7f1bc648117db6dcbd46d4aaf63984f071b554bf122cb3a34184400000080059539000000000000008c22\
    686f726f766f642e72756e6e65722e636f6d6d6f6e2e7574696c2e6e6574776f726b948c0b41636b526573706f6e73659493942981942e";

/// Creates a round with these workers, by rank.
fn members(indexes: &[u32]) -> Cluster {
    Cluster {
        round: 1,
        roles: vec![RoleMembers {
            role: "worker".into(),
            instances: indexes.len() as u32,
            processes: 1,
            indexes: indexes.to_vec(),
            endpoints: Vec::new(),
        }],
    }
}

struct DriverHarness {
    runner: ProtocolRunner<GlooDriver>,
    links: BTreeMap<LinkId, u32>,
    connections: u64,
}

impl DriverHarness {
    fn send(&mut self, worker: u32, method: &str, path: &str, value: &str) -> Vec<Action> {
        self.connections += 1;
        let link = link(self.connections);
        self.links.insert(link, worker);
        self.runner.open(link, worker);
        let length = value.len();
        let input = format!("{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{value}");
        self.runner.feed(link, input.as_bytes())
    }

    fn run(&mut self, line: &str) -> Vec<Action> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().expect("a number");
        match words[..] {
            ["worker", _, "requests", "rank"] => {
                let path = format!("/rank_and_size/worker-{}:0", number(1));
                self.send(number(1), "GET", &path, "")
            }
            ["worker", _, "registers"] => {
                let path = format!("/worker_addresses/worker-{}:0", number(1));
                self.send(number(1), "PUT", &path, &base64(&bytes(ENDPOINT)))
            }
            ["worker", _, "joins", "as", _] => {
                let path = format!("/global/rank_{}", number(4));
                self.send(number(1), "PUT", &path, "here")
            }
            ["worker", _, "ends"] => {
                let mut effects = Effects::default();
                let peer = peer(number(1));
                for (link, _) in self.links.iter().filter(|(_, of)| **of == number(1)) {
                    self.runner.protocol.close(*link, &mut effects);
                }
                self.links.retain(|_, of| *of != number(1));
                self.runner.protocol.attempt_ended(&peer, &mut effects);
                effects.into_parts().1
            }
            ["members", ..] => {
                let all: Vec<u32> = (1..words.len()).map(number).collect();
                let mut effects = Effects::default();
                self.runner.protocol.members_changed(&members(&all), &mut effects);
                effects.into_parts().1
            }
            ["dial", _, "fails"] => {
                let mut effects = Effects::default();
                let link = LinkId::Dialed(u64::from(number(1)));
                self.runner.protocol.close(link, &mut effects);
                assert!(effects.is_persistent());
                effects.into_parts().1
            }
            ["reply"] => self.reply(1),
            ["dial", _, "replied"] => self.reply(number(1)),
            ["timer", "expires"] => {
                let Some(timer) = self.runner.protocol.retry_timer() else {
                    return Vec::new();
                };
                let mut effects = Effects::default();
                self.runner.protocol.retry(&mut effects);
                assert!(effects.is_persistent());
                let delay = Action::Log(format!("after {:?}", timer.delay));
                [vec![delay], effects.into_parts().1].concat()
            }
            _ => panic!("`{line}`"),
        }
    }

    fn reply(&mut self, dial: u32) -> Vec<Action> {
        let link = LinkId::Dialed(u64::from(dial));
        let mut actions = self.runner.open(link, 0);
        actions.extend(self.runner.feed(link, &bytes(ACK)));
        actions
    }

    fn format_action(&self, action: &Action) -> Option<String> {
        let name = |link: &LinkId| match self.links.get(link) {
            Some(worker) => format!("worker {worker}"),
            None => "dialed".to_owned(),
        };
        Some(match action {
            Action::Send(link @ LinkId::Accepted(_), bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
                let status = head.split(' ').nth(1).unwrap_or_default();
                format!("{}: {status} {body}", name(link))
            }
            Action::Send(link, bytes) => format!("{}: {} bytes", name(link), bytes.len()),
            // Every response closes its link.
            Action::Close(_) => return None,
            Action::Log(line) => format!("\"{line}\""),
            Action::Dial(_, task, port) => format!("dial {task} {port}"),
        })
    }
}

/// Runs a script in a job that starts with `workers`, and compares the actions of each line.
fn check(workers: &[u32], script: &str, expected: Expect) {
    let driver = GlooDriver::new(&members(workers), GlooLimits::default());
    let mut harness = DriverHarness {
        runner: ProtocolRunner::new(driver),
        links: BTreeMap::new(),
        connections: 0,
    };
    let mut all = String::new();
    for line in script.lines().map(str::trim) {
        let actions = harness.run(line);
        let text: Vec<String> =
            actions.iter().filter_map(|action| harness.format_action(action)).collect();
        all += format!("{line} -> {}", text.join(", ")).trim_end();
        all.push('\n');
    }
    let missing: Vec<String> =
        harness.runner.protocol.missing().iter().map(ToString::to_string).collect();
    all += format!("missing: {}", missing.join(" ")).trim_end();
    let outdated = |worker: &u32| harness.runner.protocol.is_outdated(&peer(*worker).task);
    for worker in (0..8).filter(outdated) {
        all += &format!("\noutdated: {worker}");
    }
    expected.assert_eq(&all);
}

#[test]
fn a_new_worker_waits_until_the_others_join_its_world() {
    check(
        &[0, 1],
        "worker 0 registers
        members 0 1 2
        worker 2 joins as 2
        reply
        worker 0 requests rank
        worker 1 requests rank
        worker 0 joins as 0",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            members 0 1 2 ->
            worker 2 joins as 2 -> dial worker:0 40000
            reply -> dialed: 175 bytes
            worker 0 requests rank ->
            worker 1 requests rank -> "world of size 3 started", worker 0: 200 0,3,0,1,0,3, worker 1: 200 1,3,0,1,1,3, worker 2: 200
            worker 0 joins as 0 -> worker 0: 200
            missing: worker:0 worker:1 worker:2"#]],
    );
}

#[test]
fn rank_0_is_not_notified_before_the_new_worker_is_present() {
    check(
        &[0, 1],
        "worker 0 registers
        members 0 1 2
        worker 2 ends
        members 0 1
        worker 0 joins as 0",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            members 0 1 2 ->
            worker 2 ends ->
            members 0 1 ->
            worker 0 joins as 0 -> worker 0: 200
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn rank_0_is_notified_once_it_registers_its_endpoint() {
    check(
        &[0, 1],
        "members 0 1 2
        worker 2 joins as 2
        worker 1 registers
        worker 0 registers",
        expect![[r#"
            members 0 1 2 ->
            worker 2 joins as 2 ->
            worker 1 registers -> worker 1: 200
            worker 0 registers -> worker 0: 200 , dial worker:0 40000
            missing:"#]],
    );
}

#[test]
fn remaining_members_continue_after_one_left() {
    check(
        &[0, 1, 2],
        "worker 0 requests rank
        worker 2 ends
        members 0 1
        worker 1 requests rank",
        expect![[r#"
            worker 0 requests rank ->
            worker 2 ends ->
            members 0 1 ->
            worker 1 requests rank -> "world of size 2 started", worker 0: 200 0,2,0,1,0,2, worker 1: 200 1,2,0,1,1,2
            missing:"#]],
    );
}

#[test]
fn remaining_members_wait_for_a_replacement() {
    check(
        &[0, 1],
        "worker 1 ends
        worker 0 requests rank
        members 0 1
        worker 1 joins as 1",
        expect![[r#"
            worker 1 ends ->
            worker 0 requests rank ->
            members 0 1 ->
            worker 1 joins as 1 -> "world of size 2 started", worker 0: 200 0,2,0,1,0,2, worker 1: 200
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn the_same_world_restarts_when_all_have_requested_ranks() {
    check(
        &[0, 1],
        "worker 0 requests rank
        worker 1 requests rank
        worker 1 requests rank
        worker 0 requests rank",
        expect![[r#"
            worker 0 requests rank ->
            worker 1 requests rank -> "world of size 2 started", worker 0: 200 0,2,0,1,0,2, worker 1: 200 1,2,0,1,1,2
            worker 1 requests rank ->
            worker 0 requests rank -> "world of size 2 started", worker 1: 200 1,2,0,1,1,2, worker 0: 200 0,2,0,1,0,2
            missing:"#]],
    );
}

#[test]
fn a_new_worker_of_a_dropped_world_is_disconnected() {
    check(
        &[0, 1, 2],
        "members 0 1 2 3
        worker 3 joins as 3
        worker 2 ends
        members 0 1
        worker 3 joins as 3
        worker 3 ends
        worker 0 requests rank
        worker 1 requests rank",
        expect![[r#"
            members 0 1 2 3 ->
            worker 3 joins as 3 ->
            worker 2 ends ->
            members 0 1 -> "worker:3 must restart: the world has changed since it started"
            worker 3 joins as 3 -> "the world of this worker no longer exists"
            worker 3 ends ->
            worker 0 requests rank ->
            worker 1 requests rank -> "world of size 2 started", worker 0: 200 0,2,0,1,0,2, worker 1: 200 1,2,0,1,1,2
            missing:"#]],
    );
}

#[test]
fn new_workers_of_two_planned_worlds_join_in_order() {
    check(
        &[0],
        "worker 0 registers
        members 0 1
        members 0 1 2
        worker 2 joins as 2
        worker 1 joins as 1
        worker 0 requests rank
        reply
        worker 1 requests rank
        worker 0 requests rank",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            members 0 1 ->
            members 0 1 2 ->
            worker 2 joins as 2 ->
            worker 1 joins as 1 -> dial worker:0 40000
            worker 0 requests rank -> "world of size 2 started", worker 0: 200 0,2,0,1,0,2, worker 1: 200 , dial worker:0 40000
            reply -> dialed: 175 bytes
            worker 1 requests rank ->
            worker 0 requests rank -> "world of size 3 started", worker 1: 200 1,3,0,1,1,3, worker 0: 200 0,3,0,1,0,3, worker 2: 200
            missing: worker:0 worker:1 worker:2"#]],
    );
}

#[test]
fn a_fully_restarted_job_starts_the_same_world() {
    check(
        &[0, 1],
        "worker 0 joins as 0
        worker 0 ends
        worker 1 ends
        worker 0 joins as 0
        worker 1 joins as 1",
        expect![[r#"
            worker 0 joins as 0 -> worker 0: 200
            worker 0 ends ->
            worker 1 ends ->
            worker 0 joins as 0 ->
            worker 1 joins as 1 -> "world of size 2 started", worker 0: 200 , worker 1: 200
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn a_removed_member_gets_no_rank() {
    check(
        &[0, 1, 2],
        "members 0 1
        worker 0 requests rank
        worker 2 requests rank
        worker 1 requests rank",
        expect![[r#"
            members 0 1 ->
            worker 0 requests rank ->
            worker 2 requests rank ->
            worker 1 requests rank -> "world of size 2 started", worker 0: 200 0,2,0,1,0,2, worker 2: 200 -1,-1,-1,-1,-1,-1, worker 1: 200 1,2,0,1,1,2
            missing:"#]],
    );
}

#[test]
fn rank_0_moves_to_the_next_member_and_a_returning_task_is_last() {
    check(
        &[0, 1],
        "worker 0 registers
        worker 1 registers
        worker 0 ends
        members 1
        worker 1 requests rank
        members 1 0
        worker 0 joins as 1
        worker 1 requests rank",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            worker 1 registers -> worker 1: 200
            worker 0 ends ->
            members 1 ->
            worker 1 requests rank -> "world of size 1 started", worker 1: 200 0,1,0,1,0,1
            members 1 0 ->
            worker 0 joins as 1 -> dial worker:1 40000
            worker 1 requests rank -> "world of size 2 started", worker 1: 200 0,2,0,1,0,2, worker 0: 200
            missing: worker:1 worker:0"#]],
    );
}

#[test]
fn failed_notifications_are_retried() {
    check(
        &[0, 1],
        "worker 0 registers
        members 0 1 2
        worker 2 joins as 2
        dial 1 fails
        dial 2 fails
        dial 3 fails
        dial 4 fails
        dial 5 fails
        dial 6 fails
        worker 1 registers
        worker 1 joins as 1
        dial 7 fails",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            members 0 1 2 ->
            worker 2 joins as 2 -> dial worker:0 40000
            dial 1 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 2 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 3 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 4 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 5 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 6 fails -> "cannot notify worker:0 of the host change: no reply"
            worker 1 registers -> worker 1: 200 , dial worker:0 40000
            worker 1 joins as 1 -> worker 1: 200
            dial 7 fails -> "cannot notify worker:0 of the host change: no reply"
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn notifications_repeat_until_a_rank_is_requested() {
    check(
        &[0, 1],
        "worker 0 registers
        members 0 1 2
        timer expires
        worker 2 joins as 2
        timer expires
        dial 1 replied
        timer expires
        dial 2 replied
        timer expires
        dial 3 replied
        worker 1 requests rank
        timer expires
        worker 0 requests rank
        timer expires",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            members 0 1 2 ->
            timer expires ->
            worker 2 joins as 2 -> dial worker:0 40000
            timer expires ->
            dial 1 replied -> dialed: 175 bytes
            timer expires -> "after 1s", dial worker:0 40000
            dial 2 replied -> dialed: 175 bytes
            timer expires -> "after 2s", dial worker:0 40000
            dial 3 replied -> dialed: 175 bytes
            worker 1 requests rank ->
            timer expires ->
            worker 0 requests rank -> "world of size 3 started", worker 1: 200 1,3,0,1,1,3, worker 0: 200 0,3,0,1,0,3, worker 2: 200
            timer expires ->
            missing: worker:0 worker:1 worker:2"#]],
    );
}

#[test]
fn failed_notifications_repeat_on_the_timer_until_a_member_left() {
    check(
        &[0, 1],
        "worker 0 registers
        members 0 1 2
        worker 2 joins as 2
        dial 1 fails
        dial 2 fails
        dial 3 fails
        dial 4 fails
        dial 5 fails
        dial 6 fails
        timer expires
        worker 1 ends
        timer expires",
        expect![[r#"
            worker 0 registers -> worker 0: 200
            members 0 1 2 ->
            worker 2 joins as 2 -> dial worker:0 40000
            dial 1 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 2 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 3 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 4 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 5 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 6 fails -> "cannot notify worker:0 of the host change: no reply"
            timer expires -> "after 1s", dial worker:0 40000
            worker 1 ends ->
            timer expires ->
            missing:"#]],
    );
}

#[test]
fn notifications_stop_after_the_maximum_of_retries() {
    let mut harness = DriverHarness {
        runner: ProtocolRunner::new(GlooDriver::new(&members(&[0]), GlooLimits::default())),
        links: BTreeMap::new(),
        connections: 0,
    };
    for line in ["worker 0 registers", "members 0 1", "worker 1 joins as 1"] {
        harness.run(line);
    }
    let (mut sent, mut waited) = (0, Duration::ZERO);
    loop {
        sent += 1;
        assert!(sent < 100, "endless retries");
        harness.reply(sent);
        let Some(timer) = harness.runner.protocol.retry_timer() else {
            break;
        };
        assert_eq!(timer.id, u64::from(sent));
        waited += timer.delay;
        let actions = harness.run("timer expires");
        assert!(matches!(actions[..], [Action::Log(_), Action::Dial(..)]), "{actions:?}");
    }
    assert_eq!((sent, waited), (13, Duration::from_secs(4095)));
}

#[test]
fn a_new_worker_without_a_planned_world_is_outdated() {
    check(
        &[0, 1, 2],
        "members 0 1 2 3
        worker 2 ends
        members 0 1",
        expect![[r#"
            members 0 1 2 3 ->
            worker 2 ends ->
            members 0 1 ->
            missing:
            outdated: 3"#]],
    );
}
