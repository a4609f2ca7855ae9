//! Rendezvous of a job on this machine: authorization and invalid messages.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use ydl_testkit::local::Home;

const WORLD: usize = 3;

fn job(home: &Home) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/local/rendezvous/meet.py");
    let (script, dir) = (script.display(), home.path().display());
    format!(
        "name: meet\nframework: pytorch\nfiles: [{script}]\ntimeouts: {{run: 10m}}\n\
         roles: {{worker: {{instances: {WORLD}, memory: 128 MiB, run: python3 meet.py {dir}}}}}\n"
    )
}

/// Returns the rendezvous ports of the agents, and the port of the master.
fn wait_for_ports(home: &Home) -> (Vec<u16>, u16) {
    let port = |rank: usize| {
        home.wait_for("the ports of a rank", |home| {
            let text = fs::read_to_string(home.path().join(format!("ports.{rank}"))).ok()?;
            let (port, master) = text.split_once(' ')?;
            Some((port.parse().ok()?, master.parse().ok()?))
        })
    };
    let all: Vec<(u16, u16)> = (0..WORLD).map(port).collect();
    let master = all[0].1;
    (all.into_iter().map(|(port, _)| port).collect(), master)
}

/// Connects as another process of this machine and tries to release all ranks with a valid message.
fn connect_without_authorization(port: u16) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
    let limit = Some(Duration::from_secs(60));
    stream.set_read_timeout(limit).expect("a limit");
    let mut message = vec![0];
    message.extend(0x3C85_F7CE_u32.to_le_bytes());
    message.push(1);
    for text in ["go", "forged"] {
        message.extend((text.len() as u64).to_le_bytes());
        message.extend(text.as_bytes());
    }
    // The agent may have closed the connection already.
    let _ = stream.write_all(&message);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    assert!(response.is_empty(), "an unauthorized connection got a response");
}

/// Sends requests with a wrong token, of an earlier or later round, or for an unknown session to the master's link
/// endpoint, which rejects them.
fn send_unauthorized_requests(home: &Home, master: u16) {
    let containers = fs::read_dir(home.job().join("containers")).expect("containers");
    let container = containers.flatten().next().expect("a container").path();
    let token = |name: &str| container.join(name).display().to_string();
    let (agent, program) = (token("agent.token"), token("program.token"));
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/local/rendezvous/unauthorized.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(master.to_string()).args([
        "-,1,1,".to_owned(),
        format!("{program},1,1,"),
        format!("{agent},0,1,"),
        format!("{agent},2,1,"),
        format!("{agent},1,77,"),
        format!("{agent},1,1,ffffffffffffffff"),
    ]);
    let output = python.output().expect("a Python");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output, "401\n403\n410\n410\n409\n400\n");
}

/// Ten thousand connections of ten processes that send a few bytes and then stay idle. Closed when dropped.
struct IdleConnections(Vec<Child>);

impl IdleConnections {
    fn open(port: u16, data: &str) -> IdleConnections {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/local/rendezvous/connections.py");
        let process = || {
            let mut python = Command::new("python3");
            python
                .arg(&script)
                .args([&port.to_string(), "1000", data])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            python.spawn().expect("a Python")
        };
        let mut connections = IdleConnections((0..10).map(|_| process()).collect());
        for process in &mut connections.0 {
            let mut line = String::new();
            let out = process.stdout.take().expect("a pipe");
            BufReader::new(out).read_line(&mut line).expect("a line");
            assert_eq!(line, "held\n");
        }
        connections
    }
}

impl Drop for IdleConnections {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Checks that the job succeeded despite the invalid clients, and that the log has one line about them.
fn assert_rendezvous(home: &Home, child: Child) -> String {
    let ran = ydl_testkit::finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    for rank in 0..WORLD {
        let line = format!("worker:{rank} | rank {rank} of {WORLD} read value and counts 60 steps");
        assert!(ran.stdout.lines().any(|output| output == line), "{ran:#?}");
    }
    let log = fs::read_to_string(home.job().join("master.log")).expect("a log");
    let closed = log.matches("closed a connection of `worker:1`").count();
    assert_eq!(closed, 1, "{log}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    log
}

#[test]
fn programs_join_the_rendezvous_despite_invalid_clients() {
    let home = Home::new();
    let child = home.start(&job(&home));
    let (ports, master) = wait_for_ports(&home);
    for port in ports {
        for _ in 0..100 {
            connect_without_authorization(port);
        }
    }
    send_unauthorized_requests(&home, master);
    home.write("go", "");
    assert_rendezvous(&home, child);
}

#[test]
fn programs_join_the_rendezvous_despite_ten_thousand_idle_connections() {
    let home = Home::new();
    let child = home.start(&job(&home));
    let (ports, master) = wait_for_ports(&home);
    // An incomplete handshake of the store, and an incomplete TLS handshake.
    let idle = [IdleConnections::open(ports[1], "00cef7"), IdleConnections::open(master, "160301")];
    home.write("go", "");
    assert_rendezvous(&home, child);
    drop(idle);
}
