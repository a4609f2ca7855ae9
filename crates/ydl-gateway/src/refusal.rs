//! Responses of the gateway itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::wait_queue::QueueFull;

/// Reason of answering a request without a replica's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed(String),
    Connect,
    Unauthorized,
    TooManyRequests {
        retry_after: Duration,
    },
    TooLarge {
        limit: u64,
    },
    /// The client stopped sending its body.
    ClientTimeout,
    /// The client's body broke off, or was malformed.
    ClientBody,
    QueueFull(QueueFull),
    QueueTimeout,
    Unreachable(String),
    Broken(String),
    ReplicaTimeout,
}

#[derive(Serialize)]
struct RefusalJson<'a> {
    error: &'a str,
    reason: &'a str,
}

impl Refusal {
    /// Returns status, word for programs, and text for people.
    fn parts(&self) -> (StatusCode, &'static str, String) {
        match self {
            Self::Malformed(why) => (StatusCode::BAD_REQUEST, "malformed", why.clone()),
            Self::Connect => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "the method CONNECT is not supported".into(),
            ),
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "the request has no valid bearer token".into(),
            ),
            Self::TooManyRequests { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit",
                "this client sends too many requests".into(),
            ),
            Self::TooLarge { limit } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                format!("the body of the request exceeds {limit} bytes"),
            ),
            Self::ClientTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "client_timeout",
                "the body of the request did not arrive in time".into(),
            ),
            Self::ClientBody => (
                StatusCode::BAD_REQUEST,
                "client_body",
                "the body of the request is incomplete or malformed".into(),
            ),
            Self::QueueFull(QueueFull::Requests) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "queue_full",
                "all replicas are busy, and too many requests wait".into(),
            ),
            Self::QueueFull(QueueFull::Bytes) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "queue_bytes",
                "all replicas are busy, and waiting requests use too much memory".into(),
            ),
            Self::QueueTimeout => (
                StatusCode::SERVICE_UNAVAILABLE,
                "queue_timeout",
                "no replica became free in time".into(),
            ),
            Self::Unreachable(why) => (
                StatusCode::BAD_GATEWAY,
                "unreachable",
                format!("the replica did not take the request: {why}"),
            ),
            Self::Broken(why) => (
                StatusCode::BAD_GATEWAY,
                "broken",
                format!("the replica broke off before a response: {why}"),
            ),
            Self::ReplicaTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "replica_timeout",
                "the replica did not answer in time".into(),
            ),
        }
    }

    /// Returns the word that names the reason, for the access log.
    pub(crate) fn reason(&self) -> &'static str {
        self.parts().1
    }

    pub(crate) fn response(&self) -> Response<Bytes> {
        let (status, reason, error) = self.parts();
        let json = RefusalJson { error: &error, reason };
        // A struct of two texts is always valid JSON.
        let body = serde_json::to_vec(&json).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Self::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Connect => {
                let methods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
                headers.insert(ALLOW, HeaderValue::from_static(methods));
            }
            Self::TooManyRequests { retry_after } => {
                let seconds = retry_after.as_millis().div_ceil(1000).max(1);
                let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            Self::QueueFull(_) | Self::QueueTimeout => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::ClientTimeout
            | Self::ClientBody
            | Self::Unreachable(_)
            | Self::Broken(_)
            | Self::ReplicaTimeout => {}
        }
        response
    }
}
