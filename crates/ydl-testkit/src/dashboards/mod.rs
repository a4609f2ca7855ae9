//! TensorBoard, MLflow and port forwards beside jobs.

mod mlflow;

pub use mlflow::{MlflowServer, value_of};

use crate::requirements_environment;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

/// Timeout of one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

/// Returns the Python environment with MLflow and TensorBoard.
pub fn dashboard_environment() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| requirements_environment("crates/ydl-testkit/programs/requirements.txt"))
}

/// Returns the path of a Python program in `programs`.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// A running `ydl port-forward`. Dropping it kills the process.
#[derive(Debug)]
pub struct PortForward {
    pub child: Child,
    /// The address that it listens on.
    pub address: String,
    /// The line that it printed.
    pub line: String,
}

impl PortForward {
    /// Starts `ydl port-forward` with these arguments, and waits until it listens.
    pub fn start(mut ydl: Command, arguments: &[&str]) -> PortForward {
        ydl.arg("port-forward").args(arguments);
        let mut child = ydl.stdout(Stdio::piped()).spawn().expect("ydl");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line = lines.next().expect("a line").expect("text");
        let address = line.strip_prefix("http://").unwrap_or(&line);
        let address = address.trim_end_matches('/').to_owned();
        PortForward { child, address, line }
    }

    /// Returns the body of the response to a `GET`; an error unless its status is 200.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let (status, body) = http_request(&self.address, "GET", path, "")?;
        match status {
            200 => Ok(body),
            other => Err(io::Error::other(format!("status {other}: {body}"))),
        }
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one HTTP request over a new connection, and returns status and body of the response.
pub fn http_request(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let text = String::from_utf8_lossy(&all);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}
