//! Tests of the ledger: single scenarios, and a simulation against a model of the ResourceManager
//! under thousands of fault schedules.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use yarn_native::ledger::{
    Execution, Grant, Key, Ledger, LedgerReply, LedgerRequest, Localities, Mutant, NodeLocality,
    RackLocality, ReplyCount, Want,
};
use yarn_native::types::Resource;

mod model;
mod world;

/// Number of seeds. `SEEDS=n` overrides it, `SEED=n` runs a single one.
const SEEDS: u64 = 1500;

#[test]
fn every_fault_schedule_converges_to_exactly_the_wanted_containers() {
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
fn every_mutant_is_detected() {
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
    for (action, hosts) in [("exclude", &request.exclude), ("readmit", &request.readmit)] {
        for host in hosts {
            lines.push(format!("{action} {host}"));
        }
    }
    for container in &request.releases {
        lines.push(format!("release {container}"));
    }
    lines.join("; ")
}

/// A ledger, and the requests it sent.
#[derive(Default)]
struct Scenario {
    ledger: Ledger<u64>,
    log: Vec<String>,
}

impl Scenario {
    fn want(&mut self, wants: Vec<(i64, Want)>) {
        let wants = wants.into_iter().map(|(allocation, want)| (key(allocation), want));
        self.ledger.set_wants(wants.collect(), self.ledger.reply_count());
    }

    fn exchange(&mut self, granted: Vec<Grant<u64>>, completed: Vec<u64>) {
        let request = self.ledger.request();
        self.log.push(show(&request));
        let reply = LedgerReply {
            response_id: request.response_id + 1,
            granted,
            completed,
            rejected: vec![],
        };
        let outcome = self.ledger.on_reply(reply).unwrap();
        for grant in outcome.surplus {
            self.log.push(format!("surplus {}", grant.container));
        }
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&self.log.join("\n"));
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
fn an_ask_is_sent_once() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(3, resource(1024)))]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![grant(1, 7, "a")], vec![]);
    scenario.exchange(vec![grant(2, 7, "a"), grant(3, 7, "b")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 3x1024
        #1
        #2
        #3"#]]);
}

#[test]
fn a_grant_in_flight_is_not_asked_for_again() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    scenario.exchange(vec![], vec![]);
    // Two more are wanted while both grants are in flight: the ask that crosses them is corrected.
    scenario.want(vec![(7, Want::anywhere(4, resource(1024)))]);
    scenario.exchange(vec![grant(1, 7, "a"), grant(2, 7, "a")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 2x1024
        #1; 7 * 4x1024
        #2; 7 * 2x1024"#]]);
}

#[test]
fn a_surplus_grant_is_released() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(1, resource(1024)))]);
    scenario.exchange(vec![grant(1, 7, "a"), grant(2, 7, "b")], vec![]);
    scenario.exchange(vec![], vec![2]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 1x1024
        surplus 2
        #1; 7 * 0x1024; release 2
        #2"#]]);
}

#[test]
fn a_release_without_effect_is_retried() {
    let mut scenario = Scenario::default();
    scenario.ledger.release(5);
    for _ in 0..80 {
        scenario.exchange(vec![], vec![]);
    }
    let times = scenario.log.iter().filter(|line| line.contains("release 5")).count();
    assert_eq!(times, 4, "then it is given up");
}

#[test]
fn everything_is_sent_again_after_a_resync() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    scenario.ledger.set_excluded(BTreeSet::from(["bad".into()]));
    scenario.ledger.release(9);
    scenario.exchange(vec![grant(1, 7, "a")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.log.push("resync".into());
    scenario.ledger.on_resync();
    scenario.exchange(vec![], vec![9]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 2x1024; exclude bad; release 9
        #1; 7 * 1x1024
        resync
        #0; 7 * 1x1024; exclude bad; release 9
        #1"#]]);
}

#[test]
fn a_lost_reply_is_retried_with_the_same_request() {
    let mut ledger: Ledger<u64> = Ledger::new();
    let want = |count| BTreeMap::from([(key(7), Want::anywhere(count, resource(1024)))]);
    ledger.set_wants(want(2), ReplyCount(0));
    let first = ledger.request();
    ledger.set_wants(want(5), ReplyCount(0));
    assert_eq!(ledger.request(), first, "even if the wants change meanwhile");
    let reply =
        LedgerReply { response_id: 1, granted: vec![], completed: vec![], rejected: vec![] };
    ledger.on_reply(reply.clone()).unwrap();
    assert!(ledger.on_reply(reply).is_err(), "a reply is accepted once");
    assert_eq!(show(&ledger.request()), "#1; 7 * 5x1024");
}

#[test]
fn a_rejected_request_is_rebuilt() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(2, resource(999_999)))]);
    assert_eq!(show(&scenario.ledger.request()), "#0; 7 * 2x999999");
    scenario.ledger.on_rejected();
    scenario.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect!["#0; 7 * 2x1024"]);
}

