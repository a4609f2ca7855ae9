//! Tests of the NodeManager client against scripted nodes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use tokio::time::Instant;

use crate::node::{
    ContainerErrorKind, NmClient, NmClientOptions, NodeError, PerContainer, Start, StartOutcome,
};
use crate::proto::common::TokenProto;
use crate::proto::yarn::{
    ContainerExceptionMapProto, ContainerProto, GetContainerStatusesResponseProto,
    SerializedExceptionProto, StartContainersRequestProto, StartContainersResponseProto,
    StopContainersResponseProto,
};
use crate::scheduler::fake::{Fake, FakeReply, PASSWORD};
use crate::token::Token;
use crate::types::{Container, ContainerId, LaunchContext, NodeId, NodeToken, Resource};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn node(number: u16) -> NodeId {
    NodeId { host: "node".into(), port: number }
}

fn token(number: u16, key: u8) -> NodeToken {
    NodeToken {
        node: node(number),
        token: Token {
            identifier: vec![key; 3],
            password: PASSWORD.to_vec().into(),
            kind: "NMToken".into(),
            service: String::new(),
        },
    }
}

fn id(number: i64) -> ContainerId {
    let text = format!("container_1_0001_01_{number:06}");
    text.parse().expect("an id")
}

/// Returns a container with its number in its token.
fn container(number: u8) -> Container {
    Container::of(ContainerProto {
        id: Some(id(number.into()).proto()),
        node_id: Some(node(1).proto()),
        resource: Some(Resource::new(64, 1).proto()),
        container_token: Some(TokenProto {
            identifier: vec![number],
            password: Vec::new(),
            kind: String::new(),
            service: String::new(),
        }),
        ..ContainerProto::default()
    })
    .expect("a container")
}

fn failure(id: ContainerId, message: &str) -> ContainerExceptionMapProto {
    ContainerExceptionMapProto {
        container_id: Some(id.proto()),
        exception: Some(SerializedExceptionProto {
            message: Some(message.into()),
            class_name: Some("org.apache.hadoop.yarn.exceptions.YarnException".into()),
            ..SerializedExceptionProto::default()
        }),
    }
}

fn nodes(fake: &Fake, count: u16) -> NmClient {
    let options = NmClientOptions { rpc: Fake::options(), ..NmClientOptions::default() };
    let nodes = NmClient::with_dialer(Arc::new(fake.clone()), options);
    nodes.add_tokens((1..=count).map(|number| token(number, 1)));
    nodes
}

/// Starts the requested containers that are not running yet.
fn starting(body: &[u8], running: &mut Vec<u8>) -> StartContainersResponseProto {
    let request = StartContainersRequestProto::decode(body).expect("a request");
    let mut response = StartContainersResponseProto::default();
    for start in request.start_container_request {
        let number = start.container_token.expect("a token").identifier[0];
        let id = id(number.into());
        if running.contains(&number) {
            let words = "Attempt to relaunch the same container with id";
            response.failed_requests.push(failure(id, words));
        } else if number == 13 {
            let words = "This token is expired. current time is";
            response.failed_requests.push(failure(id, words));
        } else if number == 14 {
            // The response does not mention it.
        } else {
            running.push(number);
            response.succeeded_requests.push(id.proto());
        }
    }
    response
}

#[tokio::test]
async fn some_containers_of_a_start_call_can_be_rejected() {
    let fake = Fake::new(|_, body| FakeReply::message(&starting(body, &mut vec![9])));
    let containers = [1, 9, 13, 14].map(container);
    let launch = LaunchContext::command("true");
    let starts = containers.each_ref().map(|container| Start { container, launch: &launch });
    let outcome = nodes(&fake, 1).start(&node(1), &starts, soon()).await;
    let outcome = outcome.expect("an answer");
    assert_eq!(outcome.started, [id(1)]);
    let failed: Vec<_> = outcome.failed.iter().map(|(id, r)| (*id, r.kind)).collect();
    assert_eq!(
        failed,
        [
            (id(9), ContainerErrorKind::AlreadyStarted),
            (id(13), ContainerErrorKind::Expired),
            (id(14), ContainerErrorKind::Other),
        ]
    );
}

