//! A master against a ResourceManager that behaves as a test says.

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

fn beat(id: i32) -> AllocateResponseProto {
    AllocateResponseProto { response_id: Some(id), ..AllocateResponseProto::default() }
}

/// A ResourceManager that counts as the real one does: it repeats the last answer when asked with
/// the number before it, and refuses every other number. `cut` says which calls lose their answer.
#[derive(Default)]
struct Counting {
    calls: u32,
    last: i32,
    applied: Vec<AllocateRequestProto>,
}

impl Counting {
    fn allocate(&mut self, body: &[u8], cut: impl Fn(u32) -> bool) -> FakeReply {
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
        match cut(self.calls) {
            true => FakeReply::Disconnect,
            false => FakeReply::message(&beat(self.last)),
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
async fn a_request_whose_answer_is_lost_is_applied_once() {
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
async fn a_beat_that_is_cut_short_is_said_again_before_anything_else() {
    let rm = Arc::new(Mutex::new(Counting::default()));
    let script = rm.clone();
    let fake = Fake::new(move |method, body| match method {
        "allocate" => script.lock().unwrap().allocate(body, |_| false),
        _ => registered(),
    });
    let mut scheduler = register(&fake).await;
    {
        let beat = scheduler.allocate(ask(1), soon());
        tokio::pin!(beat);
        // Polled once: the request has been made, and is on its way or not.
        assert!(futures_poll_once(beat.as_mut()).await);
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

/// Polls a future once; whether it is still pending.
async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(context).is_pending())
    })
    .await
}

#[tokio::test]
async fn a_refused_request_is_dropped_and_the_next_one_counts_on() {
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
    let refused = scheduler.allocate(ask(1), soon()).await;
    assert!(matches!(refused, Err(SchedulerError::Rejected { .. })), "{refused:?}");
    scheduler.allocate(ask(2), soon()).await.expect("an answer");
    assert_eq!(rm.lock().unwrap().applied.len(), 1);
}

#[tokio::test]
async fn a_master_that_was_forgotten_registers_again_and_counts_from_the_start() {
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
    let silent = scheduler.allocate(|| unreachable!("not asked"), soon()).await;
    assert_eq!(silent, Err(SchedulerError::NotRegistered));
    scheduler.register(&Registration::new("host"), soon()).await.expect("registered");
    scheduler.allocate(ask(2), soon()).await.expect("an answer");
    assert_eq!(state.lock().unwrap().1.applied[0].response_id(), 0);
}

#[tokio::test]
async fn an_answer_to_something_else_is_no_answer() {
    let fake = Fake::new(|method, body| match method {
        "allocate" => {
            let request = AllocateRequestProto::decode(body).expect("a request");
            FakeReply::message(&beat(request.response_id() + 2))
        }
        _ => registered(),
    });
    let mut scheduler = register(&fake).await;
    let refused = scheduler.allocate(ask(1), soon()).await;
    let refused = refused.expect_err("out of turn").to_string();
    assert!(refused.contains("answer 2 is out of turn"), "{refused}");
}

fn two() -> Ledger<ContainerId> {
    let mut ledger = Ledger::new();
    let key = Key { priority: 1, allocation: 7 };
    let want = Want::anywhere(2, Resource::new(64, 1));
    ledger.set_wants([(key, want)].into(), ledger.reply_count());
    ledger
}

/// A container of the ask that [`two`] makes.
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
async fn a_ledger_says_its_ask_once_and_gives_back_what_it_did_not_want() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let log = said.clone();
    let fake = Fake::new(move |method, body| {
        if method != "allocate" {
            return registered();
        }
        let request = AllocateRequestProto::decode(body).expect("a request");
        let rows: Vec<i32> = request.ask.iter().map(|row| row.num_containers()).collect();
        let released = request.release.len();
        let mut said = log.lock().unwrap();
        said.push((rows, released, request.progress()));
        FakeReply::message(&AllocateResponseProto {
            allocated_containers: match request.response_id() {
                0 => vec![],
                1 => (2..5).map(granted).collect(),
                // Told again, it is nothing new.
                _ => vec![granted(2)],
            },
            ..beat(request.response_id() + 1)
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
        let (answer, taken) =
            scheduler.exchange(&mut ledger, rest, soon()).await.expect("an answer");
        counts.push((answer.granted.len(), taken.surplus.len()));
    }
    assert_eq!(counts, [(0, 0), (2, 1), (0, 0)]);
    let expected = [(vec![2], 0, 0.5), (vec![], 0, 0.5), (vec![], 1, 0.5)];
    assert_eq!(*said.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_container_that_was_kept_is_no_new_one_when_it_is_granted_again() {
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
            ..beat(request.response_id() + 1)
        })
    });
    let mut scheduler = register(&fake).await;
    let mut ledger = two();
    for recovered in [1, 0] {
        let heard = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        let (answer, taken) = heard.await.expect("an answer");
        assert_eq!((answer.recovered.len(), answer.granted.len()), (recovered, 0));
        assert!(taken.wanted.is_empty() && taken.surplus.is_empty());
    }
    assert_eq!(ledger.outstanding(), 2);
}

#[tokio::test]
async fn a_ledger_says_all_again_to_whoever_forgot_it_and_nothing_twice_to_whoever_was_not_heard() {
    let state = Arc::new(Mutex::new((false, Counting::default())));
    let script = state.clone();
    let fake = Fake::new(move |method, body| {
        let (known, rm) = &mut *script.lock().unwrap();
        match method {
            "registerApplicationMaster" => {
                (*known, *rm) = (true, Counting::default());
                registered()
            }
            // The first answer of each life is lost.
            "allocate" if *known => rm.allocate(body, |call| call == 1),
            _ => FakeReply::Exception("ApplicationMasterNotRegisteredException", "".into()),
        }
    });
    let mut scheduler = register(&fake).await;
    let mut ledger = two();
    let said = || {
        let rm = &state.lock().unwrap().1;
        let asks = rm.applied.iter().map(|request| request.ask.len());
        asks.collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let heard = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        heard.await.expect("an answer");
    }
    assert_eq!(said(), [1, 0]);
    state.lock().unwrap().0 = false;
    let forgotten = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
    assert_eq!(forgotten.await, Err(SchedulerError::NotRegistered));
    let registration = Registration::new("host");
    let again = scheduler.register(&registration, soon()).await;
    again.expect("registered");
    for _ in 0..2 {
        let heard = scheduler.exchange(&mut ledger, AllocateRequest::default, soon());
        heard.await.expect("an answer");
    }
    assert_eq!(said(), [1, 0]);
}

#[tokio::test]
async fn commands_in_an_answer_are_heard() {
    for (command, over) in [(AmCommandProto::AmResync, false), (AmCommandProto::AmShutdown, true)] {
        let fake = Fake::new(move |method, _| match method {
            "allocate" => FakeReply::message(&AllocateResponseProto {
                a_m_command: Some(command.into()),
                ..beat(1)
            }),
            _ => registered(),
        });
        let mut scheduler = register(&fake).await;
        let told = scheduler.allocate(AllocateRequest::default, soon()).await;
        match told {
            Err(SchedulerError::NotRegistered) => assert!(!over),
            Err(SchedulerError::AttemptEnded { .. }) => assert!(over),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_new_token_is_used_from_the_next_call_on() {
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
            ..beat(request.response_id() + 1)
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
async fn a_registration_whose_answer_is_lost_is_known_to_have_been_made() {
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
        _ => FakeReply::message(&beat(1)),
    });
    let mut scheduler = AmRmClient::with_channel(fake.channel(Protocol::APPLICATION_MASTER));
    let again = scheduler.register(&Registration::new("host"), soon()).await;
    assert!(matches!(again, Err(SchedulerError::AlreadyRegistered { .. })), "{again:?}");
    scheduler.allocate(AllocateRequest::default, soon()).await.expect("the master can go on");
}

#[tokio::test]
async fn an_end_is_said_until_it_is_complete_and_survives_a_restart() {
    let mut calls = Vec::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
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
    scheduler.finish(&finish, soon()).await.expect("the end");
    let (register, finish) = ("registerApplicationMaster", "finishApplicationMaster");
    assert_eq!(*told.lock().unwrap(), [register, finish, register, finish, finish, finish]);
    assert!(!scheduler.is_registered());
}

#[tokio::test]
async fn an_end_that_nobody_heard_is_not_taken_for_done() {
    let fake = Fake::new(|method, _| match method {
        "registerApplicationMaster" => registered(),
        _ => FakeReply::Exception("ApplicationAttemptNotFoundException", "gone".into()),
    });
    let mut scheduler = register(&fake).await;
    let finish = Finish::new(FinalStatus::Succeeded);
    let told = scheduler.finish(&finish, soon()).await;
    assert!(matches!(told, Err(SchedulerError::AttemptEnded { .. })), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_answer_never_came_is_done_once_the_attempt_is_gone() {
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
    scheduler.finish(&finish, soon()).await.expect("the end");
}

/// With something in every list.
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
        // Of a state that only a later version knows.
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
        ..beat(1)
    }
}

#[test]
fn an_answer_is_read_to_its_last_field() {
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
    let nameless =
        AllocateResponseProto { allocated_containers: vec![ContainerProto::default()], ..beat(1) };
    assert!(AllocateResponse::of(nameless).is_err());
}

#[test]
fn answers_with_any_bytes_changed_are_read_or_refused() {
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
    assert!(read > 100, "{read} were read, which says little");
}