#[test]
fn host_rows_come_with_rack_rows() {
    let mut scenario = Scenario::default();
    let mut want = Want::anywhere(4, resource(1024));
    want.localities = on(&[("a", 2), ("b", 2)], true);
    want.label = Some("gpu".into());
    scenario.want(vec![(7, want)]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![grant(1, 7, "a"), grant(2, 7, "b")], vec![]);
    scenario.exchange(vec![], vec![]);
    // `a` is not wanted any more: its row is removed, that of `b` grows, the others stay.
    let mut want = Want::anywhere(2, resource(1024));
    want.localities = on(&[("b", 2)], true);
    want.label = Some("gpu".into());
    scenario.want(vec![(7, want)]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![grant(3, 7, "b"), grant(4, 7, "b")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 4x1024 strict label gpu; 7 /r 4x1024 strict; 7 a 2x1024; 7 b 2x1024
        #1
        #2
        #3; 7 a 0x1024; 7 b 2x1024
        #4
        #5"#]]);
}

#[test]
fn a_grant_on_a_named_host_keeps_the_rack_row() {
    let mut scenario = Scenario::default();
    let mut want = Want::anywhere(3, resource(1024));
    want.localities = on(&[("a", 1)], false);
    want.localities.racks.push(RackLocality { rack: "/r".into(), count: 2 });
    scenario.want(vec![(7, want)]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![grant(1, 7, "a")], vec![]);
    scenario.exchange(vec![grant(2, 7, "a")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 3x1024; 7 /r 3x1024; 7 a 1x1024
        #1
        #2
        #3"#]]);
}

#[test]
fn leftover_host_rows_are_removed() {
    let mut scenario = Scenario::default();
    let mut want = Want::anywhere(1, resource(1024));
    want.localities = on(&[("a", 1), ("b", 1)], false);
    scenario.want(vec![(7, want)]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![grant(1, 7, "a")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 1x1024; 7 /r 1x1024; 7 a 1x1024; 7 b 1x1024
        #1
        #2; 7 b 0x1024
        #3"#]]);
}

#[test]
fn a_changed_container_size_replaces_the_ask() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(2, resource(1024)))]);
    scenario.exchange(vec![], vec![]);
    scenario.want(vec![(7, Want::anywhere(2, resource(4096)))]);
    // A container of the former size was in flight: too small now.
    scenario.exchange(vec![grant(1, 7, "a")], vec![]);
    scenario.exchange(vec![], vec![1]);
    scenario.check(expect![[r#"
        #0; 7 * 2x1024
        #1; 7 * 2x4096
        surplus 1
        #2; release 1"#]]);
}

#[test]
fn opportunistic_asks_are_kept_separately() {
    let mut scenario = Scenario::default();
    let mut want = Want::anywhere(2, resource(1024));
    want.execution = Execution::Opportunistic { enforce: true };
    scenario.want(vec![(7, want.clone())]);
    scenario.exchange(vec![], vec![]);
    want.resource = resource(2048);
    scenario.want(vec![(7, want.clone())]);
    scenario.exchange(vec![], vec![]);
    want.execution = Execution::Guaranteed;
    scenario.want(vec![(7, want)]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 2x1024 opportunistic
        #1; 7 * 0x1024 opportunistic; 7 * 2x2048 opportunistic
        #2; 7 * 0x2048 opportunistic; 7 * 2x2048
        #3"#]]);
}

#[test]
fn grants_unseen_by_the_caller_are_deducted() {
    let mut ledger: Ledger<u64> = Ledger::new();
    let want = |count| BTreeMap::from([(key(7), Want::anywhere(count, resource(1024)))]);
    ledger.set_wants(want(3), ReplyCount(0));
    ledger.request();
    let outcome = ledger
        .on_reply(LedgerReply {
            response_id: 1,
            granted: vec![],
            completed: vec![],
            rejected: vec![],
        })
        .unwrap();
    ledger.request();
    let granted = vec![grant(1, 7, "a"), grant(2, 7, "a")];
    ledger
        .on_reply(LedgerReply { response_id: 2, granted, completed: vec![], rejected: vec![] })
        .unwrap();
    ledger.set_wants(want(3), outcome.reply_count);
    assert_eq!(ledger.outstanding(), 1);
    assert!(!ledger.has_changes());
    ledger.set_wants(want(3), ledger.reply_count());
    assert_eq!(ledger.outstanding(), 3);
    assert!(ledger.has_changes());
}

#[test]
fn grants_without_allocation_id_are_matched_by_priority() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(1, resource(1024)))]);
    scenario.exchange(vec![], vec![]);
    scenario.exchange(vec![grant(1, -1, "a"), grant(2, -1, "a")], vec![]);
    scenario.exchange(vec![], vec![]);
    scenario.check(expect![[r#"
        #0; 7 * 1x1024
        #1
        surplus 2
        #2; release 2"#]]);
}

#[test]
fn a_grant_of_an_adopted_container_is_a_duplicate() {
    let mut scenario = Scenario::default();
    scenario.want(vec![(7, Want::anywhere(1, resource(1024)))]);
    scenario.ledger.adopt(1);
    scenario.exchange(vec![grant(1, 7, "a")], vec![]);
    assert_eq!(scenario.ledger.outstanding(), 1);
}

#[test]
fn only_the_next_response_id_is_accepted() {
    let mut ledger: Ledger<u64> = Ledger::new();
    let reply = |response_id| LedgerReply {
        response_id,
        granted: vec![],
        completed: vec![],
        rejected: vec![],
    };
    ledger.request();
    let error = ledger.on_reply(reply(7)).unwrap_err();
    assert_eq!(error.to_string(), "unexpected response id 7, expected Some(1)");
    for number in 1..=3 {
        ledger.request();
        ledger.on_reply(reply(number)).unwrap();
    }
}

#[test]
fn inherited_exclusions_are_readmitted_unless_still_wanted() {
    let mut ledger: Ledger<u64> = Ledger::new();
    ledger.inherit_excluded(["a", "b"].map(str::to_owned));
    ledger.set_excluded(BTreeSet::from(["b".to_owned(), "c".to_owned()]));
    let request = ledger.request();
    assert_eq!(request.readmit, ["a"]);
    assert_eq!(request.exclude, ["c"]);
}
