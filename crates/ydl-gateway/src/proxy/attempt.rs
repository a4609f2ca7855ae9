//! Attempts to forward one request: picks replicas, waits for the head of a response, and retries.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::uri::Scheme as UriScheme;
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use tokio::time::sleep;

use super::Forward;
use crate::dispatcher::{Lease, NoReplica};
use crate::exchange::{Record, Upstream};
use crate::gateway::GatewayState;
use crate::health::Verdict;
use crate::metrics::RetryReason;
use crate::pool::{Processed, SendError};
use crate::refusal::Refusal;
use crate::request_body::{RequestBody, UploadFault};
use crate::retry::Reached;
use crate::route_table::{Service, Timeouts};

/// Delay before the same replica is tried again, doubled each time.
const SAME_REPLICA_DELAY: Duration = Duration::from_millis(10);

/// Failed attempt.
#[derive(Debug)]
struct AttemptError {
    reached: Reached,
    why: RetryReason,
    refusal: Refusal,
}

/// Sends the request to replicas until one responds, or the policy forbids another attempt.
pub(super) async fn run(
    state: &Arc<GatewayState>,
    service: &Service,
    forward: &Forward,
    record: &mut Record,
) -> Result<(http::response::Parts, Upstream), Refusal> {
    state.budget().deposit(service.retry.budget_percent);
    let mut tried: Vec<Arc<str>> = Vec::new();
    let mut retries = 0;
    loop {
        let lease = state
            .dispatcher
            .acquire(forward.held_bytes, &tried, &service.queue, record.started)
            .await
            .map_err(|why| match why {
                NoReplica::Full(limit) => Refusal::QueueFull(limit),
                NoReplica::TimedOut => Refusal::QueueTimeout,
            })?;
        let id = lease.picked.id.clone();
        record.revision = Some(lease.picked.replica.revision);
        if state.options.access_log.is_some() {
            record.line.replica = Some(id.to_string());
        }
        if tried.contains(&id) {
            sleep(SAME_REPLICA_DELAY.saturating_mul(1 << retries.min(6))).await;
        }
        let error = match once(state, &service.timeouts, forward, lease).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if let Some(fault) = forward.upload.fault() {
            return Err(match (fault, service.request_bytes) {
                (UploadFault::TooLarge, Some(limit)) => Refusal::TooLarge { limit },
                (UploadFault::TooLarge | UploadFault::Broken, _) => Refusal::ClientBody,
            });
        }
        let is_allowed = error.refusal != Refusal::ClientTimeout
            && service.retry.allows(error.reached, retries)
            && forward.upload.is_repeatable()
            && state.budget().withdraw(Instant::now());
        if !is_allowed {
            return Err(error.refusal);
        }
        state.metrics.on_retry(error.why);
        retries += 1;
        record.line.retries = retries;
        tried.push(id);
    }
}

