//! When the next world of a Horovod job begins, and what its processes hear until then.

mod support;

use std::{collections::BTreeMap, time::Duration};

use expect_test::{Expect, expect};
use support::{ProtocolRunner, base64, bytes, link, peer};
use ydl_core::{Cluster, RoleMembers};
use ydl_rendezvous::{
    Action, Effects, LinkId, Protocol,
    gloo::{GlooDriver, GlooLimits},
};

/// Where a worker listens, as workers say it: port 40000, with the key 00 01 … 1f.
const LISTENS: &str = "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c09\
    3132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f9486942e";
/// What a worker answers, signed with that key.
const TAKEN: &str = "c41edba9650bd7f1bc648117db6dcbd46d4aaf63984f071b554bf122cb3a34184400000080059539000000000000008c22\
    686f726f766f642e72756e6e65722e636f6d6d6f6e2e7574696c2e6e6574776f726b948c0b41636b526573706f6e73659493942981942e";

/// A round with these workers, in the order of their ranks.
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

struct Scene {
    runner: ProtocolRunner<GlooDriver>,
    links: BTreeMap<LinkId, u32>,
    connections: u64,
}

impl Scene {
    fn say(&mut self, worker: u32, verb: &str, path: &str, value: &str) -> Vec<Action> {
        self.connections += 1;
        let link = link(self.connections);
        self.links.insert(link, worker);
        self.runner.open(link, worker);
        let length = value.len();
        let said = format!("{verb} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{value}");
        self.runner.say(link, said.as_bytes())
    }

