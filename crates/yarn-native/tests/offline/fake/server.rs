//! A scripted server over in-memory pipes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use yarn_native::Token;
use yarn_native::rpc::{Address, Channel, Dial, DialedStream, Options, Protocol};
use yarn_native::security::Identity;

use super::digest::{self, Session};
use super::wire::{self, Fields};

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;
type Script = dyn Fn(Peer) -> Option<Serving> + Send + Sync;

/// Opens pipes and serves their other ends by a script, which may refuse connections.
pub struct Fake {
    script: Box<Script>,
    connections: AtomicUsize,
    dialed_hosts: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    /// Creates a server that serves each connection with `script`.
    pub fn new<F, S>(script: F) -> Arc<Self>
    where
        F: Fn(Peer) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Self::with_refusals(move |peer| Some(Box::pin(script(peer))))
    }

    /// Creates a server that may refuse connections.
    pub fn with_refusals(
        script: impl Fn(Peer) -> Option<Serving> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (script, connections) = (Box::new(script), AtomicUsize::new(0));
        Arc::new(Self { script, connections, dialed_hosts: Mutex::new(Vec::new()) })
    }

    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the hosts dialed, in order.
    pub fn dialed_hosts(&self) -> Vec<String> {
        self.dialed_hosts.lock().expect("not poisoned").clone()
    }

    pub fn channel(
        self: &Arc<Self>,
        hosts: &[&str],
        identity: Identity,
        options: Options,
    ) -> Channel {
        let addresses = hosts.iter().map(|host| Address::new(*host, 8032)).collect();
        Channel::over(self.clone(), Protocol::APPLICATION_CLIENT, addresses, identity, options)
            .expect("a channel")
    }
}

impl Dial for Fake {
    fn dial<'a>(
        &'a self,
        address: &'a Address,
    ) -> Pin<Box<dyn Future<Output = io::Result<DialedStream>> + Send + 'a>> {
        Box::pin(async move {
            let number = self.connections.fetch_add(1, Ordering::SeqCst);
            self.dialed_hosts.lock().expect("not poisoned").push(address.host.clone());
            let (ours, theirs) = duplex(64 << 10);
            let peer = Peer { number, host: address.host.clone(), ..Peer::on(theirs) };
            let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
            tokio::spawn((self.script)(peer).ok_or_else(refused)?);
            Ok(DialedStream { stream: Box::new(ours), peer: None })
        })
    }
}

/// The server's end of one connection.
pub struct Peer {
    pub stream: DuplexStream,
    /// Number of the connection, counted from 0.
    pub number: usize,
    /// The dialed host.
    pub host: String,
    session: Option<Session>,
    plain: Vec<u8>,
}

/// A received call.
#[derive(Debug)]
pub struct Call {
    pub id: u32,
    pub retry: i64,
    pub body: Vec<u8>,
}

pub const IDENTIFIER: &[u8] = b"an identifier";
pub const PASSWORD: &[u8] = b"a password of a token";

pub fn token() -> Token {
    Token {
        identifier: IDENTIFIER.to_vec(),
        password: PASSWORD.to_vec().into(),
        kind: "YARN_AM_RM_TOKEN".into(),
        service: String::new(),
    }
}

impl Peer {
    pub fn on(stream: DuplexStream) -> Self {
        Self { stream, number: 0, host: String::new(), session: None, plain: Vec::new() }
    }

    pub async fn connection_header(&mut self) -> Option<[u8; 7]> {
        let mut header = [0; 7];
        self.stream.read_exact(&mut header).await.ok()?;
        Some(header)
    }

    /// Accepts a connection as an insecure server and returns the context.
    pub async fn accept_simple(&mut self) -> Option<Fields> {
        assert_eq!(self.connection_header().await?, *b"hrpc\x09\0\0");
        self.context().await
    }

    pub async fn context(&mut self) -> Option<Fields> {
        let payload = self.frame().await?;
        let mut rest = &payload[..];
        let header = Fields::parse(&wire::take_delimited(&mut rest));
        assert_eq!(header.signed(3), Some(-3), "a context");
        Some(Fields::parse(&wire::take_delimited(&mut rest)))
    }

