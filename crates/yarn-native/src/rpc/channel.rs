//! Calls to a server, with failover among several.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use zeroize::Zeroizing;

use crate::rpc::connection::{CallError, ConnectionError};
use crate::rpc::failover::{self, ActiveServer, RetryAction, RetryBackoff};
use crate::rpc::frame;
use crate::rpc::link::{Link, LinkSettings, VersionedIdentity};
use crate::rpc::{
    Address, Dial, Exception, ExceptionKind, Method, Options, Protocol, RpcError, Safety, Tcp,
};
use crate::security::{Identity, SecurityError};

/// Client channel for one protocol, to one server or to the active one of several. Cheap to clone;
/// clones share their connections, and a connection multiplexes concurrent calls.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<ChannelInner>,
}

struct ChannelInner {
    settings: LinkSettings,
    links: Vec<Link>,
    active: ActiveServer,
    identity: RwLock<VersionedIdentity>,
    next_call: AtomicU32,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("protocol", &self.inner.settings.protocol)
            .field("addresses", &self.inner.addresses())
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Creates a channel over TCP. Connects on the first call. Servers are tried in order; the next
    /// one is tried when a server is standby or unreachable.
    pub fn new(
        protocol: Protocol,
        addresses: Vec<Address>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        Self::over(Arc::new(Tcp), protocol, addresses, identity, options)
    }

    /// Creates a channel over streams opened by `dial`.
    pub fn over(
        dial: Arc<dyn Dial>,
        protocol: Protocol,
        addresses: Vec<Address>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        let mut client = [0; 16];
        getrandom::fill(&mut client).map_err(|_| RpcError::Security {
            address: "this machine".into(),
            source: SecurityError::NoRandomness,
        })?;
        let inner = ChannelInner {
            settings: LinkSettings { protocol, client, options, dial },
            active: ActiveServer::new(addresses.len()),
            links: addresses.into_iter().map(Link::new).collect(),
            identity: RwLock::new(VersionedIdentity { value: Arc::new(identity), version: 0 }),
            next_call: AtomicU32::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the server addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.inner.links.iter().map(|link| &link.address)
    }

    /// Replaces the identity for future calls, which use new connections. Calls in flight are not
    /// affected. An ApplicationMaster needs this when its token is rolled.
    pub fn replace_identity(&self, identity: Identity) {
        let mut current = self.inner.identity.write().unwrap_or_else(PoisonError::into_inner);
        *current = VersionedIdentity { value: Arc::new(identity), version: current.version + 1 };
    }

    /// Calls a method with encoded messages, for protocols without types in this crate.
    pub async fn call_raw(
        &self,
        method: &'static str,
        request: &[u8],
        deadline: Instant,
        safety: Safety,
    ) -> Result<Bytes, RpcError> {
        self.inner.call(method, request, deadline, safety).await
    }

    /// Calls a method.
    pub(crate) async fn call<Req: Message, Resp: Message + Default>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        deadline: Instant,
        safety: Safety,
    ) -> Result<Resp, RpcError> {
        // The request may contain credentials.
        let body = Zeroizing::new(request.encode_to_vec());
        let answer = self.inner.call(method.name, &body, deadline, safety).await?;
        Resp::decode(answer).map_err(|error| self.invalid_response(method.name, &error.to_string()))
    }

    /// Creates the error for an invalid response.
    pub(crate) fn invalid_response(&self, method: &str, why: &str) -> RpcError {
        let reason = format!("invalid response to `{method}`: {why}");
        // The active server sent the response, unless a concurrent call has failed over since.
        let server = self.inner.links.get(self.inner.active.index());
        let address = server.map_or_else(|| "no address".into(), |link| link.address.to_string());
        RpcError::Protocol { address, reason }
    }
}

