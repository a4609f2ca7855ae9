//! Streams pass piece by piece, and their ends are true ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::harness::*;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use ydl_gateway::{Service, Timeouts};

/// Server whose response bodies the test sends. Each sender closes when its response is cancelled.
async fn streaming() -> (Server, mpsc::Receiver<FrameSender>) {
    let (senders, receiver) = mpsc::channel(100);
    let server = Server::start(move |_| {
        let senders = senders.clone();
        async move {
            let (sender, body) = channel_body();
            senders.send(sender).await.unwrap();
            Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
        }
    })
    .await;
    (server, receiver)
}

fn event(text: &'static str) -> Result<Frame<Bytes>, AnyError> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

async fn next_data(body: &mut hyper::body::Incoming) -> Option<Bytes> {
    body.frame().await?.ok()?.into_data().ok()
}

#[tokio::test]
async fn events_pass_at_once() {
    let (server, mut senders) = streaming().await;
    let gateway = Running::before(&server).await;
    let mut client = Client1::connect(gateway.address).await;
    let mut body = client.send(get("/")).await.unwrap().into_body();
    let sender = senders.recv().await.unwrap();
    // The second event is sent only after the first one has arrived.
    for text in ["data: 1\n\n", "data: 2\n\n"] {
        sender.send(event(text)).await.unwrap();
        assert_eq!(next_data(&mut body).await.unwrap(), text);
    }
    assert_eq!(gateway.gateway.load(), (1, 0));
    drop(sender);
    assert!(body.frame().await.is_none());
    until("the request has ended", || gateway.gateway.load() == (0, 0)).await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let (server, mut senders) = streaming().await;
    let gateway = Running::before(&server).await;
    // Within the response, over both versions.
    let mut client = Client1::connect(gateway.address).await;
    let response = client.send(get("/")).await.unwrap();
    let sender = senders.recv().await.unwrap();
    drop((response, client));
    sender.closed().await;
    let mut client = client2(gateway.address).await;
    let request = Request::get("http://a/").body(empty()).unwrap();
    let response = client.send_request(request).await.unwrap();
    let sender = senders.recv().await.unwrap();
    drop(response);
    sender.closed().await;
    until("the requests have ended", || gateway.gateway.load() == (0, 0)).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_response_cancels_its_request() {
    let running = Arc::new(AtomicUsize::new(0));
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let counter = running.clone();
    let server = Server::start(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let guard = Guard(counter.clone());
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Response::new(empty())
        }
    })
    .await;
    let gateway = Running::before(&server).await;
    let mut client = Client1::connect(gateway.address).await;
    let sending = tokio::spawn(async move { client.send(get("/")).await.map(drop) });
    until("the request is at the replica", || running.load(Ordering::SeqCst) == 1).await;
    sending.abort();
    until("the replica saw the end", || running.load(Ordering::SeqCst) == 0).await;
    until("it is recorded", || gateway.codes() == [(499, 1)].into()).await;
}

#[tokio::test]
async fn a_broken_response_never_ends_cleanly() {
    let (server, mut senders) = streaming().await;
    let gateway = Running::before(&server).await;
    let mut one = Client1::connect(gateway.address).await;
    let mut two = client2(gateway.address).await;
    let mut first = one.send(get("/")).await.unwrap().into_body();
    let request = Request::get("http://a/").body(empty()).unwrap();
    let mut second = two.send_request(request).await.unwrap().into_body();
    for body in [&mut first, &mut second] {
        let sender = senders.recv().await.unwrap();
        sender.send(event("begin")).await.unwrap();
        assert_eq!(next_data(body).await.unwrap(), "begin");
        sender.send(Err("broken".into())).await.unwrap();
        body.frame().await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn silent_streams_are_ended_and_leave_the_replica() {
    let (server, mut senders) = streaming().await;
    let defaults = Service::default();
    let timeouts = Timeouts { idle: Duration::from_millis(100), ..defaults.timeouts };
    let service = Service { timeouts, ..defaults };
    let gateway = Running::start(service, vec![replica("a", server.address)]).await;
    let mut client = Client1::connect(gateway.address).await;
    let mut body = client.send(get("/")).await.unwrap().into_body();
    let sender = senders.recv().await.unwrap();
    body.frame().await.unwrap().unwrap_err();
    sender.closed().await;
    until("the request has ended", || gateway.gateway.load() == (0, 0)).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_frees_the_replica() {
    // Without a length, so that only a reset of the stream tells that the response is incomplete.
    let server = Server::start(|_| async {
        let (sender, body) = channel_body();
        let piece = || Ok(hyper::body::Frame::data(vec![0; 1 << 20].into()));
        tokio::spawn(async move { while sender.send(piece()).await.is_ok() {} });
        Response::new(body)
    })
    .await;
    let defaults = Service::default();
    let timeouts = Timeouts { idle: Duration::from_millis(200), ..defaults.timeouts };
    let service = Service { timeouts, ..defaults };
    let gateway = Running::start(service, vec![replica("a", server.address)]).await;
    let mut client = client2(gateway.address).await;
    let request = || Request::get("http://a/").body(empty()).unwrap();
    let response = client.send_request(request()).await.unwrap();
    until("the replica is free", || gateway.gateway.load() == (0, 0)).await;
    // Another one is given up later, and the first one stays so.
    let mut other = client2(gateway.address).await;
    let later = other.send_request(request()).await.unwrap();
    until("the replica is free again", || gateway.gateway.load() == (0, 0)).await;
    later.into_body().collect().await.unwrap_err();
    // Bytes that were sent before may still be read; then the stream is reset.
    response.into_body().collect().await.unwrap_err();
}

#[tokio::test]
async fn a_web_socket_passes_bytes_in_both_directions() {
    let server = Server::start(|mut request| async move {
        assert_eq!(request.headers()["upgrade"], "websocket");
        assert_eq!(request.headers()["connection"], "upgrade");
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 100];
            // Echo until the client closes its side.
            loop {
                let read = stream.read(&mut buffer).await.unwrap();
                if read == 0 {
                    break;
                }
                stream.write_all(&buffer[..read]).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = response.header("connection", "upgrade").header("upgrade", "websocket");
        response.header("sec-websocket-accept", "x").body(empty()).unwrap()
    })
    .await;
    let gateway = Running::before(&server).await;
    let mut client = Client1::connect(gateway.address).await;
    let request = Request::get("/chat")
        .header("host", "a")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(empty())
        .unwrap();
    let mut response = client.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["sec-websocket-accept"], "x");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let mut buffer = [0; 5];
    for text in ["hello", "\0\r\n\n\n"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(buffer, text.as_bytes());
    }
    assert_eq!(gateway.gateway.load(), (1, 0));
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
    until("the connection has ended", || gateway.gateway.load() == (0, 0)).await;
    until("it is recorded", || gateway.codes() == [(101, 1)].into()).await;
}

#[tokio::test]
async fn a_refused_upgrade_closes_the_connection() {
    let server = Server::saying("no").await;
    let gateway = Running::before(&server).await;
    let text = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let answer = raw(gateway.address, text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
}
