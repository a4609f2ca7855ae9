//! A server to be tested against, and ways to reach it.

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

/// Deadlines that a test can wait for.
pub fn impatient() -> Limits {
    Limits { handshake: SHORT, header: SHORT, body: SHORT, reply: SHORT, ..limits() }
}

/// A server under test, and the tokens it knows.
pub struct Place {
    pub address: SocketAddr,
    pub identity: Identity,
    pub secret: Arc<Secret>,
    /// Start and end of the server's long polls.
    pub polls: mpsc::UnboundedReceiver<&'static str>,
    pub release: Arc<Notify>,
    pub stop: Option<oneshot::Sender<()>>,
    pub serving: JoinHandle<()>,
}

pub async fn place(limits: Limits) -> Place {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    place_at(listener, limits, Identity::generate().unwrap(), Secret::random().unwrap())
}

pub fn place_at(
    listener: TcpListener,
    limits: Limits,
    identity: Identity,
    secret: Secret,
) -> Place {
    let address = listener.local_addr().unwrap();
    let secret = Arc::new(secret);
    let (told, polls) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await;
    };
    let knowing = secret.clone();
    let admit = move |head: &Head| {
        let bearer = head.bearer.as_ref().map_or("", Token::as_str);
        knowing.verify(bearer).ok_or_else(|| {
            Reply::error(401, "the token is not one of this job", Some("ask again".into()))
        })
    };
    let released = release.clone();
    let answer =
        move |who: Scope, request: Request| answer(who, request, told.clone(), released.clone());
    let tls = identity.server().unwrap();
    let serving = tokio::spawn(serve(listener, tls, limits, stopped, admit, answer));
    Place { address, identity, secret, polls, release, stop: Some(stop), serving }
}

struct Told(mpsc::UnboundedSender<&'static str>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send("poll over");
    }
}

async fn answer(
    who: Scope,
    request: Request,
    told: mpsc::UnboundedSender<&'static str>,
    release: Arc<Notify>,
) -> Reply {
    match request.head.path()[..] {
        ["who"] => Reply::new("text/plain", who.to_string()),
        ["length"] => Reply::json(&request.body.len()),
        ["port"] => Reply::json(&request.head.peer.port()),
        ["big"] => Reply::new("application/octet-stream", vec![7; 1 << 20]),
        ["poll"] => {
            let _ = told.send("poll began");
            let _told = Told(told);
            release.notified().await;
            Reply::empty()
        }
        _ => Reply::error(404, "there is no such path", None),
    }
}

impl Place {
    pub fn client(&self) -> Client {
        self.client_with(ClientLimits::default())
    }

    pub fn client_with(&self, limits: ClientLimits) -> Client {
        let token = self.secret.token(&Scope::Agent("c1".into())).unwrap();
        Client::with_limits(self.address.to_string(), self.identity.pin(), &token, limits).unwrap()
    }

    /// A bare TLS connection, to misbehave inside of it.
    pub async fn raw(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let connector = tokio_rustls::TlsConnector::from(self.identity.pin().client().unwrap());
        let stream = TcpStream::connect(self.address).await.unwrap();
        connector.connect(tls::server_name(), stream).await.unwrap()
    }

    /// The header line of a client that may ask.
    pub fn bearer(&self) -> String {
        let token = self.secret.token(&Scope::Client).unwrap();
        format!("authorization: Bearer {}\r\n", token.as_str())
    }
}

pub async fn ask(client: &Client, path: &str) -> Result<String, CallError> {
    let answer = client.call(Method::GET, path, Payload::Nothing, LONG).await?;
    Ok(String::from_utf8(answer.body.to_vec()).unwrap())
}

/// Runs a test on the runtime the product uses, and never for ever.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG, test).await.unwrap() });
}

/// A server that shows another's certificate and signs with a key of its own.
pub async fn thief(certificate: CertificateDer<'static>) -> SocketAddr {
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

/// The first bytes of a real handshake.
pub fn hello() -> Vec<u8> {
    let config = Identity::generate().unwrap().pin().client().unwrap();
    let mut connection = rustls::ClientConnection::new(config, tls::server_name()).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}
