//! HTTP/2, gRPC and TLS.

use std::sync::Arc;

use super::harness::*;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use ydl_gateway::{GatewayOptions, Service};

/// Server of gRPC's form: echoes each message, then sends trailers.
async fn grpc_echo() -> Server {
    Server::start(|request| async move {
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.uri().authority().unwrap(), "models.example");
        let (sender, body) = channel_body();
        tokio::spawn(async move {
            let mut incoming = request.into_body();
            let mut bytes = 0;
            while let Some(Ok(frame)) = incoming.frame().await {
                if let Ok(data) = frame.into_data() {
                    bytes += data.len();
                    sender.send(Ok(Frame::data(data))).await.unwrap();
                }
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            trailers.insert("bytes", bytes.into());
            sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
        });
        Response::builder().header("content-type", "application/grpc").body(body).unwrap()
    })
    .await
}

fn grpc(body: AnyBody) -> Request<AnyBody> {
    Request::post("http://models.example/Service/Method")
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

#[tokio::test]
async fn bidirectional_streams_alternate_and_end_with_trailers() {
    let server = grpc_echo().await;
    let gateway = Running::before(&server).await;
    let client = client2(gateway.address).await;
    let calls = (0..20).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let (sender, body) = channel_body();
            let mut answer = client.send_request(grpc(body)).await.unwrap().into_body();
            for number in 0..5_u8 {
                // Each message waits for the echo of the one before.
                sender.send(Ok(Frame::data(Bytes::from(vec![number; 100])))).await.unwrap();
                let data = answer.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(data, vec![number; 100]);
            }
            drop(sender);
            let trailers = answer.frame().await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!(
                (&trailers["grpc-status"], &trailers["bytes"]),
                (&"0".parse().unwrap(), &500.into())
            );
            assert!(answer.frame().await.is_none());
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn trailers_of_a_request_arrive() {
    let server = Server::start(|request| async move {
        let body = request.into_body().collect().await.unwrap();
        let trailer = body.trailers().unwrap()["checksum"].clone();
        Response::builder().header("seen", trailer).body(empty()).unwrap()
    })
    .await;
    let gateway = Running::before(&server).await;
    let mut client = client2(gateway.address).await;
    let (sender, body) = channel_body();
    tokio::spawn(async move {
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "7".parse().unwrap());
        sender.send(Ok(Frame::data("x".into()))).await.unwrap();
        sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
    });
    let response = client.send_request(grpc(body)).await.unwrap();
    assert_eq!(response.headers()["seen"], "7");
}

/// Sends frames after the preface; returns what the gateway sends until it closes the connection.
async fn malformed(frames: &[u8]) -> Vec<u8> {
    let server = Server::saying("ok").await;
    let gateway = Running::before(&server).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let _ = stream.write_all(frames).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    // Another client is not disturbed.
    assert_eq!(ask(gateway.address, get("/")).await.1, "ok");
    answer
}

#[tokio::test]
async fn malformed_frames_close_their_connection_only() {
    for frames in [
        // A frame that is longer than allowed.
        &b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"[..],
        // DATA on stream 0.
        b"\0\0\x01\x00\x00\x00\x00\x00\x00x",
        // HEADERS on an even stream.
        b"\0\0\x01\x01\x05\x00\x00\x00\x02\x82",
        // HEADERS that cannot be decoded.
        b"\0\0\x02\x01\x05\x00\x00\x00\x01\xff\xff",
        // CONTINUATION without HEADERS.
        b"\0\0\x01\x09\x04\x00\x00\x00\x01\x82",
        // WINDOW_UPDATE of 0 for the connection.
        b"\0\0\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        // SETTINGS of a wrong length.
        b"\0\0\x05\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    ] {
        let answer = malformed(frames).await;
        // The answer ends with GOAWAY, unless the close overtook it.
        let has_goaway = answer.windows(5).any(|window| window == b"\x07\0\0\0\0");
        assert!(has_goaway || answer.len() < 200, "{frames:?}: {answer:?}");
    }
}

struct Tls {
    options: GatewayOptions,
    certificate: CertificateDer<'static>,
    _folder: tempfile::TempDir,
}

fn tls() -> Tls {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let (cert_path, key_path) = (folder.path().join("cert"), folder.path().join("key"));
    std::fs::write(&cert_path, certificate.pem()).unwrap();
    std::fs::write(&key_path, key.serialize_pem()).unwrap();
    let tls = ydl_gateway::load_tls(&cert_path, &key_path).unwrap();
    let options = GatewayOptions { tls: Some(tls), ..GatewayOptions::default() };
    let _: PrivateKeyDer = key.into();
    Tls { options, certificate: certificate.der().clone(), _folder: folder }
}

#[tokio::test]
async fn tls_clients_choose_the_version() {
    let server = Server::start(|request| async move {
        Response::new(full(request.headers()["x-forwarded-proto"].as_bytes().to_vec()))
    })
    .await;
    let tls = tls();
    let replicas = vec![replica("a", server.address)];
    let gateway = Running::with(tls.options, Service::default(), replicas).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(tls.certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for protocol in ["h2", "http/1.1", ""] {
        let mut config = config.clone();
        config.alpn_protocols = Some(protocol.as_bytes().to_vec())
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect();
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let chosen = stream.get_ref().1.alpn_protocol().unwrap_or_default();
        assert_eq!(chosen, protocol.as_bytes());
        let io = TokioIo::new(stream);
        let response = if protocol == "h2" {
            let builder = client::conn::http2::Builder::new(TokioExecutor::new());
            let (mut sender, connection) = builder.handshake(io).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get("https://localhost/").body(empty()).unwrap();
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(get("/")).await.unwrap()
        };
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "https");
    }
}
