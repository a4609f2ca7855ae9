//! Tests of the scheduler client against a scripted ResourceManager.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use tokio::time::Instant;

use crate::ledger::{Key, Ledger, Want};
use crate::noise::Noise;
use crate::proto::common::TokenProto;
use crate::proto::yarn::{
    AllocateRequestProto, AllocateResponseProto, AmCommandProto, ContainerProto,
    ContainerStateProto, ContainerStatusProto, FinishApplicationMasterResponseProto, NmTokenProto,
    NodeReportProto, PreemptionContainerProto, PreemptionContractProto, PreemptionMessageProto,
    RegisterApplicationMasterResponseProto, RejectedSchedulingRequestProto, RejectionReasonProto,
    SchedulingRequestProto, StrictPreemptionContractProto,
};
use crate::rpc::Protocol;
use crate::scheduler::fake::{Fake, FakeReply, PASSWORD};
use crate::scheduler::{
    AllocateRequest, AllocateResponse, AmRmClient, Ask, Finish, RegisterResponse, Registration,
    SchedulerError,
};
use crate::types::{ContainerId, ExitStatus, FinalStatus, NodeId, Resource};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn registered() -> FakeReply {
    FakeReply::message(&RegisterApplicationMasterResponseProto {
        maximum_capability: Some(Resource::new(8192, 4).proto()),
        queue: Some("default".into()),
        ..RegisterApplicationMasterResponseProto::default()
    })
}

fn response(id: i32) -> AllocateResponseProto {
    AllocateResponseProto { response_id: Some(id), ..AllocateResponseProto::default() }
}

/// A ResourceManager that counts like the real one: it repeats the last response for the id before
/// it, and rejects every other id. `lost` selects the calls that lose their response.
#[derive(Default)]
struct Counting {
    calls: u32,
    last: i32,
    applied: Vec<AllocateRequestProto>,
}

impl Counting {
    fn allocate(&mut self, body: &[u8], lost: impl Fn(u32) -> bool) -> FakeReply {
        let request = AllocateRequestProto::decode(body).expect("a request");
        self.calls += 1;
        let id = request.response_id();
        if id == self.last {
            self.last += 1;
            self.applied.push(request);
        } else if id + 1 != self.last {
            let message = format!("Invalid responseId {id}");
            return FakeReply::Exception("InvalidApplicationMasterRequestException", message);
        }
        match lost(self.calls) {
            true => FakeReply::Disconnect,
            false => FakeReply::message(&response(self.last)),
        }
    }
}

fn ask(request_id: i64) -> impl FnOnce() -> AllocateRequest {
    move || AllocateRequest {
        asks: vec![Ask::anywhere(request_id, Resource::new(64, 1), 1)],
        ..AllocateRequest::default()
    }
}

async fn register(fake: &Fake) -> AmRmClient {
    let mut scheduler = AmRmClient::with_channel(fake.channel(Protocol::APPLICATION_MASTER));
    let registration = Registration::new("host");
    let registered = scheduler.register(&registration, soon()).await;
    assert_eq!(registered.expect("registered").queue, "default");
    scheduler
}

#[tokio::test]
async fn a_request_with_a_lost_response_is_applied_once() {
    let rm = Arc::new(Mutex::new(Counting::default()));
    let script = rm.clone();
    let fake = Fake::new(move |method, body| match method {
        "allocate" => script.lock().unwrap().allocate(body, |call| call % 2 == 1),
        _ => registered(),
    });
    let mut scheduler = register(&fake).await;
    for id in 1..=5 {
        scheduler.allocate(ask(id), soon()).await.expect("an answer");
    }
    let rm = rm.lock().unwrap();
    let applied: Vec<i64> = rm
        .applied
        .iter()
        .flat_map(|request| &request.ask)
        .map(|ask| ask.allocation_request_id())
        .collect();
    assert_eq!(applied, [1, 2, 3, 4, 5]);
    assert_eq!(rm.calls, 10);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_allocate_is_resent_first() {
    let rm = Arc::new(Mutex::new(Counting::default()));
    let script = rm.clone();
    let fake = Fake::new(move |method, body| match method {
        "allocate" => script.lock().unwrap().allocate(body, |_| false),
        _ => registered(),
    });
    let mut scheduler = register(&fake).await;
    {
        let allocate = scheduler.allocate(ask(1), soon());
        tokio::pin!(allocate);
        // Polled once: the request has been built, and may be on its way.
        assert!(futures_poll_once(allocate.as_mut()).await);
    }
    scheduler.allocate(ask(2), soon()).await.expect("an answer");
    scheduler.allocate(ask(3), soon()).await.expect("an answer");
    let rm = rm.lock().unwrap();
    let applied: Vec<i64> = rm
        .applied
        .iter()
        .flat_map(|request| &request.ask)
        .map(|ask| ask.allocation_request_id())
        .collect();
    assert_eq!(applied, [1, 3]);
}

/// Polls a future once and returns true if it is pending.
async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(context).is_pending())
    })
    .await
}

