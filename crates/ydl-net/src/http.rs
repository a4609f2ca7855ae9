//! The subset of HTTP/1.1 that a server with a few paths needs: request heads, parsed with httparse, and reply heads.
//!
//! This module is stricter than httparse, so that no proxy and this server can disagree about where a request ends: lines
//! end with CRLF, and the only length of a body is a single `content-length`.
//!
//! The end of a head is searched here, too. httparse starts at the first byte each time, so a peer that sends a head byte
//! by byte would have it parsed thousands of times.
//!
//! hyper has no part in the server: it keeps some 16 KiB of buffers for each connection, and a master has thousands of
//! connections that only wait.

use std::fmt::Write as _;
use std::net::SocketAddr;

use httparse::{EMPTY_HEADER, Error, Status};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Method, Uri};

use ydl_proto::version::{PROTOCOL_VERSION, VERSION_HEADER};

use super::request::{Head, Reply};

/// Maximum headers of one request; the bytes of a head are limited too.
const HEADERS_MAX: usize = 64;

/// Parsed head of a request, with what the connection needs to know.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) head: Head,
    /// Length of the body that follows.
    pub(super) length: u64,
    /// The peer waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// The peer sends no further request on this connection.
    pub(super) last: bool,
}

/// Finds the end of the head in `bytes`, searching only after the first `seen` bytes.
pub(super) fn head_end(bytes: &[u8], seen: usize) -> Option<usize> {
    let start = seen.saturating_sub(3);
    let found = bytes.get(start..)?.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(start + found + 4)
}

/// Reads the head of a request, with the empty line that ends it.
pub(super) fn parse(bytes: &[u8], peer: SocketAddr) -> Result<RequestHead, Reply> {
    let bad = |what: &str| Reply::error(400, format!("the request's {what} is malformed"), None);
    if has_lone_line_feed(bytes) {
        return Err(bad("line ending"));
    }
    let mut lines = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(bytes) {
        Ok(Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) | Err(Error::Token | Error::NewLine | Error::Status) => {
            return Err(bad("first line"));
        }
        Err(Error::HeaderName | Error::HeaderValue) => return Err(bad("header")),
        Err(Error::Version) => {
            return Err(Reply::error(505, "unsupported protocol version: only HTTP/1.1", None));
        }
        Err(Error::TooManyHeaders) => {
            let message = format!("the request has more than {HEADERS_MAX} headers");
            return Err(Reply::error(431, message, None));
        }
    }
    let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes());
    let method = method.map_err(|_| bad("method"))?;
    let target = Uri::try_from(request.path.unwrap_or_default()).map_err(|_| bad("path"))?;
    let mut headers = HeaderMap::new();
    for line in request.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| bad("header"))?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_| bad("header"))?;
        headers.append(name, value);
    }
    let length = body_length(&headers)?;
    Ok(RequestHead {
        head: Head::parse(method, &target, &headers, peer)?,
        length,
        expects_continue: length > 0 && has_token(&headers, &EXPECT, "100-continue"),
        last: request.version == Some(0) || has_token(&headers, &CONNECTION, "close"),
    })
}

/// Returns true if a line ends with LF alone, which httparse accepts.
fn has_lone_line_feed(bytes: &[u8]) -> bool {
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.any(|(at, _)| !bytes[..at].ends_with(b"\r"))
}

/// Returns the body's length. Only a single `content-length` is accepted, so that no two parsers can disagree about the
/// end of a body.
fn body_length(headers: &HeaderMap) -> Result<u64, Reply> {
    if headers.contains_key(TRANSFER_ENCODING) {
        let hint = "send the body with a `content-length`".to_owned();
        return Err(Reply::error(411, "the request's body has no length", Some(hint)));
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(length), None) => length
            .to_str()
            .ok()
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| Reply::error(400, "the request's length is malformed", None)),
        (Some(_), Some(_)) => Err(Reply::error(400, "the request has two lengths", None)),
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|said| said.trim().eq_ignore_ascii_case(word))
}

