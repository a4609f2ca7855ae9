use super::*;
use crate::route_table::Service;

fn replica(id: &str, revision: u64, weight: u32, concurrency: u32) -> Replica {
    Replica {
        id: id.into(),
        address: "127.0.0.1:1".into(),
        revision,
        weight,
        state: ReplicaState::Serving,
        concurrency,
    }
}

fn table(replicas: Vec<Replica>) -> RouteTable {
    let service = Service { slow_start: Duration::from_secs(10), ..Service::default() };
    RouteTable { version: 1, role: "server".into(), service, replicas }
}

fn balancer(now: Instant, replicas: Vec<Replica>) -> Balancer {
    let mut balancer = Balancer::new(Random::seeded(1));
    balancer.apply(now, &table(replicas));
    balancer
}

/// Picks and ends `n` requests one after the other; returns how many each replica got.
fn shares(balancer: &mut Balancer, now: Instant, n: usize) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for _ in 0..n {
        let picked = balancer.pick(now, &[]).unwrap();
        *shares.entry(picked.id.to_string()).or_insert(0) += 1;
        balancer.release(now, &picked, Verdict::Success);
    }
    shares
}

#[test]
fn requests_spread_evenly_and_never_above_the_limit() {
    let now = Instant::now();
    let mut balancer = balancer(now, (0..4).map(|n| replica(&n.to_string(), 1, 100, 10)).collect());
    let picked: Vec<_> = (0..40).map(|_| balancer.pick(now, &[]).unwrap()).collect();
    assert!(balancer.pick(now, &[]).is_none());
    for id in 0..4 {
        assert_eq!(picked.iter().filter(|one| *one.id == *id.to_string()).count(), 10);
    }
    balancer.release(now, &picked[7], Verdict::Success);
    assert_eq!(balancer.pick(now, &[]).unwrap().id, picked[7].id);
    assert_eq!(balancer.in_flight(), 40);
}

#[test]
fn two_choices_avoid_a_busy_replica() {
    let now = Instant::now();
    let mut balancer = balancer(now, vec![replica("a", 1, 100, 99), replica("b", 1, 100, 99)]);
    let busy: Vec<_> = (0..9).map(|_| balancer.pick(now, &["b".into()]).unwrap()).collect();
    assert!(busy.iter().all(|one| &*one.id == "a"));
    assert_eq!(shares(&mut balancer, now, 50), BTreeMap::from([("b".into(), 50)]));
}

#[test]
fn a_canary_gets_its_share_and_a_weight_of_zero_nothing() {
    let now = Instant::now();
    let mut balancer = balancer(
        now,
        vec![
            replica("old:0", 1, 45, 99),
            replica("old:1", 1, 45, 99),
            replica("canary", 2, 10, 99),
            replica("none", 3, 0, 99),
        ],
    );
    // Requests in flight at the old revision do not shift its share.
    let _busy: Vec<_> = (0..20).map(|_| balancer.pick(now, &["canary".into()])).collect();
    let shares = shares(&mut balancer, now, 10_000);
    assert!((800..1200).contains(&shares["canary"]), "{shares:?}");
    assert!(!shares.contains_key("none"));
}

#[test]
fn a_new_replica_starts_slowly() {
    let now = Instant::now();
    let old = replica("old", 1, 100, 99);
    let mut balancer = balancer(now, vec![old.clone()]);
    balancer.apply(now, &table(vec![old, replica("new", 1, 100, 99)]));
    let first = shares(&mut balancer, now, 1000).get("new").copied().unwrap_or(0);
    let half = shares(&mut balancer, now + Duration::from_secs(5), 1000)["new"];
    let full = shares(&mut balancer, now + Duration::from_secs(10), 1000)["new"];
    assert!(first < 150 && (250..450).contains(&half) && full > 400, "{first} {half} {full}");
}

#[test]
fn draining_and_removed_replicas_get_nothing_and_are_forgotten_at_their_end() {
    let now = Instant::now();
    let mut balancer = balancer(now, vec![replica("a", 1, 100, 9), replica("b", 1, 100, 9)]);
    let last = balancer.pick(now, &["b".into()]).unwrap();
    let draining = Replica { state: ReplicaState::Draining, ..replica("a", 1, 100, 9) };
    balancer.apply(now, &table(vec![draining, replica("b", 1, 100, 9)]));
    assert_eq!(shares(&mut balancer, now, 20), BTreeMap::from([("b".into(), 20)]));
    balancer.apply(now, &table(vec![replica("b", 1, 100, 9)]));
    assert_eq!(balancer.states()[&(MemberState::Draining, 1)], 1);
    assert_eq!(balancer.in_flight(), 1);
    balancer.release(now, &last, Verdict::Success);
    assert_eq!(balancer.states(), BTreeMap::from([((MemberState::Serving, 1), 1)]));
}

#[test]
fn never_more_than_half_of_the_replicas_are_ejected() {
    let now = Instant::now();
    for (replicas, most) in [(1, 0), (2, 1), (3, 1), (5, 2)] {
        let mut balancer =
            balancer(now, (0..replicas).map(|n| replica(&n.to_string(), 1, 100, 99)).collect());
        let ejected = (0..500)
            .filter(|_| {
                let picked = balancer.pick(now, &[]).unwrap();
                balancer.release(now, &picked, Verdict::Failure)
            })
            .count();
        assert_eq!(ejected, most, "of {replicas}");
    }
}

#[test]
fn a_request_counts_once_even_if_its_replica_is_gone() {
    let now = Instant::now();
    let mut balancer = balancer(now, vec![replica("a", 1, 100, 9)]);
    let picked = balancer.pick(now, &[]).unwrap();
    balancer.release(now, &picked, Verdict::Unknown);
    balancer.apply(now, &table(vec![]));
    balancer.release(now, &picked, Verdict::Unknown);
    assert_eq!(balancer.in_flight(), 0);
}
