//! Parses requests, within limits, and writes responses.
//!
//! Strict: accepts only what Horovod's and Python's clients send. Horovod's client compares header names
//! case-sensitively.

use crate::Rejection;

/// Maximum length of the request line and the headers.
pub const HEAD_MAX: usize = 8 << 10;
/// Maximum length of a value. Addresses have a few hundred bytes.
pub const BODY_MAX: usize = 512 << 10;

const HEADERS_MAX: usize = 64;
const END: &[u8] = b"\r\n\r\n";

/// Reason why there is no complete request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HttpParseError {
    /// More bytes are needed: at least this many in total.
    Incomplete(usize),
    /// The request is invalid.
    Invalid(Rejection),
}

fn invalid(what: impl Into<String>) -> HttpParseError {
    HttpParseError::Invalid(Rejection::new(what))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpMethod {
    Get,
    Put,
    Delete,
    Other,
}

/// A complete request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpRequest<'a> {
    pub(super) method: HttpMethod,
    /// As received, from the first slash on.
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
    pub(super) length: usize,
}

/// Parses the first request in `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Result<HttpRequest<'_>, HttpParseError> {
    if bytes.first().is_some_and(|first| !first.is_ascii_uppercase()) {
        return Err(invalid("not an HTTP request"));
    }
    let within = &bytes[..bytes.len().min(HEAD_MAX)];
    let Some(end) = within.windows(END.len()).position(|four| four == END) else {
        return Err(match bytes.len() < HEAD_MAX {
            true => HttpParseError::Incomplete(bytes.len() + 1),
            false => invalid(format!("request head exceeds `{HEAD_MAX}` bytes")),
        });
    };
    let body = end + END.len();
    let head = std::str::from_utf8(&bytes[..end])
        .ok()
        .filter(|head| head.is_ascii())
        .ok_or_else(|| invalid("request head is not ASCII"))?;
    let mut lines = head.split("\r\n");
    let (method, path) = request_line(lines.next().unwrap_or_default())?;
    let length = content_length(lines)?;
    let end = body + length;
    match bytes.get(body..end) {
        Some(body) => Ok(HttpRequest { method, path, body, length: end }),
        None => Err(HttpParseError::Incomplete(end)),
    }
}

fn request_line(line: &str) -> Result<(HttpMethod, &str), HttpParseError> {
    let mut words = line.split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(invalid("invalid request line"));
    };
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("invalid request path"));
    }
    let method = match method {
        "GET" => HttpMethod::Get,
        "PUT" => HttpMethod::Put,
        "DELETE" => HttpMethod::Delete,
        other if other.bytes().all(|byte| byte.is_ascii_uppercase()) => HttpMethod::Other,
        _ => return Err(invalid("invalid request method")),
    };
    Ok((method, path))
}

/// Returns the Content-Length, or 0 without one.
fn content_length<'a>(lines: impl Iterator<Item = &'a str>) -> Result<usize, HttpParseError> {
    let mut length = None;
    for (count, line) in lines.enumerate() {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let header = line.split_once(':').filter(|(name, value)| {
            !name.is_empty()
                && name.bytes().all(token)
                && value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control())
        });
        let (name, value) = header.ok_or_else(|| invalid("invalid request header"))?;
        if count >= HEADERS_MAX {
            return Err(invalid(format!("more than `{HEADERS_MAX}` request headers")));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") || name.eq_ignore_ascii_case("expect") {
            return Err(invalid(format!("unsupported request header `{name}`")));
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim_matches([' ', '\t']);
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = value.parse().ok().filter(|_| digits && length.is_none());
            length = Some(parsed.ok_or_else(|| invalid("invalid Content-Length"))?);
        }
    }
    let length = length.unwrap_or(0);
    if length > BODY_MAX {
        return Err(invalid(format!(
            "request body of `{length}` bytes exceeds the maximum of `{BODY_MAX}`"
        )));
    }
    Ok(length)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpStatus {
    Ok,
    BadRequest,
    NotFound,
    NotImplemented,
}

/// Returns the bytes of a response. The link is closed after it.
pub(super) fn response(status: HttpStatus, body: &[u8]) -> Vec<u8> {
    let status = match status {
        HttpStatus::Ok => "200 OK",
        HttpStatus::BadRequest => "400 Bad Request",
        HttpStatus::NotFound => "404 Not Found",
        HttpStatus::NotImplemented => "501 Not Implemented",
    };
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
