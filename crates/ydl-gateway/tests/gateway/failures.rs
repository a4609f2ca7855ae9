//! Replicas that fail: retries by class, ejection, hung replicas.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::harness::*;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use ydl_gateway::{RetryWhen, Service, Timeouts};

/// Executions of each request, by its number.
type Executions = Arc<Mutex<BTreeMap<String, u32>>>;

/// Server that notes each request, waits for a permit of `gate`, and answers.
async fn counting(executions: &Executions, gate: Arc<Semaphore>) -> Server {
    let executions = executions.clone();
    Server::start(move |request| {
        let number = request.uri().path().to_owned();
        *executions.lock().unwrap().entry(number).or_insert(0) += 1;
        let gate = gate.clone();
        async move {
            request.into_body().collect().await.unwrap();
            let _permit = gate.acquire().await.unwrap();
            Response::new(full("ok"))
        }
    })
    .await
}

const REQUESTS: usize = 300;

struct KillResult {
    statuses: BTreeMap<u16, usize>,
    executions: BTreeMap<u32, usize>,
    retries: u64,
}

/// Kills one of two replicas while it has requests in progress.
async fn kill_under_load(when: RetryWhen) -> KillResult {
    let executions = Executions::default();
    let gates = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let dying = counting(&executions, gates[0].clone()).await;
    let living = counting(&executions, gates[1].clone()).await;
    let replicas = vec![replica("dying", dying.address), replica("living", living.address)];
    let gateway = Running::start(retry(when), replicas).await;
    let address = gateway.address;
    let mut requests = tokio::task::JoinSet::new();
    let request =
        |number| async move { ask(address, post(&format!("/{number}"), full("body"))).await.0 };
    for number in 0..REQUESTS / 2 {
        requests.spawn(request(number));
    }
    until("the replicas have all requests", || executions.lock().unwrap().len() == REQUESTS / 2)
        .await;
    dying.kill();
    // Until then new connections may wait for a listener that is going away.
    until("its port is closed", || std::net::TcpStream::connect(dying.address).is_err()).await;
    gates[1].add_permits(Semaphore::MAX_PERMITS / 2);
    for number in REQUESTS / 2..REQUESTS {
        requests.spawn(request(number));
    }
    let mut statuses = BTreeMap::new();
    for status in requests.join_all().await {
        *statuses.entry(status.as_u16()).or_insert(0) += 1;
    }
    let mut by_count = BTreeMap::new();
    for count in executions.lock().unwrap().values() {
        *by_count.entry(*count).or_insert(0) += 1;
    }
    let text = gateway.gateway.metrics();
    let retries = text.lines().filter(|line| line.starts_with("ydl_retries_total{"));
    let retries =
        retries.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    KillResult { statuses, executions: by_count, retries }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_retries_never_execute_a_request_twice() {
    let result = kill_under_load(RetryWhen::Unsent).await;
    assert_eq!(result.executions.keys().collect::<Vec<_>>(), [&1], "{:?}", result.executions);
    // Requests that the dying replica had taken fail; all others succeed, also those that met the closed port.
    let failed = result.statuses.get(&502).copied().unwrap_or(0);
    assert!(failed >= 5, "{:?}", result.statuses);
    assert_eq!(result.statuses.get(&200).copied().unwrap_or(0) + failed, REQUESTS);
    assert_eq!(result.executions[&1], REQUESTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_retries_lose_no_request() {
    let result = kill_under_load(RetryWhen::Unanswered).await;
    assert_eq!(result.statuses, [(200, REQUESTS)].into());
    assert!(result.executions[&2] >= 5 && result.retries >= 5, "{:?}", result.executions);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retries_each_failure_reaches_the_client() {
    let result = kill_under_load(RetryWhen::Never).await;
    assert_eq!(result.retries, 0);
    assert!(!result.executions.contains_key(&2));
    assert!(result.statuses[&502] >= 5);
}

#[tokio::test]
async fn a_hung_replica_is_ejected() {
    // It accepts connections and never answers, as a stopped process does.
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = Server::saying("ok").await;
    let timeouts = Timeouts { head: Duration::from_millis(500), ..Service::default().timeouts };
    let service = Service { timeouts, ..retry(RetryWhen::Unanswered) };
    let replicas = vec![replica("hung", hung.local_addr().unwrap()), replica("good", good.address)];
    let gateway = Running::start(service, replicas).await;
    let mut sent = 0;
    while gateway.metric("ydl_ejections_total{role=\"server\"}") == 0 {
        assert_eq!(ask(gateway.address, get("/")).await, (StatusCode::OK, "ok".into()));
        sent += 1;
        assert!(sent < 1000, "never ejected");
    }
    let series = "ydl_replicas{role=\"server\",state=\"ejected\",revision=\"1\"}";
    assert_eq!(gateway.metric(series), 1);
    assert!(gateway.metric("ydl_retries_total{role=\"server\",why=\"timeout\"}") >= 5);
}

#[tokio::test]
async fn an_ejected_replica_returns_after_a_successful_probe() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let ill = is_ill.clone();
    let flapping = Server::start(move |_| {
        let status = if ill.load(Ordering::SeqCst) { 503 } else { 200 };
        async move { Response::builder().status(status).body(empty()).unwrap() }
    })
    .await;
    let good = Server::saying("ok").await;
    let replicas = vec![replica("flapping", flapping.address), replica("good", good.address)];
    let gateway = Running::start(Service::default(), replicas).await;
    let ejected = "ydl_replicas{role=\"server\",state=\"ejected\",revision=\"1\"}";
    while gateway.metric(ejected) == 0 {
        ask(gateway.address, get("/")).await;
    }
    is_ill.store(false, Ordering::SeqCst);
    while gateway.metric(ejected) == 1 {
        let (status, _) = ask(gateway.address, get("/")).await;
        assert_eq!(status, StatusCode::OK);
    }
}

/// Starts a server that reads the beginning of each request, sends `response`, and closes the connection. Returns its
/// address and its number of requests.
async fn server_that_breaks_off(response: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1000]).await;
            count.fetch_add(1, Ordering::SeqCst);
            stream.write_all(response).await.unwrap();
        }
    });
    (address, taken)
}