/// Sends the request to one replica and waits for the head of the response.
async fn once(
    state: &GatewayState,
    timeouts: &Timeouts,
    forward: &Forward,
    mut lease: Lease,
) -> Result<(http::response::Parts, Upstream), AttemptError> {
    let pool = state.pools.of(&lease.picked);
    let mut was_closed = false;
    loop {
        let picked = &lease.picked;
        let connected = match forward.is_http2 {
            true => state.pools.http2(&pool, picked, timeouts, was_closed).await,
            false => state.pools.http1(&pool, picked, timeouts).await,
        };
        let (mut connection, is_reused) = connected.map_err(|error| {
            lease.judge(Verdict::Failure);
            AttemptError {
                reached: Reached::Unsent,
                why: RetryReason::Connect,
                refusal: Refusal::Unreachable(error.to_string()),
            }
        })?;
        let lost = || AttemptError {
            reached: Reached::Unanswered,
            why: RetryReason::Broken,
            refusal: Refusal::Broken("its body cannot be sent again".into()),
        };
        let body = forward.upload.attempt().ok_or_else(lost)?;
        let request = request(forward, body).ok_or_else(lost)?;
        forward.flow.on_progress();
        forward.flow.set_awaits_client(false);
        match head_in_time(connection.send(request), forward, timeouts).await {
            Ok(Ok(response)) => {
                let (head, incoming) = response.into_parts();
                lease.judge(verdict(head.status));
                return Ok((head, Upstream { incoming, connection, pool, lease }));
            }
            // The replica has closed an idle connection. That is no failure, and another connection follows.
            Ok(Err(error))
                if error.processed == Processed::Closed
                    && is_reused
                    && forward.upload.is_repeatable() =>
            {
                was_closed = true;
            }
            Ok(Err(error)) => {
                return Err(failed(&error, forward, &mut lease));
            }
            Err(refusal) => {
                let is_replica = refusal == Refusal::ReplicaTimeout;
                lease.judge(if is_replica { Verdict::Failure } else { Verdict::Unknown });
                return Err(AttemptError {
                    reached: Reached::Unanswered,
                    why: RetryReason::Timeout,
                    refusal,
                });
            }
        }
    }
}

fn failed(error: &SendError, forward: &Forward, lease: &mut Lease) -> AttemptError {
    if forward.upload.fault().is_none() {
        lease.judge(Verdict::Failure);
    }
    let source = std::error::Error::source(&error.error);
    let why = source.map_or_else(|| error.error.to_string(), ToString::to_string);
    match error.processed {
        Processed::Closed | Processed::Refused => AttemptError {
            reached: Reached::Unsent,
            why: RetryReason::Unsent,
            refusal: Refusal::Unreachable(why),
        },
        Processed::Perhaps => AttemptError {
            reached: Reached::Unanswered,
            why: RetryReason::Broken,
            refusal: Refusal::Broken(why),
        },
    }
}

/// Judges a replica by the status of its response. Other errors of the server may be the fault of the request.
fn verdict(status: StatusCode) -> Verdict {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Verdict::Failure
        }
        _ => Verdict::Success,
    }
}

/// Builds the request in the form of its HTTP version.
fn request(forward: &Forward, body: RequestBody) -> Option<Request<RequestBody>> {
    let mut request = Request::new(body);
    *request.method_mut() = forward.method.clone();
    *request.headers_mut() = forward.headers.clone();
    let target = &forward.target;
    if forward.is_http2 {
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(HOST);
        let uri = Uri::builder()
            .scheme(UriScheme::HTTP)
            .authority(target.host.as_bytes())
            .path_and_query(target.path.clone());
        *request.uri_mut() = uri.build().ok()?;
    } else {
        *request.uri_mut() = Uri::from(target.path.clone());
        let headers = request.headers_mut();
        headers.insert(HOST, target.host.clone());
        if let Some(protocol) = &forward.upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        }
    }
    Some(request)
}

/// Waits for the head of a response. The limit begins again with each piece of the request's body.
async fn head_in_time(
    sending: impl Future<Output = Result<Response<Incoming>, SendError>>,
    forward: &Forward,
    timeouts: &Timeouts,
) -> Result<Result<Response<Incoming>, SendError>, Refusal> {
    let mut sending = pin!(sending);
    // The deadline becomes earlier when the replica begins to wait for the client, so it is looked at regularly.
    let interval = timeouts.head.min(timeouts.idle);
    let mut waiting = pin!(sleep(interval));
    loop {
        tokio::select! {
            biased;
            sent = &mut sending => return Ok(sent),
            () = &mut waiting => {
                let deadline = forward.flow.head_deadline(timeouts);
                if Instant::now() >= deadline {
                    return Err(match forward.flow.awaits_client() {
                        true => Refusal::ClientTimeout,
                        false => Refusal::ReplicaTimeout,
                    });
                }
                waiting.as_mut().reset(deadline.min(Instant::now() + interval).into());
            }
        }
    }
}
