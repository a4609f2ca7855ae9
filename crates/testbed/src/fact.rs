//! Waiting for things to be true, and the two ways of asking a daemon: its port and its web pages.

use crate::failure::{Failure, Kind};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// How often a fact is looked at.
const PACE: Duration = Duration::from_millis(50);

/// How long one question to a daemon may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The most that is read of an answer.
const ANSWER_MAX: u64 = 8 << 20;

/// Asks `probe` until it has an answer, or fails saying what was waited for.
pub fn wait_for<T>(
    what: &str,
    within: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T, Failure> {
    try_wait_for(what, within, || Ok(probe()))
}

/// The same with a probe that can tell that the fact will never come true.
pub fn try_wait_for<T>(
    what: &str,
    within: Duration,
    mut probe: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            let what = format!("waited {} s in vain for {what}", within.as_secs());
            return Err(Failure::new(Kind::Late, what));
        }
        thread::sleep(PACE);
    }
}

/// Whether somebody listens there.
pub fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// The body of a page, if it is there and the answer is 200.
pub fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    // With 1.0 the answer ends with the connection and never comes in chunks.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n");
    stream.write_all(format!("{head}Accept: application/json\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("the answer ends in its head"))?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("`{path}` was answered with `{status}`"))),
    }
}

/// The value of the first field of that name in a JSON text, without its quotes. These are answers
/// whose shape is known, so that no parser is needed.
pub fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let key = format!("\"{name}\"");
    let rest = json.split_once(&key)?.1.trim_start().strip_prefix(':')?.trim_start();
    match rest.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => Some(rest.split([',', '}', ']']).next()?.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn fields_of_an_answer_are_found() {
        let json = r#"{"a":{"state":"STARTED", "nodes" : 3,"last":-1}}"#;
        assert_eq!(field(json, "state"), Some("STARTED"));
        assert_eq!(field(json, "nodes"), Some("3"));
        assert_eq!(field(json, "last"), Some("-1"));
        assert_eq!(field(json, "none"), None);
        assert_eq!(field(r#"{"state":"" }"#, "state"), Some(""));
    }

    #[test]
    fn a_fact_that_never_comes_is_named() {
        let late = wait_for("rain", Duration::ZERO, || None::<()>).unwrap_err();
        assert_eq!((late.kind, late.what.as_str()), (Kind::Late, "waited 0 s in vain for rain"));
    }

    #[test]
    fn only_a_good_answer_has_a_body() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", "HTTP/1.1 307 Go\r\n\r\n", "x"] {
                let mut peer = listener.accept().unwrap().0;
                let mut request = [0; 1024];
                assert!(peer.read(&mut request).unwrap() > 0);
                peer.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(get(address, "/a").unwrap(), "{}");
        assert!(get(address, "/a").unwrap_err().to_string().contains("307"));
        get(address, "/a").unwrap_err();
        server.join().unwrap();
        assert!(!is_open(address));
    }
}
