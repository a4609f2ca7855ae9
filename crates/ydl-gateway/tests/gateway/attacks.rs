//! Requests that try to hide others are refused, and nothing after them is executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::harness::*;
use http::Response;

#[tokio::test]
async fn ambiguous_requests_are_refused_and_close_the_connection() {
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = executed.clone();
    let server = Server::start(move |request| {
        if request.uri().path() == "/hidden" {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        async { Response::new(full("ok")) }
    })
    .await;
    let gateway = Running::before(&server).await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    for head in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\nY: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    ] {
        let answer = raw(gateway.address, [head, hidden].concat().as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4"),
            "{head:?}: {answer}"
        );
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{head:?}: {answer}");
    }
    assert_eq!(executed.load(Ordering::SeqCst), 0);
    // A malformed chunk cannot end a body.
    let chunk = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxGET /hidden";
    let answer = raw(gateway.address, [chunk, hidden].concat().as_bytes()).await;
    assert!(
        !answer.contains("HTTP/1.1 200 OK\r\n") || answer.matches("HTTP/1.").count() == 1,
        "{answer}"
    );
    assert_eq!(executed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server =
        Server::start(
            |request| async move { Response::new(full(request.uri().path().to_owned())) },
        )
        .await;
    let gateway = Running::before(&server).await;
    let requests = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = raw(gateway.address, requests.as_bytes()).await;
    let places = ["/1", "/2", "/3"].map(|path| answer.find(&format!("\r\n\r\n{path}")).unwrap());
    assert!(places.is_sorted(), "{answer}");
}
