//! All kinds of placement constraints, and unsatisfiable ones.

use std::collections::BTreeSet;

use yarn_native::scheduler::{
    AllocateRequest, Constraint, PlacementScope, RejectionReason, SchedulingRequest,
};
use yarn_native::types::{ExecutionType, ExitStatus, LaunchContext};

use super::cluster;
use crate::support::master::{Master, small, version};

fn ask(request_id: i64, tag: &str, count: u32, constraint: Constraint) -> SchedulingRequest {
    SchedulingRequest {
        priority: request_id as i32,
        request_id,
        tags: BTreeSet::from([tag.to_owned()]),
        resource: small(),
        count,
        constraint: Some(constraint),
        execution: ExecutionType::Guaranteed,
    }
}

fn colour(value: &str, equal: bool) -> Constraint {
    Constraint::Attribute { name: "nm.yarn.io/colour".into(), value: value.into(), equal }
}

async fn send(master: &mut Master, asks: Vec<SchedulingRequest>) {
    let request = AllocateRequest { scheduling_requests: asks, ..AllocateRequest::default() };
    master.heartbeat(request).await.expect("a heartbeat");
}

#[tokio::test]
async fn constraints_are_combined_and_unsatisfiable_requests_rejected() {
    let mut master = Master::new(cluster(), "constraints").await;
    if !version().has_placement_constraints() {
        // Version 2.10 ignores the unknown field; plain asks still work.
        send(&mut master, vec![ask(1, "a", 1, colour("red", true))]).await;
        let end = master.run(&LaunchContext::command("exit 6")).await;
        assert_eq!(end.exit, ExitStatus::Exited(6));
        assert_eq!(master.granted, []);
        return master.finish().await;
    }
    let hosts: Vec<String> =
        cluster().nodes().iter().map(|node| node.address.ip().to_string()).collect();
    let away = |tag: &str| Constraint::anti_affinity(PlacementScope::Node, [tag]);
    let both = Constraint::All(vec![colour("blue", true), away("spread")]);
    let either = Constraint::Any(vec![colour("green", true), colour("red", true)]);
    let cases = [
        (ask(1, "red", 2, colour("red", true)), &hosts[..1], 1),
        (ask(2, "other", 2, colour("red", false)), &hosts[1..], 1),
        (ask(3, "spread", 2, both.clone()), &hosts[1..], 2),
        (ask(4, "either", 2, either), &hosts[..1], 1),
        (ask(5, "near", 2, Constraint::affinity(PlacementScope::Node, ["red"])), &hosts[..1], 1),
    ];
    for (asked, allowed, distinct_min) in cases {
        let id = asked.request_id;
        send(&mut master, vec![asked]).await;
        let granted = master.of_request(id, 2).await;
        let found: BTreeSet<&String> = granted.iter().map(|one| &one.node.host).collect();
        assert!(found.iter().all(|host| allowed.contains(host)), "{id}: {found:?}");
        assert!(found.len() >= distinct_min, "{id}: {found:?}");
    }

    // No node is left for a third container: the request is rejected, and others are not delayed.
    send(&mut master, vec![ask(6, "spread", 1, both)]).await;
    let rejected = master
        .until("a rejection", |master| {
            let mut answers = master.answers.iter();
            answers.find_map(|answer| answer.rejected.first().cloned())
        })
        .await;
    assert_eq!(rejected.reason, RejectionReason::CouldNotPlace);
    assert_eq!(rejected.request_id, 6);
    let end = master.run(&LaunchContext::command("exit 7")).await;
    assert_eq!(end.exit, ExitStatus::Exited(7));
    master.finish().await;
}
