//! Header fields that a gateway removes, adds and checks.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Uri, Version};

use crate::random::Random;

/// Fields that belong to one connection, beside those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Maximum length of a request id that a client chooses.
const REQUEST_ID_MAX: usize = 128;

/// Scheme of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// Target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub host: HeaderValue,
    pub path: PathAndQuery,
}

/// Returns the target, or a reason if the request names it in an ambiguous way.
pub(crate) fn target(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<Target, &'static str> {
    if method == Method::CONNECT {
        return Err("the method CONNECT is not supported");
    }
    let path = match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('/') || path.as_str() == "*" => path.clone(),
        Some(_) | None => return Err("the path does not begin with `/`"),
    };
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err("the request has more than one `Host`"),
        (host, None) => host,
    };
    let host = match (uri.authority(), host) {
        (Some(authority), Some(host)) if host.as_bytes() != authority.as_str().as_bytes() => {
            return Err("`Host` differs from the host of the URL");
        }
        (Some(authority), _) => HeaderValue::from_str(authority.as_str())
            .map_err(|_| "the host of the URL is malformed")?,
        (None, Some(host)) => host.clone(),
        (None, None) if version == Version::HTTP_10 => HeaderValue::from_static("localhost"),
        (None, None) => return Err("the request has no host"),
    };
    let is_authority = Authority::try_from(host.as_bytes())
        .is_ok_and(|authority| !authority.as_str().contains('@'));
    match is_authority {
        true => Ok(Target { host, path }),
        false => Err("the host is malformed"),
    }
}

/// Returns the protocol to which the client wants to switch, if any.
pub(crate) fn upgrade(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE).filter(|_| version == Version::HTTP_11)?;
    // HTTP/2 is agreed on by TLS or by prior knowledge.
    let is_http =
        protocol.as_bytes().len() >= 3 && protocol.as_bytes()[..3].eq_ignore_ascii_case(b"h2c");
    (names_connection_option(headers, "upgrade") && !is_http).then(|| protocol.clone())
}

fn names_connection_option(headers: &HeaderMap, option: &str) -> bool {
    connection_options(headers).any(|name| name.eq_ignore_ascii_case(option))
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Removes the fields of one connection. `TE: trailers` stays, because gRPC requires it.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<_> = connection_options(headers)
            .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
            // Naming these would remove what the gateway and the replica rely on.
            .filter(|name| *name != HOST && *name != CONTENT_LENGTH && *name != TE)
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    let has_te = headers.contains_key(TE);
    let wants_trailers = headers.get_all(TE).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
    });
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else if has_te {
        headers.remove(TE);
    }
}

/// Joins the parts of a cookie, which HTTP/2 may send separately (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let parts: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if parts.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Prepares the header of a request for a replica, apart from its host. Returns the request id.
pub(crate) fn prepare_request(
    headers: &mut HeaderMap,
    client: IpAddr,
    scheme: Scheme,
    host: &HeaderValue,
    random: &mut Random,
) -> HeaderValue {
    remove_hop_by_hop(headers);
    // The gateway itself answers the expectation when it reads the body.
    headers.remove(EXPECT);
    join_cookies(headers);
    let given = single(headers, &REQUEST_ID).filter(|id| is_request_id(id)).cloned();
    let id = given.unwrap_or_else(|| hex_value(&[random.next(), random.next()]));
    headers.insert(REQUEST_ID, id.clone());
    if !single(headers, &TRACEPARENT).is_some_and(is_traceparent) {
        headers.insert(TRACEPARENT, new_traceparent(random));
    }
    append_forwarded_for(headers, client);
    headers.insert(
        FORWARDED_PROTO,
        HeaderValue::from_static(match scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }),
    );
    headers.insert(FORWARDED_HOST, host.clone());
    id
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn is_request_id(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    !id.is_empty() && id.len() <= REQUEST_ID_MAX && id.iter().all(u8::is_ascii_graphic)
}

fn is_traceparent(value: &HeaderValue) -> bool {
    let parts: Vec<_> = value.as_bytes().split(|byte| *byte == b'-').collect();
    let [version, trace, span, flags] = parts[..] else { return false };
    let is_hex = |part: &[u8], length| {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        part.len() == length && part.iter().all(is_digit)
    };
    let is_set = |id: &[u8]| id.iter().any(|byte| *byte != b'0');
    version == b"00"
        && is_hex(trace, 32)
        && is_set(trace)
        && is_hex(span, 16)
        && is_set(span)
        && is_hex(flags, 2)
}

fn new_traceparent(random: &mut Random) -> HeaderValue {
    let [high, low, span] = [random.next() | 1, random.next(), random.next() | 1];
    let text = format!("00-{high:016x}{low:016x}-{span:016x}-00");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn hex_value(numbers: &[u64]) -> HeaderValue {
    let text: String = numbers.iter().map(|number| format!("{number:016x}")).collect();
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0"))
}

fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let earlier: Vec<_> =
        headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    let mut value = earlier.join(&b", "[..]);
    if !value.is_empty() {
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(client.to_canonical().to_string().as_bytes());
    match HeaderValue::from_bytes(&value) {
        Ok(value) => headers.insert(FORWARDED_FOR, value),
        Err(_) => headers.remove(FORWARDED_FOR),
    };
}

#[cfg(test)]
mod tests;