#[test]
fn unrequested_containers_in_a_response_are_ignored() {
    let outcome = StartContainersResponseProto {
        succeeded_requests: vec![id(1).proto(), id(1).proto(), id(98).proto()],
        failed_requests: vec![failure(id(2), "no"), failure(id(99), "no")],
        ..StartContainersResponseProto::default()
    };
    let outcome = StartOutcome::of(&outcome, &[id(1), id(2), id(3)], false).expect("an answer");
    assert_eq!(outcome.started, [id(1)]);
    let failed: Vec<_> = outcome.failed.iter().map(|(id, _)| *id).collect();
    assert_eq!(failed, [id(2), id(3)]);
}

#[tokio::test]
async fn a_start_with_a_lost_response_counts_as_started() {
    let running = Arc::new(Mutex::new(Vec::new()));
    let (script, calls) = (running.clone(), AtomicU32::new(0));
    let fake = Fake::new(move |_, body| {
        let response = starting(body, &mut script.lock().unwrap());
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => FakeReply::Disconnect,
            _ => FakeReply::message(&response),
        }
    });
    let containers = [1, 2].map(container);
    let launch = LaunchContext::command("true");
    let starts = containers.each_ref().map(|container| Start { container, launch: &launch });
    let outcome = nodes(&fake, 1).start(&node(1), &starts, soon()).await;
    assert_eq!(outcome.expect("an answer").started, [id(1), id(2)]);
    assert_eq!(*running.lock().unwrap(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_response_and_node_are_lost_is_reported_as_unanswered() {
    let options = NmClientOptions {
        rpc: crate::rpc::Options { retry_timeout: Duration::ZERO, ..Fake::options() },
        ..NmClientOptions::default()
    };
    let vanishing =
        VanishingNode { fake: Fake::new(|_, _| FakeReply::Disconnect), dialled: AtomicU32::new(0) };
    let nodes = NmClient::with_dialer(Arc::new(vanishing), options);
    nodes.add_tokens([token(1, 1)]);
    let (container, launch) = (container(1), LaunchContext::command("true"));
    let start = [Start { container: &container, launch: &launch }];
    let outcome = nodes.start(&node(1), &start, soon()).await;
    assert!(matches!(outcome, Err(NodeError::NoResponse { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_does_not_delay_other_nodes() {
    let fake = Fake::new(|method, _| match method {
        "startContainers" => FakeReply::Exception("NMNotYetReadyException", "no".into()),
        _ => FakeReply::message(&GetContainerStatusesResponseProto::default()),
    });
    let options =
        NmClientOptions { rpc: Fake::options(), calls_max: 1, ..NmClientOptions::default() };
    let nodes = NmClient::with_dialer(Arc::new(fake.clone()), options);
    nodes.add_tokens([token(1, 1), token(2, 1)]);
    let waiting = tokio::spawn({
        let nodes = nodes.clone();
        async move {
            let (container, launch) = (container(1), LaunchContext::command("true"));
            let start = [Start { container: &container, launch: &launch }];
            nodes.start(&node(1), &start, soon()).await
        }
    });
    while fake.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    // Shorter than the pause before a node is called again.
    let at_once = Instant::now() + Duration::from_millis(100);
    let status = nodes.status(&node(2), &[], at_once).await;
    status.expect("the call runs while the other one waits");
    let waited = waiting.await.expect("no panic");
    assert!(matches!(waited, Err(NodeError::Rejected { .. })), "{waited:?}");
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_called_again() {
    let mut calls = 0;
    let fake = Fake::new(move |_, body| {
        calls += 1;
        match calls {
            1 | 2 => FakeReply::Exception("NMNotYetReadyException", "not yet connected".into()),
            _ => FakeReply::message(&starting(body, &mut Vec::new())),
        }
    });
    let (container, launch) = (container(1), LaunchContext::command("true"));
    let start = [Start { container: &container, launch: &launch }];
    let outcome = nodes(&fake, 1).start(&node(1), &start, soon()).await;
    assert_eq!(outcome.expect("an answer").started, [id(1)]);
    let hasty = Instant::now() + Duration::from_millis(50);
    let fake = Fake::new(|_, _| FakeReply::Exception("NMNotYetReadyException", "no".into()));
    let outcome = nodes(&fake, 1).start(&node(1), &start, hasty).await;
    let Err(NodeError::Rejected { error, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.kind, ContainerErrorKind::NotReady);
}

#[tokio::test]
async fn every_requested_container_gets_a_result() {
    let fake = Fake::new(|method, _| match method {
        "stopContainers" => FakeReply::message(&StopContainersResponseProto {
            succeeded_requests: vec![id(1).proto(), id(99).proto()],
            failed_requests: vec![failure(id(2), "Container x is not handled by this NodeManager")],
        }),
        _ => FakeReply::message(&GetContainerStatusesResponseProto::default()),
    });
    let nodes = nodes(&fake, 1);
    let stopped = nodes.stop(&node(1), &[id(1), id(2), id(3)], soon()).await;
    let kinds = |each: PerContainer<()>| -> Vec<_> {
        each.into_iter().map(|(id, outcome)| (id, outcome.map_err(|error| error.kind))).collect()
    };
    assert_eq!(
        kinds(stopped.expect("an answer")),
        [
            (id(1), Ok(())),
            (id(2), Err(ContainerErrorKind::NotFound)),
            (id(3), Err(ContainerErrorKind::Other)),
        ]
    );
    let status = nodes.status(&node(1), &[id(1)], soon()).await;
    let status = status.expect("an answer");
    let result = status[0].1.as_ref().map_err(|error| error.to_string());
    assert_eq!(result, Err("the node's response does not mention the container".into()));
}

#[tokio::test]
async fn a_newer_token_is_used_from_the_next_call_of_its_node() {
    let fake = Fake::new(|_, _| FakeReply::message(&GetContainerStatusesResponseProto::default()));
    let nodes = nodes(&fake, 2);
    let ask = async |number| {
        let status = nodes.status(&node(number), &[], soon()).await;
        status.expect("an answer");
    };
    ask(1).await;
    ask(2).await;
    nodes.add_tokens([token(1, 1)]);
    ask(1).await;
    nodes.add_tokens([token(1, 2)]);
    ask(1).await;
    ask(2).await;
    let login = |node: &str, user: &str| (node.to_owned(), Some(user.to_owned()));
    assert_eq!(
        fake.seen(),
        [login("node:1", "AQEB"), login("node:2", "AQEB"), login("node:1", "AgIC")]
    );
    let unknown = nodes.status(&node(3), &[], soon()).await;
    assert_eq!(unknown, Err(NodeError::NoToken { node: node(3) }));
    assert!(nodes.has_token(&node(2)) && !nodes.has_token(&node(3)));
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_wait_until_their_deadline() {
    let options =
        NmClientOptions { rpc: Fake::options(), calls_max: 1, ..NmClientOptions::default() };
    // The first call never gets a response.
    let nodes = NmClient::with_dialer(Arc::new(SilentNetwork), options);
    nodes.add_tokens([token(1, 1), token(2, 1)]);
    let held = tokio::spawn({
        let nodes = nodes.clone();
        async move { nodes.status(&node(1), &[], soon()).await }
    });
    tokio::task::yield_now().await;
    let late = Instant::now() + Duration::from_secs(1);
    let rejected = nodes.status(&node(2), &[], late).await;
    let Err(NodeError::Unreachable { source, .. }) = rejected else {
        panic!("{rejected:?}");
    };
    assert!(source.to_string().contains("too many concurrent calls"), "{source}");
    let held = held.await.expect("no panic");
    assert!(matches!(held, Err(NodeError::Unreachable { .. })), "{held:?}");
}

/// Network without any responses.
#[derive(Debug)]
struct SilentNetwork;

impl crate::rpc::Dial for SilentNetwork {
    fn dial<'a>(
        &'a self,
        _: &'a crate::rpc::Address,
    ) -> std::pin::Pin<
        Box<dyn Future<Output = std::io::Result<crate::rpc::DialedStream>> + Send + 'a>,
    > {
        Box::pin(std::future::pending())
    }
}

/// Node that accepts one connection only.
#[derive(Debug)]
struct VanishingNode {
    fake: Fake,
    dialled: AtomicU32,
}

impl crate::rpc::Dial for VanishingNode {
    fn dial<'a>(
        &'a self,
        address: &'a crate::rpc::Address,
    ) -> std::pin::Pin<
        Box<dyn Future<Output = std::io::Result<crate::rpc::DialedStream>> + Send + 'a>,
    > {
        match self.dialled.fetch_add(1, Ordering::Relaxed) {
            0 => self.fake.dial(address),
            _ => Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) }),
        }
    }
}
