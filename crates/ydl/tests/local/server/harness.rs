//! Server under test and its clients.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use ydl_net::client::{CallError, Client, ClientLimits, Payload};
use ydl_net::request::{Head, Reply, Request};
use ydl_net::secret::{Scope, Secret, Token};
use ydl_net::server::{Limits, listen, serve};
use ydl_net::tls::{self, Identity};

pub const LONG: Duration = Duration::from_secs(20);
pub const SHORT: Duration = Duration::from_millis(500);

/// Returns timeouts that are long enough for a busy machine.
pub fn limits() -> Limits {
    Limits {
        handshake: LONG,
        header: LONG,
        body: LONG,
        reply: LONG,
        idle: LONG,
        answer: LONG,
        body_bytes_max: 64 << 10,
        ..Limits::default()
    }
}

/// Returns timeouts that a test can wait for.
pub fn short_limits() -> Limits {
    Limits { handshake: SHORT, header: SHORT, body: SHORT, reply: SHORT, ..limits() }
}

/// Server under test, and its secret.
pub struct TestServer {
    pub address: SocketAddr,
    pub identity: Identity,
    pub secret: Arc<Secret>,
    /// Start and end of the server's long polls.
    pub polls: mpsc::UnboundedReceiver<&'static str>,
    pub release: Arc<Notify>,
    pub stop: Option<oneshot::Sender<()>>,
    pub serving: JoinHandle<()>,
}

pub async fn start_server(limits: Limits) -> TestServer {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    start_server_at(listener, limits, Identity::generate().unwrap(), Secret::random().unwrap())
}

pub fn start_server_at(
    listener: TcpListener,
    limits: Limits,
    identity: Identity,
    secret: Secret,
) -> TestServer {
    let address = listener.local_addr().unwrap();
    let secret = Arc::new(secret);
    let (poll_events, polls) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await;
    };
    let verifier = secret.clone();
    let admit = move |head: &Head| {
        let bearer = head.bearer.as_ref().map_or("", Token::as_str);
        verifier.verify(bearer).ok_or_else(|| {
            Reply::error(401, "the token is not one of this job", Some("ask again".into()))
        })
    };
    let released = release.clone();
    let respond = move |scope: Scope, request: Request| {
        respond(scope, request, poll_events.clone(), released.clone())
    };
    let tls = identity.server().unwrap();
    let serving = tokio::spawn(serve(listener, Some(tls), limits, stopped, admit, respond));
    TestServer { address, identity, secret, polls, release, stop: Some(stop), serving }
}

struct PollGuard(mpsc::UnboundedSender<&'static str>);

impl Drop for PollGuard {
    fn drop(&mut self) {
        let _ = self.0.send("poll ended");
    }
}

async fn respond(
    scope: Scope,
    request: Request,
    poll_events: mpsc::UnboundedSender<&'static str>,
    release: Arc<Notify>,
) -> Reply {
    match request.head.path()[..] {
        ["who"] => Reply::new("text/plain", scope.to_string()),
        ["length"] => Reply::json(&request.body.len()),
        ["port"] => Reply::json(&request.head.peer.port()),
        ["big"] => Reply::new("application/octet-stream", vec![7; 1 << 20]),
        ["poll"] => {
            let _ = poll_events.send("poll started");
            let _guard = PollGuard(poll_events);
            release.notified().await;
            Reply::empty()
        }
        _ => Reply::error(404, "there is no such path", None),
    }
}

impl TestServer {
    pub fn client(&self) -> Client {
        self.client_with(ClientLimits::default())
    }

    pub fn client_with(&self, limits: ClientLimits) -> Client {
        let token = self.secret.token(&Scope::Agent("c1".into())).unwrap();
        Client::with_limits(self.address.to_string(), self.identity.pin(), &token, limits).unwrap()
    }

    /// Opens a TLS connection without HTTP, for invalid requests.
    pub async fn raw(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let connector = tokio_rustls::TlsConnector::from(self.identity.pin().client().unwrap());
        let stream = TcpStream::connect(self.address).await.unwrap();
        connector.connect(tls::server_name(), stream).await.unwrap()
    }

    /// Returns the header line of an authorized client.
    pub fn bearer(&self) -> String {
        let token = self.secret.token(&Scope::Client).unwrap();
        format!("authorization: Bearer {}\r\n", token.as_str())
    }
}

pub async fn get(client: &Client, path: &str) -> Result<String, CallError> {
    let response = client.call(Method::GET, path, Payload::Nothing, LONG).await?;
    Ok(String::from_utf8(response.body.to_vec()).unwrap())
}

/// Runs a test on the runtime of the product, with a timeout.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG, test).await.unwrap() });
}

/// Starts a server that presents a copied certificate but signs with another key.
pub async fn start_server_without_key(certificate: CertificateDer<'static>) -> SocketAddr {
    #[derive(Debug)]
    struct Stolen(Arc<rustls::sign::CertifiedKey>);
    impl rustls::server::ResolvesServerCert for Stolen {
        fn resolve(
            &self,
            _hello: rustls::server::ClientHello<'_>,
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
    }
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let key = Arc::new(rustls::sign::CertifiedKey::new(vec![certificate], key));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Stolen(key)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    });
    address
}

/// Returns the first message of a TLS handshake.
pub fn client_hello() -> Vec<u8> {
    let config = Identity::generate().unwrap().pin().client().unwrap();
    let mut connection = rustls::ClientConnection::new(config, tls::server_name()).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}