#[tokio::test]
async fn a_replica_that_dies_without_a_response_is_a_bad_gateway() {
    let (address, taken) = server_that_breaks_off(b"").await;
    let gateway = Running::start(retry(RetryWhen::Unsent), vec![replica("a", address)]).await;
    let (status, body) = ask(gateway.address, post("/", full("x"))).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["reason"], "broken");
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn no_request_is_repeated_after_a_byte_of_the_response() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal";
    let (address, taken) = server_that_breaks_off(head).await;
    let gateway = Running::start(retry(RetryWhen::Unanswered), vec![replica("a", address)]).await;
    let mut client = Client1::connect(gateway.address).await;
    let response = client.send(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.unwrap_err();
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_body_is_repeated_whole_unless_it_was_too_long_to_keep() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let breaking = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            // Takes some of the request, then breaks off.
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 2000]).await;
        }
    });
    let echo = Server::start(|request| async move {
        Response::new(request.into_body().map_err(Into::into).boxed())
    })
    .await;
    let mut service = retry(RetryWhen::Unanswered);
    service.buffer_bytes = 100_000;
    let replicas = vec![replica("breaking", breaking), replica("echo", echo.address)];
    let gateway = Running::start(service, replicas).await;
    let short: Vec<u8> = (0..90_000_u32).map(|number| number as u8).collect();
    let retries = "ydl_retries_total{role=\"server\",why=\"broken\"}";
    while gateway.metric(retries) < 3 {
        let (status, body) = ask(gateway.address, post("/", full(short.clone()))).await;
        assert_eq!((status, body == short), (StatusCode::OK, true));
    }
    let before = gateway.metric(retries);
    let mut statuses = BTreeMap::new();
    for _ in 0..8 {
        // hyper's client may see the end of the connection before the response.
        let mut client = Client1::connect(gateway.address).await;
        if let Ok(response) = client.send(post("/", full(vec![1; 4 << 20]))).await {
            *statuses.entry(response.status().as_u16()).or_insert(0) += 1;
        }
    }
    assert_eq!(gateway.metric(retries), before, "{statuses:?}");
}

/// Answers the first stream of each connection with a reset or a GOAWAY, and the others normally.
async fn refusing_http2(answer: Vec<u8>, refused: Arc<AtomicUsize>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (answer, refused) = (answer.clone(), refused.clone());
            tokio::spawn(async move {
                stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
                let mut read = Vec::new();
                // Until the HEADERS frame of stream 1 was read.
                while !read
                    .windows(5)
                    .any(|bytes| bytes == [5, 0, 0, 0, 1] || bytes == [4, 0, 0, 0, 1])
                {
                    if stream.read_buf(&mut read).await.unwrap() == 0 {
                        return;
                    }
                }
                refused.fetch_add(1, Ordering::SeqCst);
                stream.write_all(&answer).await.unwrap();
                // Stays open until the gateway closes it.
                while stream.read_buf(&mut read).await.unwrap_or(0) > 0 {}
            });
        }
    });
    address
}

#[tokio::test]
async fn streams_that_a_replica_refuses_are_unsent() {
    let reset = |reason: u8| vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, reason];
    let goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (answer, is_repeated) in [(reset(7), true), (goaway, true), (reset(2), false)] {
        let refused = Arc::new(AtomicUsize::new(0));
        let refusing = refusing_http2(answer.clone(), refused.clone()).await;
        let good = Server::saying("ok").await;
        let replicas = vec![replica("refusing", refusing), replica("good", good.address)];
        let gateway = Running::start(retry(RetryWhen::Unsent), replicas).await;
        let mut statuses = BTreeMap::new();
        while refused.load(Ordering::SeqCst) == 0 {
            let mut client = client2(gateway.address).await;
            let request = Request::post("http://a/").header("content-type", "application/grpc");
            let response = client.send_request(request.body(full("x")).unwrap()).await.unwrap();
            *statuses.entry(response.status().as_u16()).or_insert(0) += 1;
        }
        assert_eq!(statuses.contains_key(&502), !is_repeated, "{answer:?}: {statuses:?}");
    }
}
