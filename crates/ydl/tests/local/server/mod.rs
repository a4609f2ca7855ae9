//! HTTP server and client on real sockets, with misbehaving peers.

mod ambiguous;
mod harness;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use hyper::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use ydl_net::client::{CallError, Client, ClientLimits, Payload};
use ydl_net::secret::{Scope, Secret};
use ydl_net::server::{Limits, listen};
use ydl_net::tls::Identity;

use harness::{
    LONG, SHORT, client_hello, get, limits, run, short_limits, start_server, start_server_at,
    start_server_without_key,
};

#[test]
fn a_connection_is_reused_after_a_response() {
    run(async {
        let server = start_server(limits()).await;
        let client = server.client();
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
        let port = get(&client, "/port").await.unwrap();
        let body = Payload::Raw(vec![1; 64 << 10].into());
        let response = client.call(Method::PUT, "/length", body, LONG).await.unwrap();
        assert_eq!(response.json::<usize>().unwrap(), 64 << 10);
        assert_eq!(response.header("content-type"), Some("application/json"));
        let big = client.call(Method::GET, "/big", Payload::Nothing, LONG).await.unwrap();
        assert_eq!(big.body, vec![7; 1 << 20]);
        assert_eq!(get(&client, "/port").await.unwrap(), port, "the connection was not reused");
    });
}

