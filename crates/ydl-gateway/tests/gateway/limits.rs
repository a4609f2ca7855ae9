//! Limits: queue, size, rate, tokens, connections, slow clients.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::harness::*;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use ydl_gateway::{
    AccessLog, Bearer, GatewayOptions, QueueLimits, RateLimit, Replica, ServerLimits, Service,
    Timeouts,
};

fn reason(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap();
    json["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_busy_replica_gets_no_more_than_its_limit_and_the_rest_waits_or_is_refused() {
    let gate = Arc::new(Semaphore::new(0));
    let gated = gate.clone();
    let server = Server::start(move |_| {
        let gate = gated.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Response::new(full("ok"))
        }
    })
    .await;
    let queue = QueueLimits { requests: 2, ..Service::default().queue };
    let service = Service { queue, ..Service::default() };
    let busy = Replica { concurrency: 1, ..replica("a", server.address) };
    let gateway = Running::start(service.clone(), vec![busy.clone()]).await;
    let mut asked = Vec::new();
    for load in [(1, 0), (1, 1), (1, 2)] {
        asked.push(tokio::spawn(ask(gateway.address, get("/"))));
        until("the request has its place", || gateway.gateway.load() == load).await;
    }
    let mut client = Client1::connect(gateway.address).await;
    let refused = client.send(get("/")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(reason(&refused.into_body().collect().await.unwrap().to_bytes()), "queue_full");
    // Requests that wait too long, and those that would keep too much memory.
    let wait = QueueLimits { wait: Duration::ZERO, requests: 10, ..queue };
    gateway.gateway.apply(table(2, Service { queue: wait, ..service.clone() }, vec![busy.clone()]));
    let (status, body) = client.ask(get("/")).await;
    assert_eq!((status.as_u16(), reason(&body).as_str()), (503, "queue_timeout"));
    let bytes = QueueLimits { bytes: 0, ..wait };
    gateway.gateway.apply(table(3, Service { queue: bytes, ..service }, vec![busy]));
    let (status, body) = client.ask(get("/")).await;
    assert_eq!((status.as_u16(), reason(&body).as_str()), (503, "queue_bytes"));
    gate.add_permits(3);
    for asked in asked {
        assert_eq!(asked.await.unwrap().0, StatusCode::OK);
    }
}

#[tokio::test]
async fn requests_above_the_size_limit_are_refused() {
    let server = Server::start(|request| async move {
        let length = request.into_body().collect().await.map(|body| body.to_bytes().len());
        Response::new(full(length.map_or("broken".into(), |length| length.to_string())))
    })
    .await;
    let service = Service { request_bytes: Some(1000), ..Service::default() };
    let gateway = Running::start(service, vec![replica("a", server.address)]).await;
    assert_eq!(ask(gateway.address, post("/", full(vec![0; 1000]))).await.1, "1000");
    let (status, body) = ask(gateway.address, post("/", full(vec![0; 1001]))).await;
    assert_eq!((status.as_u16(), reason(&body).as_str()), (413, "too_large"));
    // Without a length it is found on the way.
    let (sender, body) = channel_body();
    tokio::spawn(async move {
        for _ in 0..20 {
            let piece = hyper::body::Frame::data(vec![0; 100].into());
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    });
    let mut client = client2(gateway.address).await;
    let response =
        client.send_request(Request::post("http://a/").body(body).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_client_above_its_rate_is_refused() {
    let server = Server::saying("ok").await;
    let rate_limit = Some(RateLimit { per_second: 1, burst: 3 });
    let service = Service { rate_limit, ..Service::default() };
    let gateway = Running::start(service, vec![replica("a", server.address)]).await;
    let mut client = Client1::connect(gateway.address).await;
    let mut refused = None;
    for _ in 0..100 {
        let response = client.send(get("/")).await.unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(response);
            break;
        }
        response.into_body().collect().await.unwrap();
    }
    let refused = refused.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(reason(&refused.into_body().collect().await.unwrap().to_bytes()), "rate_limit");
}

#[tokio::test]
async fn only_clients_with_a_token_are_served_and_replicas_do_not_see_it() {
    let server = Server::start(|request| async move {
        Response::new(full(format!("{}", request.headers().contains_key("authorization"))))
    })
    .await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"0123456789abcdef\n").unwrap();
    let bearer = Some(Bearer::read(file.path()).unwrap());
    let options = GatewayOptions { bearer, ..GatewayOptions::default() };
    let replicas = vec![replica("a", server.address)];
    let gateway = Running::with(options, Service::default(), replicas).await;
    let mut client = Client1::connect(gateway.address).await;
    let refused = client.send(get("/")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    refused.into_body().collect().await.unwrap();
    let request = Request::get("/").header("host", "a");
    let request = request.header("authorization", "Bearer 0123456789abcdef");
    assert_eq!(client.ask(request.body(empty()).unwrap()).await.1, "false");
}

fn with_limits(limits: ServerLimits) -> GatewayOptions {
    GatewayOptions { limits, ..GatewayOptions::default() }
}

#[tokio::test]
async fn slow_heads_are_cut_off() {
    let server = Server::saying("ok").await;
    let limits = ServerLimits { head: Duration::from_secs(1), ..ServerLimits::default() };
    let replicas = vec![replica("a", server.address)];
    let gateway = Running::with(with_limits(limits), Service::default(), replicas).await;
    // Nothing at all; the beginning of a head; the beginning of HTTP/2; of a second request.
    for bytes in ["", "GET / HT", "PRI * HT"] {
        assert_eq!(raw(gateway.address, bytes.as_bytes()).await, "");
    }
    let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost";
    let answer = raw(gateway.address, text.as_bytes()).await;
    assert!(answer.ends_with("ok"), "{answer}");
    // A head that comes byte by byte.
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut sent = 0;
    while stream.write_all(b"G").await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "never cut off");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_body_that_stops_is_a_request_timeout() {
    let server = Server::start(|request| async move {
        let _ = request.into_body().collect().await;
        Response::new(empty())
    })
    .await;
    let timeouts = Timeouts { idle: Duration::from_millis(100), ..Service::default().timeouts };
    let service = Service { timeouts, ..Service::default() };
    let gateway = Running::start(service, vec![replica("a", server.address)]).await;
    let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf";
    let answer = raw(gateway.address, text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // That is no fault of the replica.
    assert_eq!(gateway.metric("ydl_ejections_total{role=\"server\"}"), 0);
}

#[tokio::test]
async fn a_new_connection_replaces_the_idle_one() {
    let server = Server::start(|request| async move {
        if request.uri().path() == "/busy" {
            std::future::pending::<()>().await;
        }
        Response::new(full("ok"))
    })
    .await;
    let limits = ServerLimits { connections_max: 2, ..ServerLimits::default() };
    let replicas = vec![replica("a", server.address)];
    let gateway = Running::with(with_limits(limits), Service::default(), replicas).await;
    let address = gateway.address;
    let busy = tokio::spawn(async move { ask(address, get("/busy")).await });
    until("the first connection is busy", || gateway.gateway.load() == (1, 0)).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut answer = [0; 10];
    idle.read_exact(&mut answer).await.unwrap();
    until("it is idle", || gateway.codes().get(&200) == Some(&1)).await;
    let mut third = Client1::connect(address).await;
    assert_eq!(third.ask(get("/")).await.0, StatusCode::OK);
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(!busy.is_finished());
    busy.abort();
}

#[tokio::test]
async fn each_request_has_a_line_in_the_access_log() {
    let server = Server::saying("ok").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = Arc::new(AccessLog::open(&path).unwrap());
    let options = GatewayOptions { access_log: Some(log.clone()), ..GatewayOptions::default() };
    let replicas = vec![replica("a", server.address)];
    let gateway = Running::with(options, Service::default(), replicas).await;
    let request = post("/predict?secret=1", full("body"));
    assert_eq!(ask(gateway.address, request).await.0, StatusCode::OK);
    let line = || std::fs::read_to_string(&path).unwrap();
    until("the line is written", || !line().is_empty()).await;
    let line: serde_json::Value = serde_json::from_str(&line()).unwrap();
    for (name, value) in [
        ("method", "POST".into()),
        ("path", "/predict".into()),
        ("protocol", "HTTP/1.1".into()),
        ("status", serde_json::json!(200)),
        ("end", "complete".into()),
        ("replica", "a".into()),
        ("client", "127.0.0.1".into()),
        ("bytes_in", serde_json::json!(4)),
        ("bytes_out", serde_json::json!(2)),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
}
