//! The ledger: by itself in small lives, and against a model of the ResourceManager under thousands of
//! schedules of faults.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use yarn_native::ledger::{
    Execution, Grant, Key, Ledger, LedgerReply, LedgerRequest, Localities, Mutant, NodeLocality,
    RackLocality, ReplyCount, Want,
};
use yarn_native::types::Resource;

#[path = "ledger/model.rs"]
mod model;
#[path = "ledger/random.rs"]
mod random;
#[path = "ledger/world.rs"]
mod world;

/// `SEEDS=n` runs more of them, `SEED=n` one again.
const SEEDS: u64 = 1500;

#[test]
fn under_any_schedule_of_faults_what_is_wanted_comes_and_nothing_else_stays() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (from, to) = match number("SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, number("SEEDS").unwrap_or(SEEDS)),
    };
    for seed in from..to {
        if let Err(why) = world::run(seed, Mutant::None) {
            panic!("{why}");
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_deliberate_mistake_is_found() {
    for mutant in Mutant::ALL {
        let found = (0..SEEDS).find_map(|seed| world::run(seed, mutant).err());
        let why = found.unwrap_or_else(|| panic!("{mutant:?} survived {SEEDS} seeds"));
        eprintln!("{mutant:?}: {why}");
    }
}

fn key(allocation: i64) -> Key {
    Key { priority: 1, allocation }
}

fn resource(memory_mib: i64) -> Resource {
    Resource { memory_mib, vcores: 1, others: BTreeMap::new() }
}

fn grant(container: u64, allocation: i64, host: &str) -> Grant<u64> {
    Grant {
        container,
        key: key(allocation),
        host: host.into(),
        resource: resource(1024),
        opportunistic: false,
    }
}

fn show(request: &LedgerRequest<u64>) -> String {
    let mut lines = vec![format!("#{}", request.response_id)];
    for row in &request.rows {
        let strict = if row.relax { "" } else { " strict" };
        let label = row.label.as_deref().map(|label| format!(" label {label}")).unwrap_or_default();
        let kind = match row.execution {
            Execution::Guaranteed => "",
            Execution::Opportunistic { .. } => " opportunistic",
        };
        let (key, memory) = (row.key.allocation, row.resource.memory_mib);
        lines.push(format!("{key} {} {}x{memory}{strict}{label}{kind}", row.name, row.count));
    }
    for (what, hosts) in [("exclude", &request.exclude), ("readmit", &request.readmit)] {
        for host in hosts {
            lines.push(format!("{what} {host}"));
        }
    }
    for container in &request.releases {
        lines.push(format!("release {container}"));
    }
    lines.join("; ")
}

/// A ledger, and what it sent in each exchange.
#[derive(Default)]
struct Life {
    ledger: Ledger<u64>,
    told: Vec<String>,
}

impl Life {
    fn want(&mut self, wants: Vec<(i64, Want)>) {
        let wants = wants.into_iter().map(|(allocation, want)| (key(allocation), want));
        self.ledger.set_wants(wants.collect(), self.ledger.reply_count());
    }

    fn beat(&mut self, granted: Vec<Grant<u64>>, completed: Vec<u64>) {
        let request = self.ledger.request();
        self.told.push(show(&request));
        let reply = LedgerReply { response_id: request.response_id + 1, granted, completed };
        let taken = self.ledger.on_reply(reply).unwrap();
        for grant in taken.surplus {
            self.told.push(format!("surplus {}", grant.container));
        }
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&self.told.join("\n"));
    }
}

fn on(hosts: &[(&str, u32)], strict: bool) -> Localities {
    let node = |(host, count): &(&str, u32)| NodeLocality {
        host: (*host).into(),
        rack: "/r".into(),
        count: *count,
    };
    Localities { nodes: hosts.iter().map(node).collect(), racks: Vec::new(), strict }
}

#[test]
fn an_ask_is_said_once() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(3, resource(1024)))]);
    life.beat(vec![], vec![]);
    life.beat(vec![grant(1, 7, "a")], vec![]);
    life.beat(vec![grant(2, 7, "a"), grant(3, 7, "b")], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 3x1024
        #1
        #2
        #3"#]]);
}

#[test]
fn a_grant_on_its_way_is_not_asked_for_again() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    life.beat(vec![], vec![]);
    // Two more are wanted while both are on their way: the ask that crosses them is set right.
    life.want(vec![(7, Want::anywhere(4, resource(1024)))]);
    life.beat(vec![grant(1, 7, "a"), grant(2, 7, "a")], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 2x1024
        #1; 7 * 4x1024
        #2; 7 * 2x1024"#]]);
}

