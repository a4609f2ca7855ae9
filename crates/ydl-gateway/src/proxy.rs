//! Forwards one request to a replica.

mod attempt;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;

use crate::access_log::LogLine;
use crate::client_stream::Violation;
use crate::exchange::{CLIENT_GONE, Flow, Record, Upstream};
use crate::gateway::GatewayState;
use crate::headers::{self, REQUEST_ID, Scheme, Target};
use crate::refusal::Refusal;
use crate::request_body::Upload;
use crate::response_body::ResponseBody;
use crate::route_table::{Protocol, Service};
use crate::server::{ActiveRequest, STREAM_WINDOW};
use crate::tunnel;

/// Connection that a request came on.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub address: SocketAddr,
    pub scheme: Scheme,
    pub violation: Violation,
}

/// Request that was admitted, ready for attempts.
#[derive(Debug)]
struct Forward {
    method: Method,
    target: Target,
    headers: HeaderMap,
    /// Protocol that the client wants to switch to.
    upgrade: Option<HeaderValue>,
    is_http2: bool,
    /// Memory that the request keeps while it waits for a replica.
    held_bytes: usize,
    upload: Arc<Upload>,
    flow: Arc<Flow>,
}

/// Answers a request, with the response of a replica or with a refusal.
pub(crate) async fn handle(
    state: &Arc<GatewayState>,
    client: &ClientConnection,
    request: Request<Incoming>,
    active: ActiveRequest,
) -> Response<ResponseBody> {
    let table = state.table();
    let mut record = record(state, client, &request);
    let (mut parts, body) = request.into_parts();
    let is_http2 = parts.version == Version::HTTP_2;
    let on_upgrade = parts.extensions.remove::<OnUpgrade>();
    // After these the bytes of the connection are not checked.
    let is_unchecked = parts.method == Method::CONNECT || parts.headers.contains_key(UPGRADE);
    let mut response = match admit(state, client, &table.service, &mut parts, body, &mut record) {
        Err(refusal) => refuse(&refusal, record, active),
        Ok(forward) => {
            let forwarded = attempt::run(state, &table.service, &forward, &mut record).await;
            match forwarded {
                Err(refusal) => refuse(&refusal, record, active),
                Ok((head, upstream)) => {
                    respond(state, forward, head, upstream, on_upgrade, record, active)
                }
            }
        }
    };
    let is_unsafe = client.violation.get().is_some() || (is_unchecked && !is_http2);
    if is_unsafe && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn record(
    state: &Arc<GatewayState>,
    client: &ClientConnection,
    request: &Request<Incoming>,
) -> Record {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let log = state.options.access_log.clone();
    let line = match &log {
        None => LogLine { status: CLIENT_GONE, ..LogLine::default() },
        Some(_) => LogLine {
            time_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            client: client.address.ip().to_canonical().to_string(),
            method: request.method().as_str().chars().take(32).collect(),
            path: request.uri().path().to_owned(),
            protocol: match request.version() {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            },
            status: CLIENT_GONE,
            end: "client_gone",
            ..LogLine::default()
        },
    };
    Record {
        metrics: state.metrics.clone(),
        log,
        started: Instant::now(),
        line,
        revision: None,
        bytes_in: Arc::new(AtomicU64::new(0)),
    }
}

/// Checks a request and prepares it for a replica.
fn admit(
    state: &Arc<GatewayState>,
    client: &ClientConnection,
    service: &Service,
    parts: &mut Parts,
    body: Incoming,
    record: &mut Record,
) -> Result<Forward, Refusal> {
    if let Some(error) = client.violation.get() {
        return Err(Refusal::Malformed(error.to_string()));
    }
    if let Err(retry_after) = state.take_rate(client.address.ip(), service.rate_limit.as_ref()) {
        return Err(Refusal::TooManyRequests { retry_after });
    }
    if let Some(bearer) = &state.options.bearer {
        if !bearer.admits(&parts.headers) {
            return Err(Refusal::Unauthorized);
        }
        // Replicas must not learn the token of the gateway.
        parts.headers.remove(AUTHORIZATION);
    }
    if parts.method == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    let target = headers::target(&parts.method, &parts.uri, parts.version, &parts.headers)
        .map_err(|why| Refusal::Malformed(why.into()))?;
    let size = body.size_hint();
    if let Some(limit) = service.request_bytes.filter(|limit| size.lower() > *limit) {
        return Err(Refusal::TooLarge { limit });
    }
    let upgrade = headers::upgrade(parts.version, &parts.headers);
    let is_http2 = match service.protocol {
        _ if upgrade.is_some() => false,
        Protocol::Http1 => false,
        Protocol::Http2 => true,
        Protocol::Auto => is_grpc(&parts.headers),
    };
    let id = headers::prepare_request(
        &mut parts.headers,
        client.address.ip(),
        client.scheme,
        &target.host,
        &mut state.random(),
    );
    record.line.id = id.to_str().unwrap_or_default().to_owned();
    let head_bytes: usize =
        parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    let body_bytes = size.upper().unwrap_or(u64::MAX).min(u64::from(STREAM_WINDOW)) as usize;
    let flow = Flow::new(service.timeouts.idle);
    let upload = Upload::new(
        body,
        flow.clone(),
        record.bytes_in.clone(),
        service.request_bytes,
        service.buffer_bytes,
    );
    Ok(Forward {
        method: parts.method.clone(),
        target,
        headers: std::mem::take(&mut parts.headers),
        upgrade,
        is_http2,
        held_bytes: head_bytes + body_bytes,
        upload,
        flow,
    })
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let rest = kind.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.first().is_none_or(|byte| b"+;".contains(byte)))
}

fn refuse(refusal: &Refusal, mut record: Record, active: ActiveRequest) -> Response<ResponseBody> {
    let mut response: Response<Bytes> = refusal.response();
    record.line.status = response.status().as_u16();
    record.line.refused = Some(refusal.reason());
    if let Ok(id) = HeaderValue::from_str(&record.line.id)
        && !id.is_empty()
    {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response.map(|body| ResponseBody::local(body, record, active))
}

/// Passes on the head of a response, and connects the bodies.
fn respond(
    state: &Arc<GatewayState>,
    forward: Forward,
    head: http::response::Parts,
    upstream: Upstream,
    on_upgrade: Option<OnUpgrade>,
    mut record: Record,
    active: ActiveRequest,
) -> Response<ResponseBody> {
    let http::response::Parts { status, mut headers, mut extensions, .. } = head;
    let switched = extensions.remove::<OnUpgrade>();
    let protocol = headers.get(UPGRADE).cloned();
    headers::remove_hop_by_hop(&mut headers);
    if let Ok(id) = HeaderValue::from_str(&record.line.id) {
        headers.insert(REQUEST_ID, id);
    }
    record.line.status = status.as_u16();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(protocol), Some(_), Some(client), Some(replica)) =
            (protocol, &forward.upgrade, on_upgrade, switched)
        else {
            let why = "it switched to another protocol without being asked";
            return refuse(&Refusal::Broken(why.into()), record, active);
        };
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
        tunnel::start(state, client, replica, upstream, forward.flow, record);
        let mut response = Response::new(ResponseBody::switched(active));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        return response;
    }
    state.flows.add(&forward.flow);
    let Forward { flow, upload, .. } = forward;
    upload.keep_no_more();
    let body = ResponseBody::relayed(flow, upload, upstream, record, active);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
