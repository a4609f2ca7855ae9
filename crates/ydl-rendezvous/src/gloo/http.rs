//! Requests out of bytes, within limits, and answers.
//!
//! Strict: what Horovod's client and Python's do not say is not understood. The client reads the names of an answer's
//! headers by their very letters.

use crate::Refusal;

/// The request line and the headers.
pub const HEAD_MAX: usize = 8 << 10;
/// A value: addresses, which have some hundred bytes.
pub const BODY_MAX: usize = 512 << 10;

const HEADERS_MAX: usize = 64;
const END: &[u8] = b"\r\n\r\n";

/// Why there is no whole request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has at least so many bytes in all.
    Short(usize),
    /// It never will be one.
    Wrong(Refusal),
}

fn wrong(what: impl Into<String>) -> Stop {
    Stop::Wrong(Refusal::new(what))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Put,
    Delete,
    Other,
}

/// A whole request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) verb: Verb,
    /// As it was written, from its first slash on.
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
    pub(super) length: usize,
}

/// The first request of these bytes.
pub(super) fn read(bytes: &[u8]) -> Result<Request<'_>, Stop> {
    if bytes.first().is_some_and(|first| !first.is_ascii_uppercase()) {
        return Err(wrong("this is not HTTP"));
    }
    let within = &bytes[..bytes.len().min(HEAD_MAX)];
    let Some(end) = within.windows(END.len()).position(|four| four == END) else {
        return Err(match bytes.len() < HEAD_MAX {
            true => Stop::Short(bytes.len() + 1),
            false => wrong(format!("the head of a request has more than `{HEAD_MAX}` bytes")),
        });
    };
    let body = end + END.len();
    let head = std::str::from_utf8(&bytes[..end])
        .ok()
        .filter(|head| head.is_ascii())
        .ok_or_else(|| wrong("the head of a request is not text"))?;
    let mut lines = head.split("\r\n");
    let (verb, path) = request_line(lines.next().unwrap_or_default())?;
    let length = content_length(lines)?;
    let end = body + length;
    match bytes.get(body..end) {
        Some(body) => Ok(Request { verb, path, body, length: end }),
        None => Err(Stop::Short(end)),
    }
}

fn request_line(line: &str) -> Result<(Verb, &str), Stop> {
    let mut words = line.split(' ');
    let (Some(verb), Some(path), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong("the first line of a request is not one of HTTP/1.1"));
    };
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("the path of a request is none"));
    }
    let verb = match verb {
        "GET" => Verb::Get,
        "PUT" => Verb::Put,
        "DELETE" => Verb::Delete,
        other if other.bytes().all(|byte| byte.is_ascii_uppercase()) => Verb::Other,
        _ => return Err(wrong("the verb of a request is none")),
    };
    Ok((verb, path))
}

/// 0 if nothing is said of it.
fn content_length<'a>(lines: impl Iterator<Item = &'a str>) -> Result<usize, Stop> {
    let mut length = None;
    for (count, line) in lines.enumerate() {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let header = line.split_once(':').filter(|(name, value)| {
            !name.is_empty()
                && name.bytes().all(token)
                && value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control())
        });
        let (name, value) = header.ok_or_else(|| wrong("a header of a request is none"))?;
        if count >= HEADERS_MAX {
            return Err(wrong(format!("a request has more than `{HEADERS_MAX}` headers")));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") || name.eq_ignore_ascii_case("expect") {
            return Err(wrong(format!("a request has `{name}`, which is not understood")));
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim_matches([' ', '\t']);
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let announced = value.parse().ok().filter(|_| digits && length.is_none());
            length = Some(announced.ok_or_else(|| wrong("the length of a request is none"))?);
        }
    }
    let length = length.unwrap_or(0);
    if length > BODY_MAX {
        return Err(wrong(format!(
            "a request of `{length}` bytes was announced, and `{BODY_MAX}` is the most"
        )));
    }
    Ok(length)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    NotImplemented,
}

/// An answer, after which the link ends.
pub(super) fn answer(status: Status, body: &[u8]) -> Vec<u8> {
    let status = match status {
        Status::Ok => "200 OK",
        Status::BadRequest => "400 Bad Request",
        Status::NotFound => "404 Not Found",
        Status::NotImplemented => "501 Not Implemented",
    };
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