#[test]
fn a_wrong_certificate_is_rejected_before_a_request_is_sent() {
    run(async {
        let server = start_server(limits()).await;
        let token = server.secret.token(&Scope::Client).unwrap();
        let other = Identity::generate().unwrap().pin();
        let client = Client::new(server.address.to_string(), other, &token).unwrap();
        let error = get(&client, "/who").await.unwrap_err();
        assert_eq!(error, CallError::WrongCertificate { address: server.address.to_string() });
        // A server with the pinned certificate but without its key is rejected, too.
        let copied = CertificateDer::from_pem_slice(server.identity.certificate_pem().as_bytes());
        let impostor = start_server_without_key(copied.unwrap()).await;
        let client = Client::new(impostor.to_string(), server.identity.pin(), &token).unwrap();
        let error = get(&client, "/who").await.unwrap_err();
        assert_eq!(error, CallError::WrongCertificate { address: impostor.to_string() });
        assert_eq!(get(&server.client(), "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn unauthenticated_requests_are_rejected_before_the_body_is_read() {
    run(async {
        let server = start_server(limits()).await;
        let mut stream = server.raw().await;
        let head = "PUT /length HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"HTTP/1.1 401");

        let token = Secret::random().unwrap().token(&Scope::Client).unwrap();
        let client =
            Client::new(server.address.to_string(), server.identity.pin(), &token).unwrap();
        let error = get(&client, "/who").await.unwrap_err();
        let CallError::Refused { status: 401, error, hint } = error else { panic!("{error}") };
        assert_eq!(error, "the token is not one of this job");
        assert_eq!(hint.as_deref(), Some("ask again"));
    });
}

#[test]
fn a_valid_client_is_served_while_others_misbehave() {
    run(async {
        let server = start_server(short_limits()).await;
        let client = server.client();
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");

        let mut bad: Vec<BadConnection> = Vec::new();
        for start in 0..8_u8 {
            // Bytes that are not TLS, different each time.
            let noise: Vec<u8> = (0..2000_u32).map(|n| ((n * 31) >> start) as u8 ^ start).collect();
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let _ = stream.write_all(&noise).await;
            bad.push(Box::new(stream));
            // An incomplete handshake, and a connection without any byte.
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(&client_hello()[..40 + usize::from(start) * 8]).await.unwrap();
            bad.push(Box::new(stream));
            bad.push(Box::new(TcpStream::connect(server.address).await.unwrap()));
        }
        let put = format!("PUT /length HTTP/1.1\r\n{}content-length: ", server.bearer());
        for text in [
            String::new(),
            "GET /who HTTP/1.1\r\nhost: x\r\nslow: ".to_owned(),
            format!("{put}1000\r\n\r\nnot all of it"),
            format!("{put}4294967296\r\n\r\n"),
            format!("{put}99999999999999999999\r\n\r\n"),
            format!("GET /who HTTP/1.1\r\nhuge: {}\r\n\r\n", "x".repeat(20 << 10)),
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20 << 10)),
            "\0\u{1}\u{2}\r\n\r\n".to_owned(),
            "GET http://[ HTTP/9.9\r\n\r\n".to_owned(),
        ] {
            let mut stream = server.raw().await;
            let _ = stream.write_all(text.as_bytes()).await;
            bad.push(Box::new(stream));
        }
        // A slow client that sends its header byte by byte (slowloris).
        let mut slow_client = server.raw().await;
        let slow_client = tokio::spawn(async move {
            slow_client.write_all(b"GET /who HTTP/1.1\r\n").await.unwrap();
            while slow_client.write_all(b"x").await.is_ok() && slow_client.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });

        // The valid client is served until the last bad connection is closed.
        let mut dropping = tokio::spawn(async move {
            for peer in bad {
                wait_until_closed(peer).await;
            }
            slow_client.await.unwrap();
        });
        let mut rounds = 0;
        loop {
            assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
            assert_eq!(get(&server.client(), "/who").await.unwrap(), "agent.c1");
            rounds += 1;
            tokio::select! {
                dropped = &mut dropping => break dropped.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        assert!(rounds > 1);
    });
}

/// Connection that misbehaved and waits to be closed.
type BadConnection = Box<dyn AsyncRead + Unpin + Send>;

/// Waits until the server has closed the connection.
async fn wait_until_closed(mut peer: BadConnection) {
    let mut sink = Vec::new();
    let _ = peer.read_to_end(&mut sink).await;
}

#[test]
fn an_oversized_body_is_rejected_with_a_message() {
    run(async {
        let server = start_server(limits()).await;
        let client = server.client();
        for length in [(64 << 10) + 1, 200 << 10] {
            let body = Payload::Raw(vec![1; length].into());
            let error = client.call(Method::PUT, "/length", body, LONG).await.unwrap_err();
            let CallError::Refused { status, error, .. } = error else { panic!("{error}") };
            assert_eq!((status, &*error), (413, "the request's body is longer than 65536 bytes"));
        }
        // An oversized body is rejected by its length, before it is read.
        let mut stream = server.raw().await;
        let length = "content-length: 4294967296\r\n\r\n";
        let head = format!("PUT /length HTTP/1.1\r\n{}{length}", server.bearer());
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"HTTP/1.1 413");
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async {
        let server = start_server(limits()).await;
        let mut stream = server.raw().await;
        let bearer = server.bearer();
        let text = format!(
            "\r\nHEAD /who HTTP/1.1\r\n{bearer}\r\n\
             PUT /length HTTP/1.1\r\n{bearer}content-length: 5\r\n\r\nhello\r\n\
             GET /none HTTP/1.1\r\n{bearer}\r\n\
             PUT /length HTTP/1.1\r\n{bearer}content-length: 3\r\nexpect: 100-continue\r\n\
             connection: close\r\n\r\nbye"
        );
        // The requests arrive in pieces.
        for piece in text.as_bytes().chunks(37) {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
        }
        let mut output = String::new();
        stream.read_to_string(&mut output).await.unwrap();
        let output: Vec<_> =
            output.split("\r\n").filter(|line| !line.starts_with("content-type")).collect();
        let expected = [
            "HTTP/1.1 200 OK",
            "ydl-version: 1",
            "content-length: 6",
            "",
            "HTTP/1.1 200 OK",
            "ydl-version: 1",
            "content-length: 1",
            "",
            "5HTTP/1.1 404 Not Found",
            "ydl-version: 1",
            "content-length: 33",
            "",
            "{\"error\":\"there is no such path\"}HTTP/1.1 100 Continue",
            "",
            "HTTP/1.1 200 OK",
            "ydl-version: 1",
            "content-length: 1",
            "connection: close",
            "",
            "3",
        ];
        assert_eq!(output, expected);
    });
}

#[test]
fn a_client_that_sends_its_whole_body_reads_the_rejection() {
    run(async {
        let server = start_server(limits()).await;
        for bearer in [String::new(), server.bearer()] {
            let mut stream = server.raw().await;
            let length = 200 << 10;
            let head = format!("PUT /length HTTP/1.1\r\n{bearer}content-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![1; length]).await.unwrap();
            stream.flush().await.unwrap();
            let mut reply = [0; 12];
            stream.read_exact(&mut reply).await.unwrap();
            let status = if bearer.is_empty() { "401" } else { "413" };
            assert_eq!(reply, format!("HTTP/1.1 {status}").as_bytes());
        }
    });
}

#[test]
fn bodies_wait_for_buffer_space_which_is_released_after_a_timeout() {
    run(async {
        let server = start_server(Limits {
            body: SHORT,
            reply: SHORT,
            bodies_bytes_max: 64 << 10,
            ..limits()
        })
        .await;
        let mut first = server.raw().await;
        let length = "content-length: 65536\r\nexpect: 100-continue\r\n\r\n";
        let head = format!("PUT /length HTTP/1.1\r\n{}{length}", server.bearer());
        first.write_all(head.as_bytes()).await.unwrap();
        // After `100 Continue` the buffer space is reserved but not used.
        first.read_exact(&mut [0; 25]).await.unwrap();
        let client = server.client();
        let body = Payload::Raw(vec![1; 1000].into());
        let mut response = client.call(Method::PUT, "/length", body.clone(), LONG).await;
        while response.is_err() {
            // It timed out while it waited for space; the other request times out soon, too.
            response = client.call(Method::PUT, "/length", body.clone(), LONG).await;
        }
        wait_until_closed(Box::new(first)).await;
    });
}

#[test]
fn dropping_a_long_poll_ends_it_on_the_server() {
    run(async {
        let mut server = start_server(limits()).await;
        let client = server.client();
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
        let mut poll = Box::pin(client.call(Method::GET, "/poll", Payload::Nothing, LONG));
        let started = tokio::select! {
            _ = &mut poll => panic!("the poll ended early"),
            started = server.polls.recv() => started,
        };
        assert_eq!(started, Some("poll started"));
        // Another call neither waits for the poll nor ends it.
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
        assert!(server.polls.try_recv().is_err());
        drop(poll);
        assert_eq!(server.polls.recv().await, Some("poll ended"));
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn timeouts_and_unreachable_servers_are_different_errors() {
    run(async {
        let mut server = start_server(limits()).await;
        let client = server.client();
        // A connection exists, so only the response can time out.
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
        let timed_out =
            client.call(Method::GET, "/poll", Payload::Nothing, SHORT).await.unwrap_err();
        assert_eq!(timed_out, CallError::Timeout { address: server.address.to_string() });
        assert_eq!(server.polls.recv().await, Some("poll started"));
        assert_eq!(server.polls.recv().await, Some("poll ended"));

        server.serving.abort();
        let _ = (&mut server.serving).await;
        let unreachable =
            client.call(Method::POST, "/who", Payload::Nothing, LONG).await.unwrap_err();
        assert!(matches!(unreachable, CallError::Unreachable { .. }), "{unreachable}");

        // A server that accepts and never responds is reported as unreachable after the timeout.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let token = server.secret.token(&Scope::Client).unwrap();
        let client = Client::new(address.clone(), server.identity.pin(), &token).unwrap();
        let timed_out_connect =
            client.call(Method::GET, "/who", Payload::Nothing, SHORT).await.unwrap_err();
        let why = "connect timed out".to_owned();
        assert_eq!(timed_out_connect, CallError::Unreachable { address, why });
    });
}

/// Listens at the address of a closed listener. A child that another test has just forked holds a copy of that listener
/// until it executes its program.
async fn listen_again(address: SocketAddr) -> TcpListener {
    let listener = async {
        loop {
            match listen(address) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    sleep(Duration::from_millis(10)).await
                }
                listener => return listener.unwrap(),
            }
        }
    };
    timeout(LONG, listener).await.expect("a free port")
}

#[test]
fn a_client_reconnects_to_a_restarted_server() {
    run(async {
        let first = start_server(limits()).await;
        let client = first.client();
        assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
        first.serving.abort();
        let _ = first.serving.await;
        let listener = listen_again(first.address).await;
        let secret = Secret::from_hex(&first.secret.to_hex()).unwrap();
        let _restarted = start_server_at(listener, limits(), first.identity, secret);
        // A POST is never sent twice, so this also shows that the dead connection was noticed.
        let response = client.call(Method::POST, "/who", Payload::Nothing, LONG).await.unwrap();
        assert_eq!(response.body, "agent.c1");
    });
}

#[test]
fn a_stopped_server_finishes_pending_responses() {
    run(async {
        let mut server = start_server(limits()).await;
        let client = server.client();
        let poll = client.call(Method::GET, "/poll", Payload::Nothing, LONG);
        let stop = async {
            assert_eq!(server.polls.recv().await, Some("poll started"));
            server.stop.take().unwrap().send(()).unwrap();
            // The listener is closed first, so from here on the server is draining.
            while TcpStream::connect(server.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
            server.release.notify_one();
            (&mut server.serving).await.unwrap();
        };
        let (response, ()) = tokio::join!(poll, stop);
        assert_eq!(response.unwrap().status, 204);
    });
}

#[test]
fn connections_beyond_the_limit_are_closed_until_others_end() {
    run(async {
        let server = start_server(Limits { connections_max: 3, ..limits() }).await;
        let clients = [server.client(), server.client(), server.client()];
        for client in &clients {
            assert_eq!(get(client, "/who").await.unwrap(), "agent.c1");
        }
        let one_more = server.client();
        let error = get(&one_more, "/who").await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
        drop(clients);
        while get(&one_more, "/who").await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn unauthenticated_connections_displace_only_each_other() {
    run(async {
        let server = start_server(Limits { unauthenticated_max: 3, ..limits() }).await;
        let first = server.client();
        let port = get(&first, "/port").await.unwrap();
        let mut connections = VecDeque::new();
        for _ in 0..20 {
            connections.push_back(server.raw().await);
            if connections.len() > 3 {
                let oldest = connections.pop_front().expect("four connections");
                wait_until_closed(Box::new(oldest)).await;
            }
        }
        // Authenticated connections stay open, and new ones are accepted.
        assert_eq!(get(&first, "/port").await.unwrap(), port);
        assert_eq!(get(&server.client(), "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn an_idle_connection_is_closed_and_replaced() {
    run(async {
        let server = start_server(Limits { idle: SHORT, ..limits() }).await;
        let client = server.client();
        let port = get(&client, "/port").await.unwrap();
        let mut raw = server.raw().await;
        let text = format!("GET /who HTTP/1.1\r\n{}\r\n", server.bearer());
        raw.write_all(text.as_bytes()).await.unwrap();
        // When this connection is closed, the older one of the client is closed, too.
        wait_until_closed(Box::new(raw)).await;
        let response = client.call(Method::POST, "/port", Payload::Nothing, LONG).await.unwrap();
        assert_ne!(response.body, port);
    });
}

#[test]
fn an_unread_response_closes_only_its_connection() {
    run(async {
        let server = start_server(Limits { reply: SHORT, ..limits() }).await;
        let mut raw = server.raw().await;
        let text = format!("GET /big HTTP/1.1\r\n{}\r\n", server.bearer());
        // About 40 MiB of responses, more than socket buffers hold.
        for _ in 0..40 {
            raw.write_all(text.as_bytes()).await.unwrap();
        }
        raw.flush().await.unwrap();
        let client = server.client();
        // Nothing is read, so only a socket error shows that the connection was closed.
        while raw.write_all(b"x").await.is_ok() && raw.flush().await.is_ok() {
            assert_eq!(get(&client, "/who").await.unwrap(), "agent.c1");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn oversized_and_malformed_responses_are_protocol_errors() {
    run(async {
        let server = start_server(limits()).await;
        let small = ClientLimits { body_bytes_max: 1000, ..ClientLimits::default() };
        let error = get(&server.client_with(small), "/big").await.unwrap_err();
        let what = "the response: longer than 1000 bytes".to_owned();
        assert_eq!(error, CallError::Protocol { what });
        let error = get(&server.client(), "no path").await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { .. }), "{error}");

        // A server that has the right key and does not use HTTP.
        let (address, responder) =
            respond_once(&server.identity, "SMTP 250 pleased to meet you\r\n\r\n".to_owned());
        let token = server.secret.token(&Scope::Client).unwrap();
        let client = Client::new(address, server.identity.pin(), &token).unwrap();
        let error = get(&client, "/who").await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { .. }), "{error}");
        responder.join().unwrap();
    });
}

#[test]
fn a_response_of_another_protocol_version_or_of_none_is_an_error() {
    run(async {
        let server = start_server(limits()).await;
        let token = server.secret.token(&Scope::Client).unwrap();
        let cases = [
            ("ydl-version: 2\r\n", "it uses protocol version 2, this `ydl` uses version 1"),
            ("", "it has no protocol version, this `ydl` uses version 1"),
        ];
        for (header, why) in cases {
            for status in ["200 OK", "404 Not Found"] {
                let text = format!("HTTP/1.1 {status}\r\n{header}content-length: 2\r\n\r\n{{}}");
                let (address, responder) = respond_once(&server.identity, text);
                let client = Client::new(address.clone(), server.identity.pin(), &token).unwrap();
                let error = get(&client, "/who").await.unwrap_err();
                assert_eq!(error, CallError::Version { address, why: why.to_owned() });
                responder.join().unwrap();
            }
            let text = format!(
                "HTTP/1.1 101 Switching Protocols\r\n{header}connection: upgrade\r\n\
                 upgrade: ydl\r\n\r\n"
            );
            let (address, responder) = respond_once(&server.identity, text);
            let client = Client::new(address, server.identity.pin(), &token).unwrap();
            let error = client.join("/join", LONG).await.unwrap_err();
            assert!(matches!(error, CallError::Version { .. }), "{error}");
            responder.join().unwrap();
        }
    });
}

/// A server with the right key that sends these bytes in response to one request.
fn respond_once(identity: &Identity, text: String) -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = identity.server().unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut connection = rustls::ServerConnection::new(config).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.flush();
    });
    (address, server)
}
