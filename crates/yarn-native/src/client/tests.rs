//! A client against a ResourceManager that behaves as a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use tokio::time::Instant;

use crate::client::{ApplicationFilter, Client, Submission};
use crate::proto::yarn::{
    ApplicationReportProto, GetApplicationReportResponseProto, GetApplicationsResponseProto,
    GetClusterNodesRequestProto, GetClusterNodesResponseProto, KillApplicationResponseProto,
    SubmitApplicationResponseProto, YarnApplicationStateProto,
};
use crate::rpc::{Protocol, RpcError};
use crate::scheduler::fake::{Fake, FakeReply};
use crate::types::{ApplicationId, ApplicationState, NodeState};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn client(script: impl FnMut(&str, &[u8]) -> FakeReply + Send + 'static) -> Client {
    Client::with_channel(Fake::new(script).channel(Protocol::APPLICATION_CLIENT))
}

fn id(number: i32) -> ApplicationId {
    ApplicationId { cluster: 1, number }
}

fn report(number: i32, name: &str, state: YarnApplicationStateProto) -> ApplicationReportProto {
    ApplicationReportProto {
        application_id: Some(id(number).proto()),
        name: Some(name.into()),
        yarn_application_state: Some(state.into()),
        ..ApplicationReportProto::default()
    }
}

#[tokio::test]
async fn a_server_that_does_not_know_names_is_listed_by_name_all_the_same() {
    let client = client(|_, _| {
        let running = YarnApplicationStateProto::Running;
        let names = ["mine", "yours", "mine", "mine"];
        let reports = names.iter().zip(1..);
        FakeReply::message(&GetApplicationsResponseProto {
            applications: reports.map(|(name, n)| report(n, name, running)).collect(),
        })
    });
    let filter = ApplicationFilter {
        name: Some("mine".into()),
        limit: Some(2),
        ..ApplicationFilter::default()
    };
    let listed = client.applications(&filter, soon()).await.expect("a list");
    let ids: Vec<_> = listed.into_iter().map(|report| report.id).collect();
    assert_eq!(ids, [id(1), id(3)]);
}

#[tokio::test]
async fn without_a_state_nodes_in_every_state_are_asked_for() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let client = client(move |_, body| {
        let request = GetClusterNodesRequestProto::decode(body).expect("a request");
        log.lock().unwrap().push(request.node_states.len());
        FakeReply::message(&GetClusterNodesResponseProto::default())
    });
    client.nodes(&[], soon()).await.expect("nodes");
    let lost = client.nodes(&[NodeState::Lost], soon()).await;
    lost.expect("nodes");
    assert_eq!(*asked.lock().unwrap(), [NodeState::ALL.len(), 1]);
}

#[tokio::test(start_paused = true)]
async fn an_application_is_asked_to_end_until_it_has_or_the_deadline_passes() {
    let mut calls = 0;
    let obedient = client(move |_, _| {
        calls += 1;
        FakeReply::message(&KillApplicationResponseProto { is_kill_completed: Some(calls == 3) })
    });
    assert_eq!(obedient.kill_and_wait(id(1), "enough", soon()).await, Ok(true));
    let stubborn = client(|_, _| FakeReply::message(&KillApplicationResponseProto::default()));
    let deadline = soon();
    assert_eq!(stubborn.kill_and_wait(id(1), "enough", deadline).await, Ok(false));
    assert!(Instant::now() <= deadline);
}

#[tokio::test(start_paused = true)]
async fn an_application_that_was_forgotten_is_submitted_again() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = calls.clone();
    let client = client(move |method, _| {
        let mut calls = log.lock().unwrap();
        calls.push(method.to_owned());
        let state = match (method, calls.len()) {
            ("submitApplication", _) => {
                return FakeReply::message(&SubmitApplicationResponseProto::default());
            }
            (_, 2) => {
                let words = "Application with id 'application_1_0007' doesn't exist in RM.";
                return FakeReply::Exception("ApplicationNotFoundException", words.into());
            }
            (_, 4) => YarnApplicationStateProto::Submitted,
            _ => YarnApplicationStateProto::Accepted,
        };
        FakeReply::message(&GetApplicationReportResponseProto {
            application_report: Some(report(7, "again", state)),
        })
    });
    let submission = Submission::new(id(7), "again");
    let seen = client.submit_and_wait(&submission, soon()).await;
    assert_eq!(seen.expect("a report").state, ApplicationState::Accepted);
    let (submit, ask) = ("submitApplication", "getApplicationReport");
    assert_eq!(*calls.lock().unwrap(), [submit, ask, submit, ask, ask]);
}

#[tokio::test]
async fn an_answer_without_what_was_asked_for_is_the_servers_fault() {
    let client = client(|_, _| FakeReply::message(&GetApplicationReportResponseProto::default()));
    let missing = client.application(id(1), soon()).await;
    assert!(matches!(missing, Err(RpcError::Protocol { .. })), "{missing:?}");
}
