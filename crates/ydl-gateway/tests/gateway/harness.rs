//! Gateways, replicas and clients of the tests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ydl_gateway::{
    Gateway, GatewayOptions, Replica, ReplicaState, RetryPolicy, RetryWhen, RouteTable, Service,
};

pub type AnyError = Box<dyn std::error::Error + Send + Sync>;
pub type AnyBody = BoxBody<Bytes, AnyError>;
type Answer = Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

pub fn full(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(Into::into).boxed()
}

pub fn empty() -> AnyBody {
    Empty::new().map_err(Into::into).boxed()
}

/// Waits for a fact. Fails only if it never becomes true.
pub async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let waiting = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(120), waiting).await;
    waited.unwrap_or_else(|_| panic!("never: {what}"));
}

/// HTTP server of either version that notes each request.
pub struct Server {
    pub address: SocketAddr,
    task: JoinHandle<()>,
    connections: Arc<Mutex<Vec<tokio::task::AbortHandle>>>,
}

impl Server {
    pub async fn start<F>(
        handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Server
    where
        F: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<Mutex<Vec<tokio::task::AbortHandle>>>::default();
        let all = connections.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = tokio::spawn(serve(stream, handler.clone()));
                all.lock().unwrap().push(serving.abort_handle());
            }
        });
        Server { address, task, connections }
    }

    /// Replies with a fixed text.
    pub async fn saying(text: &'static str) -> Server {
        Server::start(move |_| async move { Response::new(full(text)) }).await
    }

    /// Closes the listener and all connections at once, as SIGKILL does.
    pub fn kill(&self) {
        self.task.abort();
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn serve(stream: TcpStream, handler: Handler) {
    let mut preface = [0; 3];
    let read = stream.peek(&mut preface).await.unwrap_or(0);
    let is_http2 = &preface[..read] == b"PRI";
    stream.set_nodelay(true).unwrap();
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let builder = server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(io, service).await;
    } else {
        let builder = server::conn::http1::Builder::new();
        let _ = builder.serve_connection(io, service).with_upgrades().await;
    }
}

pub fn replica(id: &str, address: SocketAddr) -> Replica {
    Replica {
        id: id.into(),
        address: address.to_string(),
        revision: 1,
        weight: 100,
        state: ReplicaState::Serving,
        concurrency: 1000,
    }
}

pub fn table(version: u64, service: Service, replicas: Vec<Replica>) -> RouteTable {
    RouteTable { version, role: "server".into(), service, replicas }
}

pub fn retry(when: RetryWhen) -> Service {
    let retry = RetryPolicy { when, max: 3, budget_percent: 100 };
    Service { retry, ..Service::default() }
}

/// Gateway that runs until it is dropped.
pub struct Running {
    pub gateway: Gateway,
    pub address: SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<usize>,
}

impl Running {
    pub async fn start(service: Service, replicas: Vec<Replica>) -> Running {
        Running::with(GatewayOptions::default(), service, replicas).await
    }

    /// Starts a gateway with one replica and default settings.
    pub async fn before(server: &Server) -> Running {
        Running::start(Service::default(), vec![replica("a", server.address)]).await
    }

    pub async fn with(
        options: GatewayOptions,
        service: Service,
        replicas: Vec<Replica>,
    ) -> Running {
        let gateway = Gateway::new(table(1, service, replicas), options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = gateway.clone();
        let task = tokio::spawn(async move {
            serving
                .serve(listener, async {
                    let _ = stopped.await;
                })
                .await
        });
        Running { gateway, address, stop: Some(stop), task }
    }

    /// Returns the value of a series of the metrics; 0 if there is none.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.gateway.metrics();
        let line = text
            .lines()
            .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// Returns the numbers of requests by status code.
    pub fn codes(&self) -> BTreeMap<u16, u64> {
        let text = self.gateway.metrics();
        let mut codes = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("ydl_requests_total{")) {
            let (_, rest) = line.split_once("code=\"").unwrap();
            let (code, count) = rest.split_once("\"} ").unwrap();
            *codes.entry(code.parse().unwrap()).or_insert(0) += count.parse::<u64>().unwrap();
        }
        codes
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Client of HTTP/1.1 with one connection.
pub struct Client1(client::conn::http1::SendRequest<AnyBody>);

impl Client1 {
    pub async fn connect(address: SocketAddr) -> Client1 {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Client1(sender)
    }

    pub async fn send(
        &mut self,
        request: Request<AnyBody>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.0.ready().await?;
        self.0.send_request(request).await
    }

    /// Sends a request and reads the response. Returns status and body.
    pub async fn ask(&mut self, request: Request<AnyBody>) -> (StatusCode, Bytes) {
        let response = self.send(request).await.unwrap();
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    }
}

pub fn get(path: &str) -> Request<AnyBody> {
    Request::get(path).header("host", "models.example").body(empty()).unwrap()
}

pub fn post(path: &str, body: AnyBody) -> Request<AnyBody> {
    Request::post(path).header("host", "models.example").body(body).unwrap()
}

/// Sends one request on a connection of its own.
pub async fn ask(address: SocketAddr, request: Request<AnyBody>) -> (StatusCode, Bytes) {
    Client1::connect(address).await.ask(request).await
}

/// Client of HTTP/2 by prior knowledge.
pub async fn client2(address: SocketAddr) -> client::conn::http2::SendRequest<AnyBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender
}

/// Sends bytes and returns everything until the connection is closed.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    // A reset after the response is an end, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Body whose frames the test sends.
pub struct ChannelBody(tokio::sync::mpsc::Receiver<Result<hyper::body::Frame<Bytes>, AnyError>>);

pub type FrameSender = tokio::sync::mpsc::Sender<Result<hyper::body::Frame<Bytes>, AnyError>>;

pub fn channel_body() -> (FrameSender, AnyBody) {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    (sender, ChannelBody(receiver).boxed())
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, AnyError>>> {
        self.0.poll_recv(context)
    }
}
