//! Allocate calls: their ids, lost responses, and commands of the ResourceManager.

use std::sync::{Arc, Mutex};

use prost::Message;

use super::{Counting, ask, register, registered, response, soon};
use crate::proto::common::TokenProto;
use crate::proto::yarn::{AllocateRequestProto, AllocateResponseProto, AmCommandProto};
use crate::scheduler::fake::{Fake, FakeReply, PASSWORD};
use crate::scheduler::{AllocateRequest, Registration, SchedulerError};

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
