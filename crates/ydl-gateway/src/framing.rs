//! Checks how the requests of an HTTP/1.1 connection are delimited.
//!
//! A request whose end is ambiguous can hide another one from the gateway or from a replica (request smuggling). The
//! parser of hyper resolves ambiguities silently; this checker reads the same bytes before it and refuses them.

use std::fmt;

/// Maximum bytes of a head, of the trailers, and of the line of a chunk's size.
const HEAD_MAX: usize = 64 << 10;
const TRAILERS_MAX: usize = 16 << 10;
const CHUNK_LINE_MAX: usize = 4 << 10;
/// As hyper's default.
const HEADERS_MAX: usize = 100;

/// Position in the requests of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    /// Bytes of an incomplete head, trailer section or size line.
    partial: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Head,
    Body {
        rest: u64,
    },
    ChunkSize,
    Chunk {
        rest: u64,
    },
    /// After a chunk; the number of bytes of CR LF that were read.
    ChunkEnd {
        read: usize,
    },
    Trailers,
    /// After a request for another protocol. The connection carries no more requests that the gateway would forward.
    Opaque,
}

/// Reason of refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramingError {
    TooLong,
    /// A line ends in a bare LF or contains a bare CR or a NUL.
    LineEnd,
    Syntax,
    ContentLength,
    TransferEncoding,
    /// Content-Length and Transfer-Encoding at once.
    TwoLengths,
    Host,
    Chunk,
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the head of the request is too long",
            Self::LineEnd => "a line of the request does not end in CR LF",
            Self::Syntax => "the head of the request is malformed",
            Self::ContentLength => "the request has an invalid or repeated `Content-Length`",
            Self::TransferEncoding => "the request has a `Transfer-Encoding` other than `chunked`",
            Self::TwoLengths => "the request has both `Content-Length` and `Transfer-Encoding`",
            Self::Host => "the request does not have exactly one `Host`",
            Self::Chunk => "a chunk of the request is malformed",
        })
    }
}

impl Framing {
    pub(crate) fn new() -> Framing {
        Framing { state: State::Head, partial: Vec::new() }
    }

    /// Returns true between the first and the last byte of a head.
    pub(crate) fn is_inside_head(&self) -> bool {
        self.state == State::Head && !self.partial.is_empty()
    }

