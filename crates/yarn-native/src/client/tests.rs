//! Client tests against a scripted ResourceManager.

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
async fn name_filter_is_applied_locally_for_old_servers() {
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
async fn empty_state_list_requests_nodes_in_every_state() {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let log = requested.clone();
    let client = client(move |_, body| {
        let request = GetClusterNodesRequestProto::decode(body).expect("a request");
        log.lock().unwrap().push(request.node_states.len());
        FakeReply::message(&GetClusterNodesResponseProto::default())
    });
    client.nodes(&[], soon()).await.expect("nodes");
    let lost = client.nodes(&[NodeState::Lost], soon()).await;
    lost.expect("nodes");
    assert_eq!(*requested.lock().unwrap(), [NodeState::ALL.len(), 1]);
}

#[tokio::test(start_paused = true)]
async fn kill_is_repeated_until_the_application_ends_or_the_deadline_passes() {
    let mut calls = 0;
    let killed = client(move |_, _| {
        calls += 1;
        FakeReply::message(&KillApplicationResponseProto { is_kill_completed: Some(calls == 3) })
    });
    assert_eq!(killed.kill_and_wait(id(1), "enough", soon()).await, Ok(true));
    let running = client(|_, _| FakeReply::message(&KillApplicationResponseProto::default()));
    let deadline = soon();
    assert_eq!(running.kill_and_wait(id(1), "enough", deadline).await, Ok(false));
    assert!(Instant::now() <= deadline);
}

#[tokio::test(start_paused = true)]
async fn lost_submission_is_resubmitted() {
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
                let message = "Application with id 'application_1_0007' doesn't exist in RM.";
                return FakeReply::Exception("ApplicationNotFoundException", message.into());
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
async fn response_without_report_is_a_protocol_error() {
    let client = client(|_, _| FakeReply::message(&GetApplicationReportResponseProto::default()));
    let missing = client.application(id(1), soon()).await;
    assert!(matches!(missing, Err(RpcError::Protocol { .. })), "{missing:?}");
}
