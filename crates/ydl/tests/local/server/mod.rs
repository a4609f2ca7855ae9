//! The wire on real sockets: good peers are served whatever bad ones do.

mod harness;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::Duration;

use hyper::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use ydl_net::client::{CallError, Client, ClientLimits, Payload};
use ydl_net::secret::{Scope, Secret};
use ydl_net::server::{Limits, listen};
use ydl_net::tls::Identity;

use harness::{LONG, SHORT, ask, hello, impatient, limits, place, place_at, run, thief};

#[test]
fn a_call_is_answered_and_its_connection_used_again() {
    run(async {
        let place = place(limits()).await;
        let client = place.client();
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
        let port = ask(&client, "/port").await.unwrap();
        let body = Payload::Raw(vec![1; 64 << 10].into());
        let answer = client.call(Method::PUT, "/length", body, LONG).await.unwrap();
        assert_eq!(answer.json::<usize>().unwrap(), 64 << 10);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let big = client.call(Method::GET, "/big", Payload::Nothing, LONG).await.unwrap();
        assert_eq!(big.body, vec![7; 1 << 20]);
        assert_eq!(ask(&client, "/port").await.unwrap(), port, "one connection for all");
    });
}

#[test]
fn a_wrong_certificate_is_refused_before_anything_is_said() {
    run(async {
        let place = place(limits()).await;
        let token = place.secret.token(&Scope::Client).unwrap();
        let other = Identity::generate().unwrap().pin();
        let client = Client::new(place.address.to_string(), other, &token).unwrap();
        let error = ask(&client, "/who").await.unwrap_err();
        assert_eq!(error, CallError::WrongCertificate { address: place.address.to_string() });
        // A server with the pinned certificate but without its key is rejected, too.
        let shown = CertificateDer::from_pem_slice(place.identity.certificate_pem().as_bytes());
        let thief = thief(shown.unwrap()).await;
        let client = Client::new(thief.to_string(), place.identity.pin(), &token).unwrap();
        let error = ask(&client, "/who").await.unwrap_err();
        assert_eq!(error, CallError::WrongCertificate { address: thief.to_string() });
        assert_eq!(ask(&place.client(), "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn a_stranger_is_turned_away_before_the_body_is_read() {
    run(async {
        let place = place(limits()).await;
        let mut stream = place.raw().await;
        let head = "PUT /length HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"HTTP/1.1 401");

        let token = Secret::random().unwrap().token(&Scope::Client).unwrap();
        let client = Client::new(place.address.to_string(), place.identity.pin(), &token).unwrap();
        let error = ask(&client, "/who").await.unwrap_err();
        let CallError::Refused { status: 401, error, hint } = error else { panic!("{error}") };
        assert_eq!(error, "the token is not one of this job");
        assert_eq!(hint.as_deref(), Some("ask again"));
    });
}

#[test]
fn a_good_client_is_served_while_bad_ones_misbehave() {
    run(async {
        let place = place(impatient()).await;
        let client = place.client();
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");

        let mut bad: Vec<Bad> = Vec::new();
        for start in 0..8_u8 {
            // Bytes that are no TLS, in a different disorder each time.
            let noise: Vec<u8> = (0..2000_u32).map(|n| ((n * 31) >> start) as u8 ^ start).collect();
            let mut stream = TcpStream::connect(place.address).await.unwrap();
            let _ = stream.write_all(&noise).await;
            bad.push(Box::new(stream));
            // A handshake that begins well and falls silent, then nothing at all.
            let mut stream = TcpStream::connect(place.address).await.unwrap();
            stream.write_all(&hello()[..40 + usize::from(start) * 8]).await.unwrap();
            bad.push(Box::new(stream));
            bad.push(Box::new(TcpStream::connect(place.address).await.unwrap()));
        }
        let put = format!("PUT /length HTTP/1.1\r\n{}content-length: ", place.bearer());
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
            let mut stream = place.raw().await;
            let _ = stream.write_all(text.as_bytes()).await;
            bad.push(Box::new(stream));
        }
        // One that sends a header's letter now and then, and is never silent for long.
        let mut loris = place.raw().await;
        let loris = tokio::spawn(async move {
            loris.write_all(b"GET /who HTTP/1.1\r\n").await.unwrap();
            while loris.write_all(b"x").await.is_ok() && loris.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });

        // The good client is answered until the last bad connection has been dropped.
        let mut dropping = tokio::spawn(async move {
            for peer in bad {
                hung_up(peer).await;
            }
            loris.await.unwrap();
        });
        let mut answered = 0;
        loop {
            assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
            assert_eq!(ask(&place.client(), "/who").await.unwrap(), "agent.c1");
            answered += 1;
            tokio::select! {
                dropped = &mut dropping => break dropped.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        assert!(answered > 1);
    });
}

/// A peer that misbehaved, and now waits for the end.
type Bad = Box<dyn AsyncRead + Unpin + Send>;

/// Waits until the server has hung up, with or without a word.
async fn hung_up(mut peer: Bad) {
    let mut sink = Vec::new();
    let _ = peer.read_to_end(&mut sink).await;
}

#[test]
fn a_body_that_is_too_long_is_answered_with_a_sentence() {
    run(async {
        let place = place(limits()).await;
        let client = place.client();
        for length in [(64 << 10) + 1, 200 << 10] {
            let body = Payload::Raw(vec![1; length].into());
            let error = client.call(Method::PUT, "/length", body, LONG).await.unwrap_err();
            let CallError::Refused { status, error, .. } = error else { panic!("{error}") };
            assert_eq!((status, &*error), (413, "the request's body is longer than 65536 bytes"));
        }
        // An oversized body is rejected by its length, before it is read.
        let mut stream = place.raw().await;
        let length = "content-length: 4294967296\r\n\r\n";
        let head = format!("PUT /length HTTP/1.1\r\n{}{length}", place.bearer());
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"HTTP/1.1 413");
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn requests_sent_ahead_are_answered_in_their_order() {
    run(async {
        let place = place(limits()).await;
        let mut stream = place.raw().await;
        let bearer = place.bearer();
        let text = format!(
            "\r\nHEAD /who HTTP/1.1\r\n{bearer}\r\n\
             PUT /length HTTP/1.1\r\n{bearer}content-length: 5\r\n\r\nhello\r\n\
             GET /none HTTP/1.1\r\n{bearer}\r\n\
             PUT /length HTTP/1.1\r\n{bearer}content-length: 3\r\nexpect: 100-continue\r\n\
             connection: close\r\n\r\nbye"
        );
        // However the bytes are cut into pieces.
        for piece in text.as_bytes().chunks(37) {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
        }
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        let said: Vec<_> =
            said.split("\r\n").filter(|line| !line.starts_with("content-type")).collect();
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
        assert_eq!(said, expected);
    });
}

#[test]
fn a_peer_that_sends_everything_first_still_reads_why_it_was_refused() {
    run(async {
        let place = place(limits()).await;
        for bearer in [String::new(), place.bearer()] {
            let mut stream = place.raw().await;
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
fn bodies_wait_for_room_and_those_who_hold_it_have_a_deadline() {
    run(async {
        let place =
            place(Limits { body: SHORT, reply: SHORT, bodies_bytes_max: 64 << 10, ..limits() })
                .await;
        let mut holder = place.raw().await;
        let length = "content-length: 65536\r\nexpect: 100-continue\r\n\r\n";
        let head = format!("PUT /length HTTP/1.1\r\n{}{length}", place.bearer());
        holder.write_all(head.as_bytes()).await.unwrap();
        // With leave to send comes the room, which is not used.
        holder.read_exact(&mut [0; 25]).await.unwrap();
        let client = place.client();
        let body = Payload::Raw(vec![1; 1000].into());
        let mut answer = client.call(Method::PUT, "/length", body.clone(), LONG).await;
        while answer.is_err() {
            // Its own deadline ran out while it waited: the other one's has by now, or will soon.
            answer = client.call(Method::PUT, "/length", body.clone(), LONG).await;
        }
        hung_up(Box::new(holder)).await;
    });
}

#[test]
fn dropping_a_long_poll_ends_it_on_the_server() {
    run(async {
        let mut place = place(limits()).await;
        let client = place.client();
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
        let mut poll = Box::pin(client.call(Method::GET, "/poll", Payload::Nothing, LONG));
        let began = tokio::select! {
            _ = &mut poll => panic!("nobody released the poll"),
            began = place.polls.recv() => began,
        };
        assert_eq!(began, Some("poll began"));
        // Another call does not wait for the poll, nor end it.
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
        assert!(place.polls.try_recv().is_err());
        drop(poll);
        assert_eq!(place.polls.recv().await, Some("poll over"));
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn a_deadline_that_passes_is_told_apart_from_a_server_that_is_gone() {
    run(async {
        let mut place = place(limits()).await;
        let client = place.client();
        // So that it is late with an answer, and not with a connection.
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
        let late = client.call(Method::GET, "/poll", Payload::Nothing, SHORT).await.unwrap_err();
        assert_eq!(late, CallError::Timeout { address: place.address.to_string() });
        assert_eq!(place.polls.recv().await, Some("poll began"));
        assert_eq!(place.polls.recv().await, Some("poll over"));

        place.serving.abort();
        let _ = (&mut place.serving).await;
        let gone = client.call(Method::POST, "/who", Payload::Nothing, LONG).await.unwrap_err();
        assert!(matches!(gone, CallError::Unreachable { .. }), "{gone}");

        // A server that accepts and never responds is reported as unreachable after the timeout.
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = mute.local_addr().unwrap().to_string();
        let token = place.secret.token(&Scope::Client).unwrap();
        let client = Client::new(address.clone(), place.identity.pin(), &token).unwrap();
        let silent = client.call(Method::GET, "/who", Payload::Nothing, SHORT).await.unwrap_err();
        let why = "connect timed out".to_owned();
        assert_eq!(silent, CallError::Unreachable { address, why });
    });
}

#[test]
fn a_client_finds_a_server_that_was_restarted() {
    run(async {
        let first = place(limits()).await;
        let client = first.client();
        assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
        first.serving.abort();
        let _ = first.serving.await;
        let listener = listen(first.address).unwrap();
        let secret = Secret::from_hex(&first.secret.to_hex()).unwrap();
        let _again = place_at(listener, limits(), first.identity, secret);
        // A POST is never sent twice, so this also shows that the dead connection was noticed.
        let answer = client.call(Method::POST, "/who", Payload::Nothing, LONG).await.unwrap();
        assert_eq!(answer.body, "agent.c1");
    });
}

#[test]
fn a_stopped_server_gives_the_answers_under_way() {
    run(async {
        let mut place = place(limits()).await;
        let client = place.client();
        let poll = client.call(Method::GET, "/poll", Payload::Nothing, LONG);
        let ends = async {
            assert_eq!(place.polls.recv().await, Some("poll began"));
            place.stop.take().unwrap().send(()).unwrap();
            // The listener is closed first, so from here on the server is draining.
            while TcpStream::connect(place.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
            place.release.notify_one();
            (&mut place.serving).await.unwrap();
        };
        let (answer, ()) = tokio::join!(poll, ends);
        assert_eq!(answer.unwrap().status, 204);
    });
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once_and_room_comes_back() {
    run(async {
        let place = place(Limits { connections_max: 3, ..limits() }).await;
        let clients = [place.client(), place.client(), place.client()];
        for client in &clients {
            assert_eq!(ask(client, "/who").await.unwrap(), "agent.c1");
        }
        let one_more = place.client();
        let error = ask(&one_more, "/who").await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
        drop(clients);
        while ask(&one_more, "/who").await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_crowd_of_strangers_pushes_out_itself() {
    run(async {
        let place = place(Limits { unauthenticated_max: 3, ..limits() }).await;
        let first = place.client();
        let port = ask(&first, "/port").await.unwrap();
        let mut crowd = VecDeque::new();
        for _ in 0..20 {
            crowd.push_back(place.raw().await);
            if crowd.len() > 3 {
                let oldest = crowd.pop_front().expect("there are four");
                hung_up(Box::new(oldest)).await;
            }
        }
        // Authenticated connections stay open, and new ones are accepted.
        assert_eq!(ask(&first, "/port").await.unwrap(), port);
        assert_eq!(ask(&place.client(), "/who").await.unwrap(), "agent.c1");
    });
}

#[test]
fn an_idle_connection_is_closed_and_nobody_notices() {
    run(async {
        let place = place(Limits { idle: SHORT, ..limits() }).await;
        let client = place.client();
        let port = ask(&client, "/port").await.unwrap();
        let mut raw = place.raw().await;
        let text = format!("GET /who HTTP/1.1\r\n{}\r\n", place.bearer());
        raw.write_all(text.as_bytes()).await.unwrap();
        // Its end is the fact that shows that the client's older connection has ended too.
        hung_up(Box::new(raw)).await;
        let answer = client.call(Method::POST, "/port", Payload::Nothing, LONG).await.unwrap();
        assert_ne!(answer.body, port);
    });
}

#[test]
fn a_reply_that_nobody_takes_costs_its_connection_only() {
    run(async {
        let place = place(Limits { reply: SHORT, ..limits() }).await;
        let mut raw = place.raw().await;
        let text = format!("GET /big HTTP/1.1\r\n{}\r\n", place.bearer());
        // Some 40 MiB of answers, which no socket's buffer holds.
        for _ in 0..40 {
            raw.write_all(text.as_bytes()).await.unwrap();
        }
        raw.flush().await.unwrap();
        let client = place.client();
        // Nothing is read here, so only an error of the socket can tell of the end.
        while raw.write_all(b"x").await.is_ok() && raw.flush().await.is_ok() {
            assert_eq!(ask(&client, "/who").await.unwrap(), "agent.c1");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn an_answer_that_is_too_long_or_no_http_is_a_protocol_error() {
    run(async {
        let place = place(limits()).await;
        let small = ClientLimits { body_bytes_max: 1000, ..ClientLimits::default() };
        let error = ask(&place.client_with(small), "/big").await.unwrap_err();
        let what = "the response: longer than 1000 bytes".to_owned();
        assert_eq!(error, CallError::Protocol { what });
        let error = ask(&place.client(), "no path").await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { .. }), "{error}");

        // A server that has the right key and does not use HTTP.
        let (address, server) =
            respond_once(&place.identity, "SMTP 250 pleased to meet you\r\n\r\n".to_owned());
        let token = place.secret.token(&Scope::Client).unwrap();
        let client = Client::new(address, place.identity.pin(), &token).unwrap();
        let error = ask(&client, "/who").await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { .. }), "{error}");
        server.join().unwrap();
    });
}

#[test]
fn a_response_of_another_protocol_version_or_of_none_is_an_error() {
    run(async {
        let place = place(limits()).await;
        let token = place.secret.token(&Scope::Client).unwrap();
        let cases = [
            ("ydl-version: 2\r\n", "it uses protocol version 2, this `ydl` uses version 1"),
            ("", "it has no protocol version, this `ydl` uses version 1"),
        ];
        for (header, why) in cases {
            for status in ["200 OK", "404 Not Found"] {
                let text = format!("HTTP/1.1 {status}\r\n{header}content-length: 2\r\n\r\n{{}}");
                let (address, server) = respond_once(&place.identity, text);
                let client = Client::new(address.clone(), place.identity.pin(), &token).unwrap();
                let error = ask(&client, "/who").await.unwrap_err();
                assert_eq!(error, CallError::Version { address, why: why.to_owned() });
                server.join().unwrap();
            }
            let text = format!(
                "HTTP/1.1 101 Switching Protocols\r\n{header}connection: upgrade\r\n\
                 upgrade: ydl\r\n\r\n"
            );
            let (address, server) = respond_once(&place.identity, text);
            let client = Client::new(address, place.identity.pin(), &token).unwrap();
            let error = client.join("/join", LONG).await.unwrap_err();
            assert!(matches!(error, CallError::Version { .. }), "{error}");
            server.join().unwrap();
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
