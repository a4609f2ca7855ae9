//! Registration and finish.

use std::sync::{Arc, Mutex};

use super::{register, registered, response, soon};
use crate::proto::yarn::FinishApplicationMasterResponseProto;
use crate::rpc::Protocol;
use crate::scheduler::fake::{Fake, FakeReply};
use crate::scheduler::{AllocateRequest, AmRmClient, Finish, Registration, SchedulerError};
use crate::types::FinalStatus;

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
