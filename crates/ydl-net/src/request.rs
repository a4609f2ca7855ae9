//! Requests and replies, independent of an HTTP library.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};

use ydl_proto::version::VERSION_HEADER;

use super::forward::UpgradeHalf;
use super::secret::Token;
use super::text::{Plus, from_percent};

/// Protocol name of an upgrade to a raw byte stream.
pub(super) const UPGRADE: &str = "ydl";

/// Head of a request: enough to authorize it before its body is read.
#[derive(Clone, Debug)]
pub struct Head {
    pub method: Method,
    /// The path split at its slashes and decoded: `/kv/a%20b//c` is `kv`, `a b`, an empty one, `c`.
    pub segments: Vec<String>,
    pub query: BTreeMap<String, String>,
    pub bearer: Option<Token>,
    pub content_type: Option<String>,
    /// Protocol version of the peer, unchecked.
    pub version: Option<String>,
    pub peer: SocketAddr,
}

/// Complete request.
#[derive(Clone, Debug)]
pub struct Request {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Head {
    pub(super) fn parse(
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Result<Self, Reply> {
        let bad =
            |what: &str| Reply::error(400, format!("the request's {what} is malformed"), None);
        let path = uri.path().strip_prefix('/').ok_or_else(|| bad("path"))?;
        let segments = path.split('/').map(|segment| from_percent(segment, Plus::Plus));
        let segments = segments.collect::<Option<_>>().ok_or_else(|| bad("path"))?;
        let query = parse_query(uri.query().unwrap_or("")).ok_or_else(|| bad("query"))?;
        let bearer = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| Token::new(token.trim()))?
        });
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Ok(Self {
            method,
            segments,
            query,
            bearer,
            content_type: content_type.map(str::to_owned),
            version: headers.get(VERSION_HEADER).map(text),
            peer,
        })
    }

    /// The segments, for pattern matching.
    pub fn path(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// Joins the segments after the first `count`: a key may contain slashes.
    pub fn rest(&self, count: usize) -> String {
        self.segments.get(count..).unwrap_or_default().join("/")
    }
}

/// Parses a query. A duplicate name is an error: two parsers could disagree about which one counts.
fn parse_query(query: &str) -> Option<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = from_percent(name, Plus::Space)?;
        if map.insert(name, from_percent(value, Plus::Space)?).is_some() {
            return None;
        }
    }
    Some(map)
}

/// JSON body of every error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Reply to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
    /// Headers in addition to the standard ones.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The half that the connection becomes, if this reply switches protocols.
    pub upgrade: Option<UpgradeHalf>,
}

impl Reply {
    /// Reply with raw bytes. Shared values need not be copied: see [`Bytes::from_owner`].
    pub fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            body: body.into(),
            headers: Vec::new(),
            upgrade: None,
        }
    }

    /// Switches the connection to a raw byte stream.
    pub fn upgrade(half: UpgradeHalf) -> Self {
        Self {
            status: StatusCode::SWITCHING_PROTOCOLS,
            upgrade: Some(half),
            ..Self::new("", Bytes::new())
        }
        .with_header("connection", "upgrade")
        .with_header("upgrade", UPGRADE)
    }

    /// Success without a body.
    pub fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::new("", Bytes::new()) }
    }

    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new("application/json", body),
            Err(error) => Self::error(500, format!("cannot serialize the reply: {error}"), None),
        }
    }

    /// Error reply with a message and an optional hint.
    pub fn error(status: u16, message: impl Into<String>, hint: Option<String>) -> Self {
        let body = ErrorBody { error: message.into(), hint };
        let reply = Self::new("application/json", serde_json::to_vec(&body).unwrap_or_default());
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, ..reply }
    }

    /// Adds a header; an invalid value is dropped.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, authorization: Option<&str>) -> Result<Head, Reply> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        let uri = uri.parse::<Uri>().unwrap();
        Head::parse(Method::GET, &uri, &headers, "127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn a_path_is_cut_then_decoded_and_can_be_joined_again() {
        let head = head("/kv/a%20b//c%2Fd+e?prefix=x+y&after=3&deep", None).unwrap();
        assert_eq!(head.path(), ["kv", "a b", "", "c/d+e"]);
        assert_eq!(head.rest(1), "a b//c/d+e");
        assert_eq!(head.rest(9), "");
        let query: Vec<_> = head.query.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(query, [("after", "3"), ("deep", ""), ("prefix", "x y")]);
    }

    #[test]
    fn a_broken_path_or_query_is_answered_with_400() {
        for uri in ["/%zz", "/%ff", "/a?b=%f", "/a?b=1&b=2", "*"] {
            assert_eq!(head(uri, None).unwrap_err().status, 400, "{uri}");
        }
    }

    #[test]
    fn a_bearer_is_found_and_not_shown() {
        let head_with = |value| head("/", Some(value)).unwrap();
        let found = head_with("Bearer client.abc");
        assert_eq!(found.bearer.as_ref().map(Token::as_str), Some("client.abc"));
        assert!(!format!("{found:?}").contains("abc"));
        assert!(head_with("bearer  client.abc ").bearer.is_some());
        for bad in ["Basic abc", "Bearer", "Bearer ", "Bearer a b"] {
            assert_eq!(head_with(bad).bearer, None, "{bad}");
        }
    }
}