#[test]
fn a_surplus_grant_is_given_back() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(1, resource(1024)))]);
    life.beat(vec![grant(1, 7, "a"), grant(2, 7, "b")], vec![]);
    life.beat(vec![], vec![2]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 1x1024
        surplus 2
        #1; 7 * 0x1024; release 2
        #2"#]]);
}

#[test]
fn a_release_is_said_again_when_nothing_comes_of_it() {
    let mut life = Life::default();
    life.ledger.release(5);
    for _ in 0..80 {
        life.beat(vec![], vec![]);
    }
    let times = life.told.iter().filter(|told| told.contains("release 5")).count();
    assert_eq!(times, 4, "and at last given up");
}

#[test]
fn after_a_resync_everything_is_said_again() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    life.ledger.set_excluded(BTreeSet::from(["bad".into()]));
    life.ledger.release(9);
    life.beat(vec![grant(1, 7, "a")], vec![]);
    life.beat(vec![], vec![]);
    life.told.push("resync".into());
    life.ledger.on_resync();
    life.beat(vec![], vec![9]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 2x1024; exclude bad; release 9
        #1; 7 * 1x1024
        resync
        #0; 7 * 1x1024; exclude bad; release 9
        #1"#]]);
}

#[test]
fn a_lost_reply_is_asked_for_with_the_same_words() {
    let mut ledger: Ledger<u64> = Ledger::new();
    let want = |count| BTreeMap::from([(key(7), Want::anywhere(count, resource(1024)))]);
    ledger.set_wants(want(2), ReplyCount(0));
    let first = ledger.request();
    ledger.set_wants(want(5), ReplyCount(0));
    assert_eq!(ledger.request(), first, "whatever is wanted meanwhile");
    let reply = LedgerReply { response_id: 1, granted: vec![], completed: vec![] };
    ledger.on_reply(reply.clone()).unwrap();
    assert!(ledger.on_reply(reply).is_err(), "an answer counts once");
    assert_eq!(show(&ledger.request()), "#1; 7 * 5x1024");
}

#[test]
fn a_refused_request_is_made_anew() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(2, resource(999_999)))]);
    assert_eq!(show(&life.ledger.request()), "#0; 7 * 2x999999");
    life.ledger.on_rejected();
    life.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    life.beat(vec![], vec![]);
    life.check(expect!["#0; 7 * 2x1024"]);
}