#[tokio::test]
async fn a_rejected_request_is_dropped_and_the_id_continues() {
    let rm = Arc::new(Mutex::new(Counting::default()));
    let script = rm.clone();
    let fake = Fake::new(move |method, body| match method {
        "allocate" => {
            let request = AllocateRequestProto::decode(body).expect("a request");
            if request.ask.iter().any(|ask| ask.allocation_request_id() == 1) {
                return FakeReply::Exception("InvalidResourceRequestException", "too large".into());
            }
            script.lock().unwrap().allocate(body, |_| false)
        }
        _ => registered(),
    });
    let mut scheduler = register(&fake).await;
    let rejected = scheduler.allocate(ask(1), soon()).await;
    assert!(matches!(rejected, Err(SchedulerError::Rejected { .. })), "{rejected:?}");
    scheduler.allocate(ask(2), soon()).await.expect("an answer");
    assert_eq!(rm.lock().unwrap().applied.len(), 1);
}

#[tokio::test]
async fn a_forgotten_master_registers_again_and_restarts_the_ids() {
    let state = Arc::new(Mutex::new((false, Counting::default())));
    let script = state.clone();
    let fake = Fake::new(move |method, body| {
        let (known, rm) = &mut *script.lock().unwrap();
        match method {
            "registerApplicationMaster" => {
                (*known, *rm) = (true, Counting::default());
                registered()
            }
            "allocate" if *known => rm.allocate(body, |_| false),
            _ => FakeReply::Exception(
                "ApplicationMasterNotRegisteredException",
                "AM should re-register.".into(),
            ),
        }
    });
    let mut scheduler = register(&fake).await;
    scheduler.allocate(ask(1), soon()).await.expect("an answer");
    state.lock().unwrap().0 = false;
    let forgotten = scheduler.allocate(ask(2), soon()).await;
    assert_eq!(forgotten, Err(SchedulerError::NotRegistered));
    assert!(!scheduler.is_registered());
    let silent = scheduler.allocate(|| unreachable!("not called"), soon()).await;
    assert_eq!(silent, Err(SchedulerError::NotRegistered));
    scheduler.register(&Registration::new("host"), soon()).await.expect("registered");
    scheduler.allocate(ask(2), soon()).await.expect("an answer");
    assert_eq!(state.lock().unwrap().1.applied[0].response_id(), 0);
}

#[tokio::test]
async fn a_response_with_another_id_is_rejected() {
    let fake = Fake::new(|method, body| match method {
        "allocate" => {
            let request = AllocateRequestProto::decode(body).expect("a request");
            FakeReply::message(&response(request.response_id() + 2))
        }
        _ => registered(),
    });
    let mut scheduler = register(&fake).await;
    let rejected = scheduler.allocate(ask(1), soon()).await;
    let rejected = rejected.expect_err("an error").to_string();
    assert!(rejected.contains("unexpected response id 2"), "{rejected}");
}

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