    fn acts(&mut self, line: &str) -> Vec<Action> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().expect("a number");
        match words[..] {
            ["worker", _, "asks"] => {
                let path = format!("/rank_and_size/worker-{}:0", number(1));
                self.say(number(1), "GET", &path, "")
            }
            ["worker", _, "listens"] => {
                let path = format!("/worker_addresses/worker-{}:0", number(1));
                self.say(number(1), "PUT", &path, &base64(&bytes(LISTENS)))
            }
            ["worker", _, "meets", "as", _] => {
                let path = format!("/global/rank_{}", number(4));
                self.say(number(1), "PUT", &path, "here")
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
            ["told", "of", ..] => {
                let all: Vec<u32> = (2..words.len()).map(number).collect();
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
            ["answered"] => self.answered(1),
            ["dial", _, "answered"] => self.answered(number(1)),
            ["time", "passes"] => {
                let Some(reminder) = self.runner.protocol.retry_timer() else {
                    return Vec::new();
                };
                let mut effects = Effects::default();
                self.runner.protocol.retry(&mut effects);
                assert!(effects.is_persistent());
                let after = Action::Log(format!("after {:?}", reminder.delay));
                [vec![after], effects.into_parts().1].concat()
            }
            _ => panic!("`{line}`"),
        }
    }

    fn answered(&mut self, dial: u32) -> Vec<Action> {
        let link = LinkId::Dialed(u64::from(dial));
        let mut acts = self.runner.open(link, 0);
        acts.extend(self.runner.say(link, &bytes(TAKEN)));
        acts
    }

    fn told(&self, act: &Action) -> Option<String> {
        let who = |link: &LinkId| match self.links.get(link) {
            Some(worker) => format!("worker {worker}"),
            None => "dialed".to_owned(),
        };
        Some(match act {
            Action::Send(link @ LinkId::Accepted(_), bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
                let status = head.split(' ').nth(1).unwrap_or_default();
                format!("{}: {status} {body}", who(link))
            }
            Action::Send(link, bytes) => format!("{}: {} bytes", who(link), bytes.len()),
            // Every answer is the end of its link.
            Action::Close(_) => return None,
            Action::Log(line) => format!("\"{line}\""),
            Action::Dial(_, task, port) => format!("dial {task} {port}"),
        })
    }
}

/// A job that begins with these, and what comes of each line.
fn check(workers: &[u32], script: &str, expected: Expect) {
    let driver = GlooDriver::new(&members(workers), GlooLimits::default());
    let mut scene =
        Scene { runner: ProtocolRunner::new(driver), links: BTreeMap::new(), connections: 0 };
    let mut all = String::new();
    for line in script.lines().map(str::trim) {
        let acts = scene.acts(line);
        let told: Vec<String> = acts.iter().filter_map(|act| scene.told(act)).collect();
        all += format!("{line} -> {}", told.join(", ")).trim_end();
        all.push('\n');
    }
    let missing: Vec<String> =
        scene.runner.protocol.missing().iter().map(ToString::to_string).collect();
    all += format!("missing: {}", missing.join(" ")).trim_end();
    let outdated = |worker: &u32| scene.runner.protocol.is_outdated(&peer(*worker).task);
    for worker in (0..8).filter(outdated) {
        all += &format!("\noutdated: {worker}");
    }
    expected.assert_eq(&all);
}

#[test]
fn a_newcomer_waits_until_the_others_have_come_to_its_world() {
    check(
        &[0, 1],
        "worker 0 listens
        told of 0 1 2
        worker 2 meets as 2
        answered
        worker 0 asks
        worker 1 asks
        worker 0 meets as 0",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            told of 0 1 2 ->
            worker 2 meets as 2 -> dial worker:0 40000
            answered -> dialed: 175 bytes
            worker 0 asks ->
            worker 1 asks -> "world started with 3 processes", worker 0: 200 0,3,0,1,0,3, worker 1: 200 1,3,0,1,1,3, worker 2: 200
            worker 0 meets as 0 -> worker 0: 200
            missing: worker:0 worker:1 worker:2"#]],
    );
}

#[test]
fn nobody_is_disturbed_before_the_newcomer_is_there() {
    check(
        &[0, 1],
        "worker 0 listens
        told of 0 1 2
        worker 2 ends
        told of 0 1
        worker 0 meets as 0",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            told of 0 1 2 ->
            worker 2 ends ->
            told of 0 1 ->
            worker 0 meets as 0 -> worker 0: 200
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn rank_0_is_told_as_soon_as_it_listens() {
    check(
        &[0, 1],
        "told of 0 1 2
        worker 2 meets as 2
        worker 1 listens
        worker 0 listens",
        expect![[r#"
            told of 0 1 2 ->
            worker 2 meets as 2 ->
            worker 1 listens -> worker 1: 200
            worker 0 listens -> worker 0: 200 , dial worker:0 40000
            missing:"#]],
    );
}

#[test]
fn those_who_are_left_go_on_without_the_one_who_has_gone() {
    check(
        &[0, 1, 2],
        "worker 0 asks
        worker 2 ends
        told of 0 1
        worker 1 asks",
        expect![[r#"
            worker 0 asks ->
            worker 2 ends ->
            told of 0 1 ->
            worker 1 asks -> "world started with 2 processes", worker 0: 200 0,2,0,1,0,2, worker 1: 200 1,2,0,1,1,2
            missing:"#]],
    );
}

#[test]
fn too_few_wait_for_a_newcomer_to_be_enough_again() {
    check(
        &[0, 1],
        "worker 1 ends
        worker 0 asks
        told of 0 1
        worker 1 meets as 1",
        expect![[r#"
            worker 1 ends ->
            worker 0 asks ->
            told of 0 1 ->
            worker 1 meets as 1 -> "world started with 2 processes", worker 0: 200 0,2,0,1,0,2, worker 1: 200
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn the_same_world_meets_again_when_all_have_asked() {
    check(
        &[0, 1],
        "worker 0 asks
        worker 1 asks
        worker 1 asks
        worker 0 asks",
        expect![[r#"
            worker 0 asks ->
            worker 1 asks -> "world started with 2 processes", worker 0: 200 0,2,0,1,0,2, worker 1: 200 1,2,0,1,1,2
            worker 1 asks ->
            worker 0 asks -> "world started with 2 processes", worker 1: 200 1,2,0,1,1,2, worker 0: 200 0,2,0,1,0,2
            missing:"#]],
    );
}

#[test]
fn a_newcomer_to_a_world_that_cannot_be_is_sent_away() {
    check(
        &[0, 1, 2],
        "told of 0 1 2 3
        worker 3 meets as 3
        worker 2 ends
        told of 0 1
        worker 3 meets as 3
        worker 3 ends
        worker 0 asks
        worker 1 asks",
        expect![[r#"
            told of 0 1 2 3 ->
            worker 3 meets as 3 ->
            worker 2 ends ->
            told of 0 1 -> "worker:3 must restart: the world has changed since it started"
            worker 3 meets as 3 -> "the world of this worker no longer exists"
            worker 3 ends ->
            worker 0 asks ->
            worker 1 asks -> "world started with 2 processes", worker 0: 200 0,2,0,1,0,2, worker 1: 200 1,2,0,1,1,2
            missing:"#]],
    );
}

#[test]
fn newcomers_of_two_worlds_come_one_after_the_other() {
    check(
        &[0],
        "worker 0 listens
        told of 0 1
        told of 0 1 2
        worker 2 meets as 2
        worker 1 meets as 1
        worker 0 asks
        answered
        worker 1 asks
        worker 0 asks",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            told of 0 1 ->
            told of 0 1 2 ->
            worker 2 meets as 2 ->
            worker 1 meets as 1 -> dial worker:0 40000
            worker 0 asks -> "world started with 2 processes", worker 0: 200 0,2,0,1,0,2, worker 1: 200 , dial worker:0 40000
            answered -> dialed: 175 bytes
            worker 1 asks ->
            worker 0 asks -> "world started with 3 processes", worker 1: 200 1,3,0,1,1,3, worker 0: 200 0,3,0,1,0,3, worker 2: 200
            missing: worker:0 worker:1 worker:2"#]],
    );
}

#[test]
fn everybody_who_starts_again_meets_as_at_the_beginning() {
    check(
        &[0, 1],
        "worker 0 meets as 0
        worker 0 ends
        worker 1 ends
        worker 0 meets as 0
        worker 1 meets as 1",
        expect![[r#"
            worker 0 meets as 0 -> worker 0: 200
            worker 0 ends ->
            worker 1 ends ->
            worker 0 meets as 0 ->
            worker 1 meets as 1 -> "world started with 2 processes", worker 0: 200 , worker 1: 200
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn whoever_is_left_out_hears_so() {
    check(
        &[0, 1, 2],
        "told of 0 1
        worker 0 asks
        worker 2 asks
        worker 1 asks",
        expect![[r#"
            told of 0 1 ->
            worker 0 asks ->
            worker 2 asks ->
            worker 1 asks -> "world started with 2 processes", worker 0: 200 0,2,0,1,0,2, worker 2: 200 -1,-1,-1,-1,-1,-1, worker 1: 200 1,2,0,1,1,2
            missing:"#]],
    );
}

#[test]
fn rank_0_is_the_next_one_when_it_has_gone_and_its_task_comes_back_as_the_last() {
    check(
        &[0, 1],
        "worker 0 listens
        worker 1 listens
        worker 0 ends
        told of 1
        worker 1 asks
        told of 1 0
        worker 0 meets as 1
        worker 1 asks",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            worker 1 listens -> worker 1: 200
            worker 0 ends ->
            told of 1 ->
            worker 1 asks -> "world started with 1 processes", worker 1: 200 0,1,0,1,0,1
            told of 1 0 ->
            worker 0 meets as 1 -> dial worker:1 40000
            worker 1 asks -> "world started with 2 processes", worker 1: 200 0,2,0,1,0,2, worker 0: 200
            missing: worker:1 worker:0"#]],
    );
}

#[test]
fn rank_0_is_told_again_when_it_could_not_be() {
    check(
        &[0, 1],
        "worker 0 listens
        told of 0 1 2
        worker 2 meets as 2
        dial 1 fails
        dial 2 fails
        dial 3 fails
        dial 4 fails
        dial 5 fails
        dial 6 fails
        worker 1 listens
        worker 1 meets as 1
        dial 7 fails",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            told of 0 1 2 ->
            worker 2 meets as 2 -> dial worker:0 40000
            dial 1 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 2 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 3 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 4 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 5 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 6 fails -> "cannot notify worker:0 of the host change: no reply"
            worker 1 listens -> worker 1: 200 , dial worker:0 40000
            worker 1 meets as 1 -> worker 1: 200
            dial 7 fails -> "cannot notify worker:0 of the host change: no reply"
            missing: worker:0 worker:1"#]],
    );
}

#[test]
fn rank_0_is_told_again_until_somebody_heeds_it() {
    check(
        &[0, 1],
        "worker 0 listens
        told of 0 1 2
        time passes
        worker 2 meets as 2
        time passes
        dial 1 answered
        time passes
        dial 2 answered
        time passes
        dial 3 answered
        worker 1 asks
        time passes
        worker 0 asks
        time passes",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            told of 0 1 2 ->
            time passes ->
            worker 2 meets as 2 -> dial worker:0 40000
            time passes ->
            dial 1 answered -> dialed: 175 bytes
            time passes -> "after 1s", dial worker:0 40000
            dial 2 answered -> dialed: 175 bytes
            time passes -> "after 2s", dial worker:0 40000
            dial 3 answered -> dialed: 175 bytes
            worker 1 asks ->
            time passes ->
            worker 0 asks -> "world started with 3 processes", worker 1: 200 1,3,0,1,1,3, worker 0: 200 0,3,0,1,0,3, worker 2: 200
            time passes ->
            missing: worker:0 worker:1 worker:2"#]],
    );
}

#[test]
fn who_could_not_be_told_is_told_later_and_who_has_gone_is_not() {
    check(
        &[0, 1],
        "worker 0 listens
        told of 0 1 2
        worker 2 meets as 2
        dial 1 fails
        dial 2 fails
        dial 3 fails
        dial 4 fails
        dial 5 fails
        dial 6 fails
        time passes
        worker 1 ends
        time passes",
        expect![[r#"
            worker 0 listens -> worker 0: 200
            told of 0 1 2 ->
            worker 2 meets as 2 -> dial worker:0 40000
            dial 1 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 2 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 3 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 4 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 5 fails -> "cannot notify worker:0 of the host change: no reply", dial worker:0 40000
            dial 6 fails -> "cannot notify worker:0 of the host change: no reply"
            time passes -> "after 1s", dial worker:0 40000
            worker 1 ends ->
            time passes ->
            missing:"#]],
    );
}

#[test]
fn programs_that_heed_nothing_are_left_alone_in_the_end() {
    let mut scene = Scene {
        runner: ProtocolRunner::new(GlooDriver::new(&members(&[0]), GlooLimits::default())),
        links: BTreeMap::new(),
        connections: 0,
    };
    for line in ["worker 0 listens", "told of 0 1", "worker 1 meets as 1"] {
        scene.acts(line);
    }
    let (mut told, mut waited) = (0, Duration::ZERO);
    loop {
        told += 1;
        assert!(told < 100, "for ever");
        scene.answered(told);
        let Some(reminder) = scene.runner.protocol.retry_timer() else {
            break;
        };
        assert_eq!(reminder.id, u64::from(told));
        waited += reminder.delay;
        let acts = scene.acts("time passes");
        assert!(matches!(acts[..], [Action::Log(_), Action::Dial(..)]), "{acts:?}");
    }
    assert_eq!((told, waited), (13, Duration::from_secs(4095)));
}

#[test]
fn a_newcomer_who_can_be_in_no_world_any_more_is_outdated() {
    check(
        &[0, 1, 2],
        "told of 0 1 2 3
        worker 2 ends
        told of 0 1",
        expect![[r#"
            told of 0 1 2 3 ->
            worker 2 ends ->
            told of 0 1 ->
            missing:
            outdated: 3"#]],
    );
}
