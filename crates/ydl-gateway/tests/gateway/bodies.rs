//! Bytes and fields arrive as with a direct connection.

use std::sync::{Arc, Mutex};

use super::harness::*;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use ydl_gateway::Service;

const LARGE: usize = 100 << 20;

/// Body of pseudorandom pieces of uneven lengths.
fn large_body() -> AnyBody {
    let (sender, body) = channel_body();
    tokio::spawn(async move {
        let (mut sent, mut number) = (0, 1_u64);
        while sent < LARGE {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = (number >> 33) as usize % 100_000 + 1;
            let length = length.min(LARGE - sent);
            let piece = Bytes::from(vec![(number >> 40) as u8; length]);
            if sender.send(Ok(hyper::body::Frame::data(piece))).await.is_err() {
                return;
            }
            sent += length;
        }
    });
    body
}

/// Returns length and checksum (FNV-1a on whole bytes).
async fn checksum<B: Body<Data = Bytes> + Unpin>(mut body: B) -> (usize, u64) {
    let (mut length, mut sum) = (0, 0xcbf2_9ce4_8422_2325_u64);
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            length += data.len();
            for byte in data {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    (length, sum)
}

async fn echo() -> Server {
    Server::start(|request| async move {
        Response::new(request.into_body().map_err(Into::into).boxed())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_pass_unchanged_in_both_directions() {
    let server = echo().await;
    let gateway = Running::before(&server).await;
    let expected = checksum(large_body()).await;
    assert_eq!(expected.0, LARGE);
    let mut client = Client1::connect(gateway.address).await;
    let response = client.send(post("/", large_body())).await.unwrap();
    assert_eq!(checksum(response.into_body()).await, expected);
    let mut client = client2(gateway.address).await;
    let request = Request::post("http://models.example/").body(large_body()).unwrap();
    let response = client.send_request(request).await.unwrap();
    assert_eq!(checksum(response.into_body()).await, expected);
    until("all requests have ended", || gateway.gateway.load() == (0, 0)).await;
    assert_eq!(gateway.codes(), [(200, 2)].into());
}

#[tokio::test]
async fn replicas_get_the_gateways_fields_and_no_connection_fields() {
    let seen = Arc::<Mutex<HeaderMap>>::default();
    let noted = seen.clone();
    let server = Server::start(move |request| {
        *noted.lock().unwrap() = request.headers().clone();
        async {
            let response =
                Response::builder().header("connection", "x-private").header("x-private", "1");
            response.header("keep-alive", "1").header("x-public", "2").body(full("ok")).unwrap()
        }
    })
    .await;
    let gateway = Running::before(&server).await;
    let mut client = Client1::connect(gateway.address).await;
    let request = Request::get("/a?b=c")
        .header("host", "models.example")
        .header("connection", "x-drop")
        .header("x-drop", "1")
        .header("x-request-id", "mine")
        .body(empty())
        .unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine");
    assert_eq!(response.headers()["x-public"], "2");
    assert!(!response.headers().contains_key("x-private"));
    assert!(!response.headers().contains_key("keep-alive"));
    let seen = seen.lock().unwrap();
    for (name, value) in [
        ("host", "models.example"),
        ("x-forwarded-host", "models.example"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-request-id", "mine"),
    ] {
        assert_eq!(seen[name], value);
    }
    assert_eq!(seen["traceparent"].len(), 55);
    assert!(!seen.contains_key("x-drop") && !seen.contains_key("connection"));
}

#[tokio::test]
async fn lengths_and_responses_without_bodies_are_kept() {
    let server = Server::start(|request| async move {
        let length = request.headers().get("content-length").cloned();
        let status = match request.uri().path() {
            "/none" => StatusCode::NO_CONTENT,
            _ => StatusCode::OK,
        };
        let mut response = Response::builder().status(status);
        if *request.method() == Method::HEAD {
            response = response.header("content-length", "42");
        }
        request.into_body().collect().await.unwrap();
        if let Some(length) = length {
            response = response.header("x-length", length);
        }
        response.body(empty()).unwrap()
    })
    .await;
    let gateway = Running::before(&server).await;
    let mut client = Client1::connect(gateway.address).await;
    let head = Request::head("/").header("host", "a").body(empty()).unwrap();
    let response = client.send(head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "42");
    let response = client.send(post("/", full("hello"))).await.unwrap();
    assert_eq!(response.headers()["x-length"], "5");
    assert_eq!(response.headers()["content-length"], "0");
    let (status, body) = client.ask(get("/none")).await;
    assert_eq!((status, body.len()), (StatusCode::NO_CONTENT, 0));
    // One connection to the replica carried all of them.
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_response_before_the_end_of_the_request_arrives() {
    let server =
        Server::start(|_| async { Response::builder().status(403).body(full("no")).unwrap() })
            .await;
    let gateway = Running::before(&server).await;
    let (body_end, body) = channel_body();
    let mut client = Client1::connect(gateway.address).await;
    let response = client.send(post("/", body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    drop(body_end);
}

#[tokio::test]
async fn an_older_table_is_ignored() {
    let (one, two) = (Server::saying("one").await, Server::saying("two").await);
    let gateway = Running::before(&one).await;
    let routes = |version, server: &Server| {
        table(version, Service::default(), vec![replica("b", server.address)])
    };
    assert!(gateway.gateway.apply(routes(2, &two)));
    assert!(!gateway.gateway.apply(routes(1, &one)));
    assert_eq!(ask(gateway.address, get("/")).await.1, "two");
    assert_eq!(gateway.metric("ydl_route_version{role=\"server\"}"), 2);
}