    /// Checks the next bytes of the connection. After an error the checker must not be used again.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> Result<(), FramingError> {
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                State::Opaque => return Ok(()),
                State::Head => self.take_head(bytes)?,
                State::Trailers => self.take_trailers(bytes)?,
                State::ChunkSize => self.take_chunk_size(bytes)?,
                State::Body { rest } => {
                    let (bytes, is_complete) = skip(bytes, rest);
                    if is_complete {
                        self.state = State::Head;
                    }
                    bytes
                }
                State::Chunk { rest } => {
                    let (bytes, is_complete) = skip(bytes, rest);
                    if is_complete {
                        self.state = State::ChunkEnd { read: 0 };
                    }
                    bytes
                }
                State::ChunkEnd { read } => {
                    if bytes[0] != b"\r\n"[*read] {
                        return Err(FramingError::Chunk);
                    }
                    *read += 1;
                    if *read == 2 {
                        self.state = State::ChunkSize;
                    }
                    &bytes[1..]
                }
            };
        }
        Ok(())
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], FramingError> {
        let Some(rest) = self.take_until(bytes, b"\r\n\r\n", HEAD_MAX)? else {
            // One empty line before a request is allowed (RFC 9112, 2.2).
            if self.partial == b"\r\n" {
                self.partial.clear();
            }
            return Ok(&[]);
        };
        check_lines(&self.partial)?;
        self.state = delimit(&self.partial)?;
        self.partial.clear();
        Ok(rest)
    }

    fn take_trailers<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], FramingError> {
        // The line of the last chunk is followed by an empty line, if there are no trailers.
        let mut read = 0;
        while read < bytes.len() {
            self.partial.push(bytes[read]);
            read += 1;
            if self.partial == b"\r\n" || self.partial.ends_with(b"\r\n\r\n") {
                check_lines(&self.partial)?;
                self.partial.clear();
                self.state = State::Head;
                break;
            }
            if self.partial.len() > TRAILERS_MAX {
                return Err(FramingError::TooLong);
            }
        }
        Ok(&bytes[read..])
    }

    fn take_chunk_size<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], FramingError> {
        let Some(rest) = self.take_until(bytes, b"\r\n", CHUNK_LINE_MAX)? else {
            return Ok(&[]);
        };
        check_lines(&self.partial)?;
        let line = &self.partial[..self.partial.len() - 2];
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let extension = line.get(digits).is_none_or(|byte| b"; \t".contains(byte));
        let size = str::from_utf8(&line[..digits]).ok();
        let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        self.state = match size.filter(|_| digits <= 16 && extension) {
            Some(0) => State::Trailers,
            Some(rest) => State::Chunk { rest },
            None => return Err(FramingError::Chunk),
        };
        self.partial.clear();
        Ok(rest)
    }

    /// Collects bytes up to and including `end`. Returns the bytes after it once it is complete.
    fn take_until<'a>(
        &mut self,
        bytes: &'a [u8],
        end: &[u8],
        max: usize,
    ) -> Result<Option<&'a [u8]>, FramingError> {
        let before = self.partial.len();
        let room = (max + 1).saturating_sub(before);
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let from = before.saturating_sub(end.len() - 1);
        let found = self.partial[from..].windows(end.len()).position(|window| window == end);
        match found {
            Some(at) => {
                let length = from + at + end.len();
                self.partial.truncate(length);
                Ok(Some(&bytes[length - before..]))
            }
            None if self.partial.len() > max => Err(FramingError::TooLong),
            None => Ok(None),
        }
    }
}

fn skip<'a>(bytes: &'a [u8], rest: &mut u64) -> (&'a [u8], bool) {
    let length = usize::try_from(*rest).unwrap_or(usize::MAX).min(bytes.len());
    *rest -= length as u64;
    (&bytes[length..], *rest == 0)
}

fn check_lines(lines: &[u8]) -> Result<(), FramingError> {
    let mut before = 0;
    for &byte in lines {
        if byte == 0 || (byte == b'\n') != (before == b'\r') {
            return Err(FramingError::LineEnd);
        }
        before = byte;
    }
    Ok(())
}

/// Determines how the body after a complete head is delimited.
fn delimit(head: &[u8]) -> Result<State, FramingError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) | Err(_) => return Err(FramingError::Syntax),
    }
    let is_http_11 = request.version == Some(1);
    let (mut hosts, mut length, mut is_chunked, mut is_upgrade) = (0, None, false, false);
    for header in &*request.headers {
        let named = |name| header.name.eq_ignore_ascii_case(name);
        if named("host") {
            hosts += 1;
        } else if named("content-length") {
            let digits = str::from_utf8(header.value).unwrap_or_default();
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse::<u64>().ok().filter(|_| is_number && length.is_none());
            length = Some(number.ok_or(FramingError::ContentLength)?);
        } else if named("transfer-encoding") {
            if is_chunked || !is_http_11 || !header.value.eq_ignore_ascii_case(b"chunked") {
                return Err(FramingError::TransferEncoding);
            }
            is_chunked = true;
        } else if named("upgrade") {
            is_upgrade = true;
        }
    }
    if hosts > 1 || (hosts == 0 && is_http_11) {
        return Err(FramingError::Host);
    }
    match (length, is_chunked) {
        (Some(_), true) => Err(FramingError::TwoLengths),
        _ if is_upgrade || request.method == Some("CONNECT") => Ok(State::Opaque),
        (None, true) => Ok(State::ChunkSize),
        (Some(0) | None, false) => Ok(State::Head),
        (Some(rest), false) => Ok(State::Body { rest }),
    }
}

#[cfg(test)]
mod tests;
