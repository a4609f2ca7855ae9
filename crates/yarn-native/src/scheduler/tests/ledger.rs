//! A ledger on top of allocate calls.

use std::sync::{Arc, Mutex};

use prost::Message;

use super::{Counting, register, registered, response, soon};
use crate::ledger::{Key, Ledger, Want};
use crate::proto::common::TokenProto;
use crate::proto::yarn::{AllocateRequestProto, AllocateResponseProto, ContainerProto};
use crate::scheduler::fake::{Fake, FakeReply};
use crate::scheduler::{AllocateRequest, Ask, Registration, SchedulerError};
use crate::types::{ContainerId, NodeId, Resource};

fn two() -> Ledger<ContainerId> {
    let mut ledger = Ledger::new();
    let key = Key { priority: 1, allocation: 7 };
    let want = Want::anywhere(2, Resource::new(64, 1));
    ledger.set_wants([(key, want)].into(), ledger.reply_count());
    ledger
}

/// Returns a container for the ask of [`two`].
fn granted(number: u64) -> ContainerProto {
    let id: ContainerId = format!("container_e01_1_0001_01_{number:06}").parse().expect("an id");
    let node: NodeId = "n:1".parse().expect("an id");
    ContainerProto {
        id: Some(id.proto()),
        node_id: Some(node.proto()),
        resource: Some(Resource::new(64, 1).proto()),
        priority: Some(crate::scheduler::ask::priority(1)),
        container_token: Some(TokenProto::default()),
        allocation_request_id: Some(7),
        ..ContainerProto::default()
    }
}

#[tokio::test]
async fn a_ledger_sends_its_ask_once_and_releases_surplus_containers() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = sent.clone();
    let fake = Fake::new(move |method, body| {
        if method != "allocate" {
            return registered();
        }
        let request = AllocateRequestProto::decode(body).expect("a request");
        let rows: Vec<i32> = request.ask.iter().map(|row| row.num_containers()).collect();
        let released = request.release.len();
        let mut sent = log.lock().unwrap();
        sent.push((rows, released, request.progress()));
        FakeReply::message(&AllocateResponseProto {
            allocated_containers: match request.response_id() {
                0 => vec![],
                1 => (2..5).map(granted).collect(),
                // A repeated grant is a duplicate.
                _ => vec![granted(2)],
            },
            ..response(request.response_id() + 1)
        })
    });
    let mut scheduler = register(&fake).await;
    let mut ledger = two();
    let rest = || AllocateRequest {
        asks: vec![Ask::anywhere(99, Resource::new(1, 1), 1)],
        progress: 0.5,
        ..AllocateRequest::default()
    };
    let mut counts = Vec::new();
    for _ in 0..3 {
        let (answer, outcome) =
            scheduler.exchange(&mut ledger, rest, soon()).await.expect("an answer");
        counts.push((answer.granted.len(), outcome.surplus.len()));
    }
    assert_eq!(counts, [(0, 0), (2, 1), (0, 0)]);
    let expected = [(vec![2], 0, 0.5), (vec![], 0, 0.5), (vec![], 1, 0.5)];
    assert_eq!(*sent.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_recovered_container_granted_again_is_a_duplicate() {
    let fake = Fake::new(|method, body| {
        if method != "allocate" {
            return registered();
        }
        let request = AllocateRequestProto::decode(body).expect("a request");
        let (mut recovered, mut new) = (Vec::new(), Vec::new());
        match request.response_id() {
            0 => recovered.push(granted(2)),
            _ => new.push(granted(2)),
        }
        FakeReply::message(&AllocateResponseProto {
            containers_from_previous_attempts: recovered,
            allocated_containers: new,
            ..response(request.response_id() + 1)
        })
    });
    let mut scheduler = register(&fake).await;
    let mut ledger = two();
    for recovered in [1, 0] {
        let result = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        let (answer, outcome) = result.await.expect("an answer");
        assert_eq!((answer.recovered.len(), answer.granted.len()), (recovered, 0));
        assert!(outcome.wanted.is_empty() && outcome.surplus.is_empty());
    }
    assert_eq!(ledger.outstanding(), 2);
}

#[tokio::test]
async fn a_ledger_resends_everything_after_a_restart_and_nothing_after_a_lost_response() {
    let state = Arc::new(Mutex::new((false, Counting::default())));
    let script = state.clone();
    let fake = Fake::new(move |method, body| {
        let (known, rm) = &mut *script.lock().unwrap();
        match method {
            "registerApplicationMaster" => {
                (*known, *rm) = (true, Counting::default());
                registered()
            }
            // The first response after each registration is lost.
            "allocate" if *known => rm.allocate(body, |call| call == 1),
            _ => FakeReply::Exception("ApplicationMasterNotRegisteredException", "".into()),
        }
    });
    let mut scheduler = register(&fake).await;
    let mut ledger = two();
    let sent = || {
        let rm = &state.lock().unwrap().1;
        let asks = rm.applied.iter().map(|request| request.ask.len());
        asks.collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let result = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        result.await.expect("an answer");
    }
    assert_eq!(sent(), [1, 0]);
    state.lock().unwrap().0 = false;
    let forgotten = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
    assert_eq!(forgotten.await, Err(SchedulerError::NotRegistered));
    let registration = Registration::new("host");
    let again = scheduler.register(&registration, soon()).await;
    again.expect("registered");
    for _ in 0..2 {
        let result = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        result.await.expect("an answer");
    }
    assert_eq!(sent(), [1, 0]);
}
