//! A way to call a server, or whichever of several is active.

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
use crate::rpc::link::{Badge, Caller, Link};
use crate::rpc::{
    Address, Dial, Exception, ExceptionKind, Method, Options, Protocol, RpcError, Safety, Tcp,
};
use crate::security::{Identity, SecurityError};

/// Calls one protocol of one server, or of whichever of several is active. Cheap to clone; the
/// clones share their connections, and a connection carries many calls at once.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<ChannelInner>,
}

struct ChannelInner {
    caller: Caller,
    links: Vec<Link>,
    active: ActiveServer,
    badge: RwLock<Badge>,
    next_call: AtomicU32,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("protocol", &self.inner.caller.protocol)
            .field("addresses", &self.inner.addresses())
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// A channel over TCP. Nothing is connected before the first call. Of several addresses the
    /// first is tried first, and the others when it stands by or cannot be reached.
    pub fn new(
        protocol: Protocol,
        addresses: Vec<Address>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        Self::over(Arc::new(Tcp), protocol, addresses, identity, options)
    }

    /// A channel over streams that something else opens.
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
            caller: Caller { protocol, client, options, dial },
            active: ActiveServer::new(addresses.len()),
            links: addresses.into_iter().map(Link::new).collect(),
            badge: RwLock::new(Badge { identity: Arc::new(identity), edition: 0 }),
            next_call: AtomicU32::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Where it calls.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.inner.links.iter().map(|link| &link.address)
    }

    /// Calls as somebody else from now on, over new connections. Calls under way stay where they
    /// are. A master needs this when its token is rolled over.
    pub fn replace_identity(&self, identity: Identity) {
        let mut badge = self.inner.badge.write().unwrap_or_else(PoisonError::into_inner);
        *badge = Badge { identity: Arc::new(identity), edition: badge.edition + 1 };
    }

    /// Calls a method with messages that are already, and stay, in their form on the wire: for
    /// protocols this crate has no types for.
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
        // It may hold credentials.
        let body = Zeroizing::new(request.encode_to_vec());
        let answer = self.inner.call(method.name, &body, deadline, safety).await?;
        Resp::decode(answer).map_err(|error| self.invalid_response(method.name, &error.to_string()))
    }

    /// The error for an answer that cannot be what a server means.
    pub(crate) fn invalid_response(&self, method: &str, why: &str) -> RpcError {
        let reason = format!("its answer to `{method}` cannot be read: {why}");
        // Who was called last is the one that answered, unless others have moved on since.
        let answered = self.inner.links.get(self.inner.active.index());
        let address = answered.map_or_else(|| "no address".into(), |link| link.address.to_string());
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
        let limit = self.caller.options.request_bytes_max.min(i32::MAX as usize);
        if body.len() > limit {
            return Err(RpcError::RequestTooLarge { method, bytes: body.len(), bytes_max: limit });
        }
        if self.links.is_empty() {
            let (addresses, reason) = ("no address".into(), "none is configured".into());
            return Err(RpcError::Unreachable { addresses, reason });
        }
        // The sign is for what is no call.
        let id = self.next_call.fetch_add(1, Ordering::Relaxed) & i32::MAX.cast_unsigned();
        // Patience without end ends with the deadline.
        let patient_until = Instant::now().checked_add(self.caller.options.retry_timeout);
        let give_up = patient_until.map_or(deadline, |until| until.min(deadline));
        let mut pauses = RetryBackoff::new(self.caller.options.backoff_max, self.links.len());
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
                    // Another server may be the one that answers.
                    self.active.advance_from(server);
                    return Err(self.deadline_error(method, server, sent.into_inner(), last));
                }
            };
            let action = failover::retry_action(&failure, safety);
            let pause = pauses.after(action, failover::random());
            // The other servers are tried whatever the patience: it is for waiting.
            let waits_too_long = pause > Duration::ZERO && Instant::now() + pause >= give_up;
            if action == RetryAction::Fail || waits_too_long {
                return Err(self.error(method, server, failure));
            }
            if action == RetryAction::NextServer {
                self.active.advance_from(server);
            }
            last = Some((server, failure));
            retry += 1;
            if pause > Duration::ZERO {
                sleep(pause).await;
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
        let Caller { protocol, client, .. } = &self.caller;
        let frame = frame::request(client, id, retry, *protocol, method, body);
        let badge = self.badge.read().unwrap_or_else(PoisonError::into_inner).clone();
        let told = || sent.store(true, Ordering::Relaxed);
        self.links[server].call(&self.caller, &badge, id, frame, told).await
    }

    fn deadline_error(
        &self,
        method: &'static str,
        server: usize,
        sent: bool,
        last: Option<(usize, CallError)>,
    ) -> RpcError {
        match last {
            // It was still being tried: that it cannot be reached says more than that it is late.
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

    /// What the caller is told of its last try.
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
