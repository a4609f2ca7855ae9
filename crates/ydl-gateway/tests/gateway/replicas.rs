//! Changes of the route table, and the end of the gateway, lose no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::harness::*;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use ydl_gateway::{Replica, ReplicaState, RetryPolicy, RetryWhen, Service};

fn without_retries() -> Service {
    let retry = RetryPolicy { when: RetryWhen::Never, ..RetryPolicy::default() };
    Service { retry, slow_start: Duration::ZERO, ..Service::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_replicas_under_load_fails_no_request() {
    const ROUNDS: u64 = 10;
    let mut current = Server::saying("ok").await;
    // Without retries, so that nothing is repaired.
    let gateway = Running::start(without_retries(), vec![replica("0", current.address)]).await;
    let address = gateway.address;
    let is_over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (is_over, answered) = (is_over.clone(), answered.clone());
            tokio::spawn(async move {
                let mut client = Client1::connect(address).await;
                while !is_over.load(Ordering::SeqCst) {
                    let (status, _) = client.ask(post("/", full("body"))).await;
                    assert_eq!(status, StatusCode::OK);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for round in 1..=ROUNDS {
        let before = answered.load(Ordering::SeqCst);
        until("requests are answered", || answered.load(Ordering::SeqCst) > before + 100).await;
        let next = Server::saying("ok").await;
        let draining = Replica {
            state: ReplicaState::Draining,
            ..replica(&(round - 1).to_string(), current.address)
        };
        let fresh = replica(&round.to_string(), next.address);
        let routes = table(2 * round, without_retries(), vec![draining, fresh.clone()]);
        assert!(gateway.gateway.apply(routes));
        let routes = table(2 * round + 1, without_retries(), vec![fresh]);
        assert!(gateway.gateway.apply(routes));
        // The metrics name a removed replica until its last request has ended.
        let series = "ydl_replicas{role=\"server\",state=\"draining\",revision=\"1\"}";
        until("the old replica is free", || gateway.metric(series) == 0).await;
        current.kill();
        current = next;
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(gateway.codes(), [(200, answered.load(Ordering::SeqCst) as u64)].into());
}

#[tokio::test]
async fn requests_wait_for_the_first_replica() {
    let gateway = Running::start(Service::default(), vec![]).await;
    let asking = tokio::spawn(ask(gateway.address, get("/")));
    until("the request is held", || gateway.gateway.load() == (0, 1)).await;
    assert_eq!(gateway.metric("ydl_held{role=\"server\"}"), 1);
    let server = Server::saying("ok").await;
    let routes = table(2, Service::default(), vec![replica("a", server.address)]);
    gateway.gateway.apply(routes);
    assert_eq!(asking.await.unwrap(), (StatusCode::OK, "ok".into()));
}

#[tokio::test]
async fn a_gateway_that_ends_finishes_its_requests() {
    let gate = Arc::new(Semaphore::new(0));
    let gated = gate.clone();
    let server = Server::start(move |_| {
        let gate = gated.clone();
        async move {
            let _permit = gate.acquire().await.unwrap();
            Response::new(full("late"))
        }
    })
    .await;
    let mut gateway = Running::before(&server).await;
    let mut one = Client1::connect(gateway.address).await;
    let mut two = client2(gateway.address).await;
    let first = tokio::spawn(async move { one.ask(get("/")).await });
    let request = http::Request::get("http://a/").body(empty()).unwrap();
    let second = tokio::spawn(async move { two.send_request(request).await });
    // An idle connection does not delay the end.
    let _idle = TcpStream::connect(gateway.address).await.unwrap();
    until("both requests are at the replica", || gateway.gateway.load() == (2, 0)).await;
    drop(gateway.stop.take());
    while TcpStream::connect(gateway.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_finished() && !gateway.task.is_finished());
    gate.add_permits(2);
    assert_eq!(first.await.unwrap(), (StatusCode::OK, "late".into()));
    let second = second.await.unwrap().unwrap().into_body();
    assert_eq!(second.collect().await.unwrap().to_bytes(), "late");
    assert_eq!((&mut gateway.task).await.unwrap(), 0);
}

#[tokio::test]
async fn requests_beyond_the_drain_time_are_cut_off() {
    let server = Server::start(|_| std::future::pending()).await;
    let service = Service { drain: Duration::from_millis(50), ..Service::default() };
    let mut gateway = Running::start(service, vec![replica("a", server.address)]).await;
    let mut client = Client1::connect(gateway.address).await;
    let asking = tokio::spawn(async move { client.send(get("/")).await.map(drop) });
    until("the request is at the replica", || gateway.gateway.load() == (1, 0)).await;
    drop(gateway.stop.take());
    assert_eq!((&mut gateway.task).await.unwrap(), 1);
    asking.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_canary_gets_its_share() {
    let (old, new) = (Server::saying("old").await, Server::saying("new").await);
    let weighted = |id, server: &Server, revision, weight| Replica {
        revision,
        weight,
        ..replica(id, server.address)
    };
    let replicas = vec![weighted("old", &old, 1, 90), weighted("new", &new, 2, 10)];
    let gateway = Running::start(without_retries(), replicas).await;
    let mut client = Client1::connect(gateway.address).await;
    for _ in 0..1000 {
        client.ask(get("/")).await;
    }
    let requests = |revision| {
        gateway.metric(&format!(
            "ydl_requests_total{{role=\"server\",revision=\"{revision}\",code=\"200\"}}"
        ))
    };
    assert!((50..200).contains(&requests(2)), "{}", requests(2));
    until("all are recorded", || requests(1) + requests(2) == 1000).await;
}