/// Formats the head of a reply.
pub(super) fn reply_head(reply: &Reply, last: bool) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {}\r\n{VERSION_HEADER}: {PROTOCOL_VERSION}\r\n", reply.status);
    // Writing to a string cannot fail.
    if reply.status != 204 && reply.status != 101 {
        let _ = write!(head, "content-length: {}\r\n", reply.body.len());
    }
    if !reply.body.is_empty() {
        let _ = write!(head, "content-type: {}\r\n", reply.content_type);
    }
    if last {
        head.push_str("connection: close\r\n");
    }
    let mut head = head.into_bytes();
    for (name, value) in &reply.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<RequestHead, u16> {
        let end = head_end(text.as_bytes(), 0).unwrap();
        assert_eq!(end, text.len());
        parse(text.as_bytes(), "127.0.0.1:1".parse().unwrap()).map_err(|r| r.status.as_u16())
    }

    #[test]
    fn a_head_is_parsed() {
        let asked = parsed(
            "PUT /kv/a?only-if=absent HTTP/1.1\r\nHost: x\r\ncontent-LENGTH:12\r\n\
             Authorization: Bearer client.00\r\nexpect: 100-Continue\r\nx: \t y z \t\r\n\r\n",
        )
        .unwrap();
        assert_eq!((asked.head.method, asked.length), (Method::PUT, 12));
        assert_eq!(asked.head.segments, ["kv", "a"]);
        assert_eq!(asked.head.query["only-if"], "absent");
        assert!(asked.head.bearer.is_some() && asked.expects_continue && !asked.last);
    }

    #[test]
    fn connection_close_is_recognised() {
        assert!(!parsed("GET / HTTP/1.1\r\n\r\n").unwrap().last);
        assert!(parsed("GET / HTTP/1.0\r\n\r\n").unwrap().last);
        assert!(parsed("GET / HTTP/1.1\r\nconnection: TE, Close\r\n\r\n").unwrap().last);
    }

    #[test]
    fn malformed_requests_are_rejected() {
        let check = |status: u16, text: &str| {
            assert_eq!(parsed(text).err(), Some(status), "{text:?}");
        };
        check(400, "\r\n\r\n");
        check(400, "GET\r\n\r\n");
        check(400, "GET /\r\n\r\n");
        check(400, "GET  / HTTP/1.1\r\n\r\n");
        check(400, "GET / HTTP/1.1 x\r\n\r\n");
        check(400, "G\u{1}T / HTTP/1.1\r\n\r\n");
        check(400, "GET /\u{7f}\n HTTP/1.1\r\n\r\n");
        check(400, "GET * HTTP/1.1\r\n\r\n");
        check(505, "GET / HTTP/2.0\r\n\r\n");
        check(505, "GET / http/1.1\r\n\r\n");
        for header in ["x", " x: y", "x : y", ": y", "x: \u{1}", "x: a\rb", "x: a\nb: c", "é: x"] {
            check(400, &format!("GET / HTTP/1.1\r\n{header}\r\n\r\n"));
            check(400, &format!("GET / HTTP/1.1\r\na: b\r\n{header}\r\n\r\n"));
        }
        for length in ["-1", "+1", "1 ,1", "0x1", "", "1e3", "99999999999999999999"] {
            check(400, &format!("PUT / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n"));
        }
        check(400, "PUT / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n");
        check(411, "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n");
        check(411, "PUT / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: x\r\n\r\n");
    }

    fn status(bytes: &[u8]) -> Option<u16> {
        let read = parse(bytes, "127.0.0.1:1".parse().unwrap());
        read.err().map(|reply| reply.status.as_u16())
    }

    #[test]
    fn line_endings_other_than_crlf_are_rejected() {
        let good = "PUT /kv/a HTTP/1.1\r\nx: y\r\nz:\r\ncontent-length: 1\r\n\r\n";
        assert_eq!(status(good.as_bytes()), None);
        for (at, end) in good.match_indices("\r\n") {
            for other in ["\n", "\r", "\n\r", "\r\r\n", "\r\n\n", "\0\r\n", "\u{b}\r\n"] {
                let text = [&good[..at], other, &good[at + end.len()..]].concat();
                assert_eq!(status(text.as_bytes()), Some(400), "{text:?}");
            }
        }
        for start in ["\n", "\r", " ", "\t"] {
            assert_eq!(status([start, good].concat().as_bytes()), Some(400), "{start:?}");
        }
    }

    #[test]
    fn headers_that_parsers_read_differently_are_rejected() {
        let request = |lines: &str| format!("PUT / HTTP/1.1\r\n{lines}\r\n\r\n");
        for folded in ["x: a\r\n b", "x: a\r\n\tb", "x:\r\n b", " x: a", "x: a\r\n \r\ny: b"] {
            assert_eq!(status(request(folded).as_bytes()), Some(400), "{folded:?}");
        }
        for gap in [" ", "\t", "\u{c}", "\u{a0}", "\0"] {
            for name in ["content-length", "transfer-encoding"] {
                let line = format!("{name}{gap}: 1");
                assert_eq!(status(request(&line).as_bytes()), Some(400), "{line:?}");
            }
        }
        for value in
            [" 1 1", " 1,1", " 1, 2", " 1;a", " \u{c}1", " 1\u{b}", " 1\0", " \"1\"", " 1_0"]
        {
            let line = format!("content-length:{value}");
            assert_eq!(status(request(&line).as_bytes()), Some(400), "{line:?}");
        }
        for name in ["content-length", "Content-Length", "CONTENT-LENGTH"] {
            for length in ["1", "2", "", "x"] {
                let lines = format!("content-length: 1\r\nx: y\r\n{name}: {length}");
                assert_eq!(status(request(&lines).as_bytes()), Some(400), "{lines:?}");
            }
        }
    }

    #[test]
    fn a_transfer_encoding_is_rejected_in_any_form() {
        for name in ["transfer-encoding", "Transfer-Encoding", "TRANSFER-ENCODING"] {
            for value in ["chunked", "identity", "xchunked", "gzip, chunked", "", "\u{e9}"] {
                for length in ["", "content-length: 1\r\n"] {
                    let line = format!("{name}: {value}\r\n");
                    for lines in [[length, &line].concat(), [line.as_str(), length].concat()] {
                        let text = format!("PUT / HTTP/1.1\r\n{lines}\r\n");
                        assert_eq!(status(text.as_bytes()), Some(411), "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_head_has_a_limited_number_of_headers() {
        let request = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(count));
        assert_eq!(status(request(HEADERS_MAX).as_bytes()), None);
        assert_eq!(status(request(HEADERS_MAX + 1).as_bytes()), Some(431));
    }

    #[test]
    fn a_head_with_any_byte_changed_is_parsed_or_rejected() {
        let good = b"PUT /kv/a%20b?c=d HTTP/1.1\r\ncontent-length: 12\r\n\
            authorization: Bearer client.00\r\nconnection: close\r\n\r\n";
        for place in 0..good.len() {
            for byte in 0..=255 {
                let mut head = good.to_vec();
                head[place] = byte;
                let read = parse(&head, "127.0.0.1:1".parse().unwrap());
                assert!(
                    read.is_ok()
                        || read.is_err_and(
                            |reply| reply.status.is_client_error() || reply.status == 505
                        )
                );
            }
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_across_partial_reads() {
        let text = b"GET / HTTP/1.1\r\nx: y\r\n\r\nbody";
        for cut in 0..text.len() {
            let whole = cut >= 24;
            assert_eq!(head_end(&text[..cut], 0).is_some(), whole);
            assert_eq!(head_end(text, cut.min(23)), Some(24));
        }
    }

    #[test]
    fn a_reply_head_is_formatted() {
        let text = |reply, last| String::from_utf8(reply_head(&reply, last)).unwrap();
        assert_eq!(
            text(Reply::empty(), false),
            "HTTP/1.1 204 No Content\r\nydl-version: 1\r\n\r\n"
        );
        assert_eq!(
            text(Reply::new("text/plain", "hi").with_header("ydl-revision", "7"), true),
            "HTTP/1.1 200 OK\r\nydl-version: 1\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\
             connection: close\r\nydl-revision: 7\r\n\r\n"
        );
        assert_eq!(
            text(Reply::new("text/plain", ""), false),
            "HTTP/1.1 200 OK\r\nydl-version: 1\r\ncontent-length: 0\r\n\r\n"
        );
    }
}
