//! Requests out of bytes, within limits, and answers.
//!
//! Strict: what Horovod's client and Python's do not say is not understood. The client reads the names of an answer's
//! headers by their very letters.

use crate::Rejection;

/// The request line and the headers.
pub const HEAD_MAX: usize = 8 << 10;
/// A value: addresses, which have some hundred bytes.
pub const BODY_MAX: usize = 512 << 10;

const HEADERS_MAX: usize = 64;
const END: &[u8] = b"\r\n\r\n";

/// Why there is no whole request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HttpParseError {
    /// It has at least so many bytes in all.
    Incomplete(usize),
    /// It never will be one.
    Invalid(Rejection),
}

fn wrong(what: impl Into<String>) -> HttpParseError {
    HttpParseError::Invalid(Rejection::new(what))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpMethod {
    Get,
    Put,
    Delete,
    Other,
}

/// A whole request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpRequest<'a> {
    pub(super) method: HttpMethod,
    /// As it was written, from its first slash on.
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
    pub(super) length: usize,
}

/// The first request of these bytes.
pub(super) fn read(bytes: &[u8]) -> Result<HttpRequest<'_>, HttpParseError> {
    if bytes.first().is_some_and(|first| !first.is_ascii_uppercase()) {
        return Err(wrong("not an HTTP request"));
    }
    let within = &bytes[..bytes.len().min(HEAD_MAX)];
    let Some(end) = within.windows(END.len()).position(|four| four == END) else {
        return Err(match bytes.len() < HEAD_MAX {
            true => HttpParseError::Incomplete(bytes.len() + 1),
            false => wrong(format!("request head exceeds `{HEAD_MAX}` bytes")),
        });
    };
    let body = end + END.len();
    let head = std::str::from_utf8(&bytes[..end])
        .ok()
        .filter(|head| head.is_ascii())
        .ok_or_else(|| wrong("request head is not ASCII"))?;
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
        return Err(wrong("invalid request line"));
    };
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("invalid request path"));
    }
    let method = match method {
        "GET" => HttpMethod::Get,
        "PUT" => HttpMethod::Put,
        "DELETE" => HttpMethod::Delete,
        other if other.bytes().all(|byte| byte.is_ascii_uppercase()) => HttpMethod::Other,
        _ => return Err(wrong("invalid request method")),
    };
    Ok((method, path))
}

/// 0 if nothing is said of it.
fn content_length<'a>(lines: impl Iterator<Item = &'a str>) -> Result<usize, HttpParseError> {
    let mut length = None;
    for (count, line) in lines.enumerate() {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let header = line.split_once(':').filter(|(name, value)| {
            !name.is_empty()
                && name.bytes().all(token)
                && value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control())
        });
        let (name, value) = header.ok_or_else(|| wrong("invalid request header"))?;
        if count >= HEADERS_MAX {
            return Err(wrong(format!("more than `{HEADERS_MAX}` request headers")));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") || name.eq_ignore_ascii_case("expect") {
            return Err(wrong(format!("unsupported request header `{name}`")));
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim_matches([' ', '\t']);
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let announced = value.parse().ok().filter(|_| digits && length.is_none());
            length = Some(announced.ok_or_else(|| wrong("invalid Content-Length"))?);
        }
    }
    let length = length.unwrap_or(0);
    if length > BODY_MAX {
        return Err(wrong(format!(
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

/// An answer, after which the link ends.
pub(super) fn answer(status: HttpStatus, body: &[u8]) -> Vec<u8> {
    let status = match status {
        HttpStatus::Ok => "200 OK",
        HttpStatus::BadRequest => "400 Bad Request",
        HttpStatus::NotFound => "404 Not Found",
        HttpStatus::NotImplemented => "501 Not Implemented",
    };
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