    /// Accepts a token handshake with these qualities and returns the context.
    pub async fn accept_token(&mut self, qualities: &str) -> Option<Fields> {
        self.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&digest::challenge(qualities))))
            .await?;
        let answer = self.answer().await?;
        let Some(session) = Session::new(&answer, IDENTIFIER, PASSWORD) else {
            self.reject("DIGEST-MD5: digest response format violation. Mismatched response.").await;
            return None;
        };
        let proof = wire::bytes(3, &session.rspauth);
        self.write(&digest::message(0, &proof)).await;
        if session.quality != "auth" {
            self.session = Some(session);
        }
        self.context().await
    }

    /// Reads the connection header and NEGOTIATE, and sends an offer.
    pub async fn negotiate(&mut self, offers: &[u8]) -> Option<()> {
        assert_eq!(self.connection_header().await?, *b"hrpc\x09\0\xdf");
        let negotiate = self.sasl().await?;
        assert_eq!(negotiate.number(2), Some(1), "NEGOTIATE");
        self.write(&digest::message(1, offers)).await;
        Some(())
    }

    /// Returns the client's answer to a challenge.
    pub async fn answer(&mut self) -> Option<String> {
        let initiate = self.sasl().await?;
        assert_eq!(initiate.number(2), Some(2), "INITIATE");
        initiate.text(3)
    }

    pub async fn reject(&mut self, message: &str) {
        let class = "javax.security.sasl.SaslException";
        self.write(&wire::exception(digest::SASL, 2, class, message)).await;
    }

    pub async fn sasl(&mut self) -> Option<Fields> {
        let payload = wire::read_frame(&mut self.stream).await?;
        let mut rest = &payload[..];
        let header = Fields::parse(&wire::take_delimited(&mut rest));
        assert_eq!(header.signed(3), Some(-33), "a message of SASL");
        Some(Fields::parse(&wire::take_delimited(&mut rest)))
    }

    /// Returns the next frame, unwrapped if protected.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        if self.session.is_none() {
            return wire::read_frame(&mut self.stream).await;
        }
        loop {
            if let Some(prefix) = self.plain.first_chunk::<4>() {
                let end = 4 + u32::from_be_bytes(*prefix) as usize;
                if self.plain.len() >= end {
                    let rest = self.plain.split_off(end);
                    return Some(std::mem::replace(&mut self.plain, rest).split_off(4));
                }
            }
            let message = self.sasl().await?;
            assert_eq!(message.number(2), Some(5), "WRAP");
            let session = self.session.as_mut()?;
            self.plain.extend(session.unwrap(message.bytes(3)?));
        }
    }

    /// Returns the next call, skipping pings.
    pub async fn call(&mut self) -> Option<Call> {
        loop {
            let payload = self.frame().await?;
            let mut rest = &payload[..];
            let header = Fields::parse(&wire::take_delimited(&mut rest));
            let id = header.signed(3)?;
            if id == -4 {
                continue;
            }
            assert_eq!(header.bytes(4).map(<[u8]>::len), Some(16), "a client's id");
            let request = Fields::parse(&wire::take_delimited(&mut rest));
            let protocol = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB";
            assert_eq!(request.text(2).as_deref(), Some(protocol));
            assert!(request.text(1).is_some_and(|method| !method.is_empty()));
            let body = wire::take_delimited(&mut rest);
            let (id, retry) = (u32::try_from(id).ok()?, header.signed(5)?);
            return Some(Call { id, retry, body });
        }
    }

    /// Returns whether the next frame is a ping.
    pub async fn ping(&mut self) -> bool {
        let Some(payload) = self.frame().await else {
            return false;
        };
        let mut rest = &payload[..];
        Fields::parse(&wire::take_delimited(&mut rest)).signed(3) == Some(-4)
    }

    /// Writes a frame, protected if negotiated. Ignores a closed connection.
    pub async fn write(&mut self, frame: &[u8]) {
        let bytes = match &mut self.session {
            None => frame.to_vec(),
            Some(session) => digest::message(5, &wire::bytes(3, session.wrap(frame))),
        };
        let _ = self.stream.write_all(&bytes).await;
    }

    pub async fn reply(&mut self, call: u32, body: &[u8]) {
        self.write(&wire::success(call, body)).await;
    }

    pub async fn fail(&mut self, call: u32, class: &str) {
        let class = format!("org.apache.hadoop.{class}");
        self.write(&wire::exception(call, 1, &class, "the message\n\tat a.b.C(D.java:1)")).await;
    }

    /// Answers every call with its own body.
    pub async fn echo(mut self) {
        while let Some(call) = self.call().await {
            self.reply(call.id, &call.body).await;
        }
    }
}