#[test]
fn hosts_are_named_with_their_racks() {
    let mut life = Life::default();
    let mut want = Want::anywhere(4, resource(1024));
    want.localities = on(&[("a", 2), ("b", 2)], true);
    want.label = Some("gpu".into());
    life.want(vec![(7, want)]);
    life.beat(vec![], vec![]);
    life.beat(vec![grant(1, 7, "a"), grant(2, 7, "b")], vec![]);
    life.beat(vec![], vec![]);
    // Not on `a` any more: its line goes, that of `b` grows, and the others stay as they are.
    let mut want = Want::anywhere(2, resource(1024));
    want.localities = on(&[("b", 2)], true);
    want.label = Some("gpu".into());
    life.want(vec![(7, want)]);
    life.beat(vec![], vec![]);
    life.beat(vec![grant(3, 7, "b"), grant(4, 7, "b")], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 4x1024 strict label gpu; 7 /r 4x1024 strict; 7 a 2x1024; 7 b 2x1024
        #1
        #2
        #3; 7 a 0x1024; 7 b 2x1024
        #4
        #5"#]]);
}

#[test]
fn a_grant_on_a_named_host_leaves_what_its_rack_may_have() {
    let mut life = Life::default();
    let mut want = Want::anywhere(3, resource(1024));
    want.localities = on(&[("a", 1)], false);
    want.localities.racks.push(RackLocality { rack: "/r".into(), count: 2 });
    life.want(vec![(7, want)]);
    life.beat(vec![], vec![]);
    life.beat(vec![grant(1, 7, "a")], vec![]);
    life.beat(vec![grant(2, 7, "a")], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 3x1024; 7 /r 3x1024; 7 a 1x1024
        #1
        #2
        #3"#]]);
}

#[test]
fn lines_left_over_for_hosts_are_taken_back() {
    let mut life = Life::default();
    let mut want = Want::anywhere(1, resource(1024));
    want.localities = on(&[("a", 1), ("b", 1)], false);
    life.want(vec![(7, want)]);
    life.beat(vec![], vec![]);
    life.beat(vec![grant(1, 7, "a")], vec![]);
    life.beat(vec![], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 1x1024; 7 /r 1x1024; 7 a 1x1024; 7 b 1x1024
        #1
        #2; 7 b 0x1024
        #3"#]]);
}

#[test]
fn another_kind_of_container_replaces_the_ask() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    life.beat(vec![], vec![]);
    life.want(vec![(7, Want::anywhere(2, resource(4096)))]);
    // One of the former kind was on its way: too small now.
    life.beat(vec![grant(1, 7, "a")], vec![]);
    life.beat(vec![], vec![1]);
    life.check(expect![[r#"
        #0; 7 * 2x1024
        #1; 7 * 2x4096
        surplus 1
        #2; release 1"#]]);
}

#[test]
fn opportunistic_asks_are_kept_apart() {
    let mut life = Life::default();
    let mut want = Want::anywhere(2, resource(1024));
    want.execution = Execution::Opportunistic { enforce: true };
    life.want(vec![(7, want.clone())]);
    life.beat(vec![], vec![]);
    want.resource = resource(2048);
    life.want(vec![(7, want.clone())]);
    life.beat(vec![], vec![]);
    want.execution = Execution::Guaranteed;
    life.want(vec![(7, want)]);
    life.beat(vec![], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 2x1024 opportunistic
        #1; 7 * 0x1024 opportunistic; 7 * 2x2048 opportunistic
        #2; 7 * 0x2048 opportunistic; 7 * 2x2048
        #3"#]]);
}

#[test]
fn what_is_wanted_by_someone_who_has_not_heard_is_lowered() {
    let mut ledger: Ledger<u64> = Ledger::new();
    let want = |count| BTreeMap::from([(key(7), Want::anywhere(count, resource(1024)))]);
    ledger.set_wants(want(3), ReplyCount(0));
    ledger.request();
    let taken = ledger
        .on_reply(LedgerReply { response_id: 1, granted: vec![], completed: vec![] })
        .unwrap();
    ledger.request();
    let granted = vec![grant(1, 7, "a"), grant(2, 7, "a")];
    ledger.on_reply(LedgerReply { response_id: 2, granted, completed: vec![] }).unwrap();
    ledger.set_wants(want(3), taken.reply_count);
    assert_eq!(ledger.outstanding(), 1);
    assert!(!ledger.has_changes());
    ledger.set_wants(want(3), ledger.reply_count());
    assert_eq!(ledger.outstanding(), 3);
    assert!(ledger.has_changes());
}

#[test]
fn a_server_that_knows_no_allocation_ids_is_understood() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(1, resource(1024)))]);
    life.beat(vec![], vec![]);
    life.beat(vec![grant(1, -1, "a"), grant(2, -1, "a")], vec![]);
    life.beat(vec![], vec![]);
    life.check(expect![[r#"
        #0; 7 * 1x1024
        #1
        surplus 2
        #2; release 2"#]]);
}

#[test]
fn a_container_of_an_earlier_attempt_is_no_new_grant() {
    let mut life = Life::default();
    life.want(vec![(7, Want::anywhere(1, resource(1024)))]);
    life.ledger.adopt(1);
    life.beat(vec![grant(1, 7, "a")], vec![]);
    assert_eq!(life.ledger.outstanding(), 1);
}

#[test]
fn the_number_of_a_reply_wraps_around() {
    let mut ledger: Ledger<u64> = Ledger::new();
    let reply = |response_id| LedgerReply { response_id, granted: vec![], completed: vec![] };
    ledger.request();
    let error = ledger.on_reply(reply(7)).unwrap_err();
    assert_eq!(error.to_string(), "a reply has number 7, expected Some(1)");
    for number in 1..=3 {
        ledger.request();
        ledger.on_reply(reply(number)).unwrap();
    }
}

#[test]
fn what_an_earlier_attempt_avoided_and_this_one_does_not_is_allowed_again() {
    let mut ledger: Ledger<u64> = Ledger::new();
    ledger.inherit_excluded(["a", "b"].map(str::to_owned));
    ledger.set_excluded(BTreeSet::from(["b".to_owned(), "c".to_owned()]));
    let request = ledger.request();
    assert_eq!(request.readmit, ["a"]);
    assert_eq!(request.exclude, ["c"]);
}
