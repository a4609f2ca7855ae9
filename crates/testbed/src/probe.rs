//! Polling for conditions, and probes of a daemon: its port and its HTTP pages.

use crate::error::{Error, ErrorKind};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Interval between two probes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes read from a response.
const RESPONSE_MAX: u64 = 8 << 20;

/// Polls `probe` until it returns a value. On timeout the error names the condition.
pub fn wait_for<T>(
    condition: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T, Error> {
    try_wait_for(condition, timeout, || Ok(probe()))
}

/// Like [`wait_for`], with a probe that can fail, which ends the wait.
pub fn try_wait_for<T>(
    condition: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            let message =
                format!("timed out after {} s waiting for {condition}", timeout.as_secs());
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns true if the address accepts connections.
pub fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// Sends a GET request and returns the body of a response with status 200.
pub fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, REQUEST_TIMEOUT)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    // An HTTP/1.0 response ends with the connection and is never chunked.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n");
    stream.write_all(format!("{head}Accept: application/json\r\n\r\n").as_bytes())?;
    let mut response = Vec::new();
    stream.take(RESPONSE_MAX).read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("the response ends inside its header"))?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("GET `{path}` returned `{status}`"))),
    }
}

/// Returns the value of the first field with that name in a JSON text, without quotes. The responses
/// have a known shape, so no parser is needed.
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
    fn field_finds_values_in_a_response() {
        let json = r#"{"a":{"state":"STARTED", "nodes" : 3,"last":-1}}"#;
        assert_eq!(field(json, "state"), Some("STARTED"));
        assert_eq!(field(json, "nodes"), Some("3"));
        assert_eq!(field(json, "last"), Some("-1"));
        assert_eq!(field(json, "none"), None);
        assert_eq!(field(r#"{"state":"" }"#, "state"), Some(""));
    }

    #[test]
    fn a_timeout_names_the_condition() {
        let late = wait_for("rain", Duration::ZERO, || None::<()>).unwrap_err();
        assert_eq!(
            (late.kind, late.message.as_str()),
            (ErrorKind::Timeout, "timed out after 0 s waiting for rain")
        );
    }

    #[test]
    fn get_returns_a_body_for_status_200_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for response in ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", "HTTP/1.1 307 Go\r\n\r\n", "x"] {
                let mut peer = listener.accept().unwrap().0;
                let mut request = [0; 1024];
                assert!(peer.read(&mut request).unwrap() > 0);
                peer.write_all(response.as_bytes()).unwrap();
            }
        });
        assert_eq!(get(address, "/a").unwrap(), "{}");
        assert!(get(address, "/a").unwrap_err().to_string().contains("307"));
        get(address, "/a").unwrap_err();
        server.join().unwrap();
        assert!(!is_open(address));
    }
}