impl ChannelInner {
    async fn call(
        &self,
        method: &'static str,
        body: &[u8],
        deadline: Instant,
        safety: Safety,
    ) -> Result<Bytes, RpcError> {
        let limit = self.settings.options.request_bytes_max.min(i32::MAX as usize);
        if body.len() > limit {
            return Err(RpcError::RequestTooLarge { method, bytes: body.len(), bytes_max: limit });
        }
        if self.links.is_empty() {
            let (addresses, reason) = ("no address".into(), "none is configured".into());
            return Err(RpcError::Unreachable { addresses, reason });
        }
        // Negative ids are reserved for control messages.
        let id = self.next_call.fetch_add(1, Ordering::Relaxed) & i32::MAX.cast_unsigned();
        // An unlimited retry timeout ends with the deadline.
        let retry_until = Instant::now().checked_add(self.settings.options.retry_timeout);
        let give_up = retry_until.map_or(deadline, |until| until.min(deadline));
        let mut backoff = RetryBackoff::new(self.settings.options.backoff_max, self.links.len());
        let mut last: Option<(usize, CallError)> = None;
        let mut retry = 0;
        loop {
            let server = self.active.index();
            let sent = AtomicBool::new(false);
            let attempt = self.attempt(server, method, id, retry, body, &sent);
            let failure = match timeout_at(deadline, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    // Another server may be responsive.
                    self.active.advance_from(server);
                    return Err(self.deadline_error(method, server, sent.into_inner(), last));
                }
            };
            let action = failover::retry_action(&failure, safety);
            let delay = backoff.delay(action, failover::random());
            // The timeout limits waiting; switching to another server without a delay is always
            // allowed.
            let exceeds_timeout = delay > Duration::ZERO && Instant::now() + delay >= give_up;
            if action == RetryAction::Fail || exceeds_timeout {
                return Err(self.error(method, server, failure));
            }
            if action == RetryAction::NextServer {
                self.active.advance_from(server);
            }
            last = Some((server, failure));
            retry += 1;
            if delay > Duration::ZERO {
                sleep(delay).await;
            }
        }
    }

    async fn attempt(
        &self,
        server: usize,
        method: &str,
        id: u32,
        retry: i32,
        body: &[u8],
        sent: &AtomicBool,
    ) -> Result<Bytes, CallError> {
        let LinkSettings { protocol, client, .. } = &self.settings;
        let frame = frame::request(client, id, retry, *protocol, method, body);
        let identity = self.identity.read().unwrap_or_else(PoisonError::into_inner).clone();
        let on_sent = || sent.store(true, Ordering::Relaxed);
        self.links[server].call(&self.settings, &identity, id, frame, on_sent).await
    }

    fn deadline_error(
        &self,
        method: &'static str,
        server: usize,
        sent: bool,
        last: Option<(usize, CallError)>,
    ) -> RpcError {
        match last {
            // The server was being retried: its unreachability explains more than the deadline.
            Some((server, failure @ (CallError::NotSent(_) | CallError::Exception(_))))
                if !sent =>
            {
                self.error(method, server, failure)
            }
            last => RpcError::DeadlinePassed {
                method,
                address: self.links[server].address.to_string(),
                sent: sent || last.is_some(),
                reason: last.map(|(_, failure)| reason(&failure)),
            },
        }
    }

    /// Converts the last failure into the caller's error.
    fn error(&self, method: &'static str, server: usize, failure: CallError) -> RpcError {
        let address = self.links[server].address.to_string();
        match failure {
            CallError::Exception(exception)
            | CallError::NotSent(ConnectionError::Fatal(exception)) => {
                self.exception_error(method, address, exception)
            }
            CallError::NotSent(ConnectionError::Security(source))
            | CallError::Unanswered(ConnectionError::Security(source)) => {
                RpcError::Security { address, source }
            }
            CallError::NotSent(ConnectionError::Protocol(reason))
            | CallError::Unanswered(ConnectionError::Protocol(reason)) => {
                RpcError::Protocol { address, reason }
            }
            CallError::NotSent(error) => {
                let addresses = self.addresses();
                RpcError::Unreachable { addresses, reason: error.to_string() }
            }
            CallError::Unanswered(error) => {
                RpcError::Unanswered { method, address, reason: error.to_string() }
            }
        }
    }

    fn exception_error(
        &self,
        method: &'static str,
        address: String,
        exception: Exception,
    ) -> RpcError {
        match exception.kind() {
            ExceptionKind::Standby => {
                let addresses = self.addresses();
                RpcError::NoActiveServer { addresses, reason: exception.to_string() }
            }
            ExceptionKind::NoSuchMethod
            | ExceptionKind::NoSuchProtocol
            | ExceptionKind::VersionMismatch => {
                RpcError::Unsupported { method, address, exception }
            }
            ExceptionKind::AccessControl => RpcError::Denied { method, address, exception },
            _ => RpcError::Rejected { method, address, exception },
        }
    }

    fn addresses(&self) -> String {
        let all: Vec<String> = self.links.iter().map(|link| link.address.to_string()).collect();
        all.join(", ")
    }
}

fn reason(failure: &CallError) -> String {
    match failure {
        CallError::NotSent(error) | CallError::Unanswered(error) => error.to_string(),
        CallError::Exception(exception) => exception.to_string(),
    }
}