#[tokio::test]
async fn commands_in_a_response_are_errors() {
    for (command, over) in [(AmCommandProto::AmResync, false), (AmCommandProto::AmShutdown, true)] {
        let fake = Fake::new(move |method, _| match method {
            "allocate" => FakeReply::message(&AllocateResponseProto {
                a_m_command: Some(command.into()),
                ..response(1)
            }),
            _ => registered(),
        });
        let mut scheduler = register(&fake).await;
        let result = scheduler.allocate(AllocateRequest::default, soon()).await;
        match result {
            Err(SchedulerError::NotRegistered) => assert!(!over),
            Err(SchedulerError::AttemptEnded { .. }) => assert!(over),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_new_token_is_used_from_the_next_call() {
    let fake = Fake::new(|method, body| {
        if method != "allocate" {
            return registered();
        }
        let request = AllocateRequestProto::decode(body).expect("a request");
        let first = request.response_id() == 0;
        FakeReply::message(&AllocateResponseProto {
            am_rm_token: first.then(|| TokenProto {
                identifier: vec![7, 7, 7],
                password: PASSWORD.into(),
                kind: String::new(),
                service: String::new(),
            }),
            ..response(request.response_id() + 1)
        })
    });
    let mut scheduler = register(&fake).await;
    let first = scheduler.allocate(AllocateRequest::default, soon()).await;
    assert!(first.expect("an answer").token_replaced);
    for _ in 0..2 {
        let later = scheduler.allocate(AllocateRequest::default, soon()).await;
        assert!(!later.expect("an answer").token_replaced);
    }
    let logins: Vec<_> = fake.seen().into_iter().map(|(_, user)| user).collect();
    assert_eq!(logins, [None, Some("BwcH".into())]);
}

#[tokio::test]
async fn a_registration_with_a_lost_response_is_detected() {
    let mut calls = 0;
    let fake = Fake::new(move |method, _| match method {
        "registerApplicationMaster" => {
            calls += 1;
            match calls {
                1 => FakeReply::Disconnect,
                _ => FakeReply::Exception(
                    "InvalidApplicationMasterRequestException",
                    "Application Master is already registered : application_1_0001".into(),
                ),
            }
        }
        _ => FakeReply::message(&response(1)),
    });
    let mut scheduler = AmRmClient::with_channel(fake.channel(Protocol::APPLICATION_MASTER));
    let again = scheduler.register(&Registration::new("host"), soon()).await;
    assert!(matches!(again, Err(SchedulerError::AlreadyRegistered { .. })), "{again:?}");
    scheduler.allocate(AllocateRequest::default, soon()).await.expect("the master continues");
}

#[tokio::test]
async fn finish_is_repeated_until_complete_and_across_a_restart() {
    let mut calls = Vec::new();
    let result = Arc::new(Mutex::new(Vec::new()));
    let log = result.clone();
    let fake = Fake::new(move |method, _| {
        calls.push(method.to_owned());
        *log.lock().unwrap() = calls.clone();
        match (method, calls.len()) {
            ("registerApplicationMaster", _) => registered(),
            (_, 2) => FakeReply::Exception("ApplicationMasterNotRegisteredException", "".into()),
            (_, 4) => FakeReply::Disconnect,
            (_, 5) => FakeReply::message(&FinishApplicationMasterResponseProto {
                is_unregistered: Some(false),
            }),
            _ => FakeReply::Exception("ApplicationAttemptNotFoundException", "gone".into()),
        }
    });
    let mut scheduler = register(&fake).await;
    let finish = Finish::new(FinalStatus::Succeeded);
    scheduler.finish(&finish, soon()).await.expect("finished");
    let (register, finish) = ("registerApplicationMaster", "finishApplicationMaster");
    assert_eq!(*result.lock().unwrap(), [register, finish, register, finish, finish, finish]);
    assert!(!scheduler.is_registered());
}

#[tokio::test]
async fn finish_of_an_ended_attempt_is_an_error() {
    let fake = Fake::new(|method, _| match method {
        "registerApplicationMaster" => registered(),
        _ => FakeReply::Exception("ApplicationAttemptNotFoundException", "gone".into()),
    });
    let mut scheduler = register(&fake).await;
    let finish = Finish::new(FinalStatus::Succeeded);
    let result = scheduler.finish(&finish, soon()).await;
    assert!(matches!(result, Err(SchedulerError::AttemptEnded { .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn finish_with_a_lost_response_succeeds_once_the_attempt_is_gone() {
    let mut ends = 0;
    let fake = Fake::new(move |method, _| {
        if method == "registerApplicationMaster" {
            return registered();
        }
        ends += 1;
        match ends {
            1 => FakeReply::NoReply,
            _ => FakeReply::Exception("ApplicationAttemptNotFoundException", "gone".into()),
        }
    });
    let mut scheduler = register(&fake).await;
    let finish = Finish::new(FinalStatus::Succeeded);
    let late = scheduler.finish(&finish, soon()).await;
    assert!(matches!(late, Err(SchedulerError::NoResponse(_))), "{late:?}");
    scheduler.finish(&finish, soon()).await.expect("finished");
}

/// Returns a response with something in every list.
fn full_answer(id: ContainerId, node: &NodeId) -> AllocateResponseProto {
    let status = ContainerStatusProto {
        container_id: Some(id.proto()),
        state: Some(ContainerStateProto::CComplete.into()),
        exit_status: Some(-102),
        diagnostics: Some("Container preempted by scheduler".into()),
        ..ContainerStatusProto::default()
    };
    let preempted = || vec![PreemptionContainerProto { id: Some(id.proto()) }];
    AllocateResponseProto {
        allocated_containers: vec![ContainerProto {
            id: Some(id.proto()),
            node_id: Some(node.proto()),
            resource: Some(Resource::new(64, 1).proto()),
            container_token: Some(TokenProto::default()),
            allocation_request_id: Some(7),
            ..ContainerProto::default()
        }],
        completed_container_statuses: vec![status],
        nm_tokens: vec![NmTokenProto {
            node_id: Some(node.proto()),
            token: Some(TokenProto::default()),
        }],
        // With a state that only a later version knows.
        updated_nodes: vec![NodeReportProto {
            node_id: Some(node.proto()),
            node_state: Some(99),
            ..NodeReportProto::default()
        }],
        preempt: Some(PreemptionMessageProto {
            strict_contract: Some(StrictPreemptionContractProto { container: preempted() }),
            contract: Some(PreemptionContractProto {
                resource: Vec::new(),
                container: preempted(),
            }),
        }),
        num_cluster_nodes: Some(3),
        limit: Some(Resource::new(1, 1).proto()),
        rejected_scheduling_requests: vec![RejectedSchedulingRequestProto {
            reason: RejectionReasonProto::RrpCouldNotPlaceOnNode.into(),
            request: SchedulingRequestProto::default(),
        }],
        ..response(1)
    }
}

#[test]
fn all_fields_of_a_response_are_read() {
    let id: ContainerId = "container_e01_1_0001_01_000002".parse().expect("an id");
    let node: NodeId = "n:1".parse().expect("an id");
    let answer = AllocateResponse::of(full_answer(id, &node)).expect("an answer");
    assert_eq!(answer.granted[0].request_id, 7);
    assert_eq!(answer.completed[0].exit, ExitStatus::Preempted);
    assert_eq!(answer.node_tokens[0].node, node);
    assert_eq!(answer.nodes, []);
    let preemption = answer.preemption.expect("a notice");
    assert_eq!((preemption.strict, preemption.negotiable), (vec![id], vec![id]));
    assert_eq!(answer.cluster_nodes, 3);
    let nameless = AllocateResponseProto {
        allocated_containers: vec![ContainerProto::default()],
        ..response(1)
    };
    assert!(AllocateResponse::of(nameless).is_err());
}

#[test]
fn damaged_responses_do_not_panic() {
    let id: ContainerId = "container_e01_1_0001_01_000002".parse().expect("an id");
    let node: NodeId = "n:1".parse().expect("an id");
    let sound = full_answer(id, &node).encode_to_vec();
    let mut noise = Noise::new(4);
    let mut read = 0;
    for _ in 0..20_000 {
        let bytes = noise.mutated(&sound);
        let Ok(proto) = AllocateResponseProto::decode(&bytes[..]) else {
            continue;
        };
        if let Ok(answer) = AllocateResponse::of(proto) {
            read += 1;
            let _ = format!("{answer:?}");
        }
        if let Ok(proto) = RegisterApplicationMasterResponseProto::decode(&bytes[..]) {
            let _ = format!("{:?}", RegisterResponse::of(proto));
        }
    }
    assert!(read > 100, "only {read} were read");
}
