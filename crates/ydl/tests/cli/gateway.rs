//! `ydl gateway`: its file of replicas, its messages and its end.

use expect_test::{Expect, expect};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};
use tempfile::TempDir;

/// Server that answers each request with a text.
fn replica(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = BufReader::new(&stream).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let length = text.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(format!("{head}{text}").as_bytes());
        }
    });
    port
}

fn routes(version: u32, port: u16) -> String {
    format!(
        r#"{{"format": 1, "version": {version}, "role": "server",
            "replicas": [{{"id": "{version}", "address": "127.0.0.1:{port}"}}]}}"#
    )
}

struct GatewayProcess {
    child: Child,
    url: String,
    messages: BufReader<std::process::ChildStderr>,
}

impl GatewayProcess {
    fn start(dir: &Path) -> GatewayProcess {
        let mut child = Command::new(ydl_testkit::ydl())
            .args(["gateway", "--routes", "routes.json", "--listen", "127.0.0.1:0"])
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let messages = BufReader::new(child.stderr.take().unwrap());
        GatewayProcess { child, url: url.trim().to_owned(), messages }
    }

    fn ask(&self) -> String {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.rsplit("\r\n\r\n").next().unwrap().to_owned()
    }

    fn message(&mut self) -> String {
        let mut line = String::new();
        self.messages.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_new_table_is_read_and_a_bad_one_is_reported() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("routes.json");
    let replace = |text: &str| {
        fs::write(dir.path().join("new"), text).unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
    };
    let (one, two) = (replica("one"), replica("two"));
    replace(&routes(1, one));
    let mut gateway = GatewayProcess::start(dir.path());
    assert_eq!(gateway.ask(), "one");
    replace(&routes(2, two));
    assert_eq!(gateway.message(), "read version 2 with 1 replicas\n");
    assert_eq!(gateway.ask(), "two");
    replace(&routes(1, one));
    assert_eq!(gateway.message(), "warning: ignored version 1: the present one is 2\n");
    replace(
        r#"{"format": 1, "version": 3, "role": "server", "replicas": [{"id": "a", "address": "x"}]}"#,
    );
    let message = "warning: in `routes.json`: `replicas[0].address` is `x`: expected HOST:PORT; the table of version 2 stays\n";
    assert_eq!(gateway.message(), message);
    fs::remove_file(&path).unwrap();
    // Also written in place.
    fs::write(&path, routes(4, one)).unwrap();
    loop {
        let message = gateway.message();
        assert_ne!(message, "", "the gateway ended");
        if message == "read version 4 with 1 replicas\n" {
            break;
        }
    }
    assert_eq!(gateway.ask(), "one");

    let pid = rustix::process::Pid::from_child(&gateway.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(gateway.message(), "finishing the requests in progress\n");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

fn check(args: &[&str], expected: Expect) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("routes.json"), routes(1, 1)).unwrap();
    fs::write(dir.path().join("bad.json"), r#"{"format": 1, "version": 1, "role": ""}"#).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    let output = Command::new(ydl_testkit::ydl())
        .arg("gateway")
        .args(args)
        .current_dir(dir.path())
        .output()
        .unwrap();
    let messages = String::from_utf8(output.stderr).unwrap();
    expected.assert_eq(&format!("{messages}exit {}\n", output.status.code().unwrap()));
}

#[test]
fn wrong_files_and_addresses_are_reported_at_the_start() {
    let listen = ["--listen", "127.0.0.1:0"];
    let with = |args: &[&'static str]| [&listen[..], args].concat();
    check(
        &with(&["--routes", "missing.json"]),
        expect![[r#"
        error: cannot read `missing.json`: no such file or directory

        hint: docs/how-to/gateway.md has the format
        exit 2
    "#]],
    );
    check(
        &with(&["--routes", "bad.json"]),
        expect![[r#"
        error: in `bad.json`: `role` is ``: expected 1 to 256 visible ASCII characters without quotes

        hint: docs/how-to/gateway.md has the format
        exit 2
    "#]],
    );
    check(
        &with(&["--routes", "routes.json", "--token-file", "empty"]),
        expect![[r#"
        error: cannot use the token file `empty`: it has no token

        hint: write one token of at least 16 characters on each line
        exit 2
    "#]],
    );
    check(
        &with(&["--routes", "routes.json", "--tls-cert", "empty", "--tls-key", "empty"]),
        expect![[r#"
        error: `empty` has no certificate

        hint: the file must have the certificate chain in PEM format, the server's certificate first
        exit 2
    "#]],
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("routes.json"), routes(1, 1)).unwrap();
    let output = Command::new(ydl_testkit::ydl())
        .args(["gateway", "--routes", "routes.json", "--listen", &address])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let messages = String::from_utf8(output.stderr).unwrap().replace(&address, "ADDRESS");
    expect![[r#"
        error: cannot listen on `ADDRESS`: address already in use

        hint: choose another address with `--listen`
    "#]]
    .assert_eq(&messages);
}
