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
    let (script, place) = (script.display(), home.path().display());
    format!(
        "name: meet\nframework: pytorch\nfiles: [{script}]\ntimeouts: {{run: 10m}}\n\
         roles: {{worker: {{instances: {WORLD}, memory: 128 MiB, run: python3 meet.py {place}}}}}\n"
    )
}

/// The ports of the agents, and the master's.
fn doors(home: &Home) -> (Vec<u16>, u16) {
    let door = |rank: usize| {
        home.wait_for("a door", |home| {
            let ports = fs::read_to_string(home.path().join(format!("door.{rank}"))).ok()?;
            let (door, master) = ports.split_once(' ')?;
            Some((door.parse().ok()?, master.parse().ok()?))
        })
    };
    let all: Vec<(u16, u16)> = (0..WORLD).map(door).collect();
    let master = all[0].1;
    (all.into_iter().map(|(door, _)| door).collect(), master)
}

/// Connects as another process of this machine and tries to release all ranks with a valid message.
fn as_a_stranger(port: u16) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
    let limit = Some(Duration::from_secs(60));
    stream.set_read_timeout(limit).expect("a limit");
    let mut said = vec![0];
    said.extend(0x3C85_F7CE_u32.to_le_bytes());
    said.push(1);
    for text in ["go", "theirs"] {
        said.extend((text.len() as u64).to_le_bytes());
        said.extend(text.as_bytes());
    }
    // It may be closed already.
    let _ = stream.write_all(&said);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "a stranger was answered");
}

/// Sends requests with a wrong token, of an earlier or later round, or for an unknown connection to the master's link
/// endpoint, which rejects them.
fn as_an_impostor(home: &Home, master: u16) {
    let containers = fs::read_dir(home.job().join("containers")).expect("containers");
    let one = containers.flatten().next().expect("a container").path();
    let token = |name: &str| one.join(name).display().to_string();
    let (agent, program) = (token("agent.token"), token("program.token"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/local/rendezvous/impostor.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(master.to_string()).args([
        "-,1,1,".to_owned(),
        format!("{program},1,1,"),
        format!("{agent},0,1,"),
        format!("{agent},2,1,"),
        format!("{agent},1,77,"),
        format!("{agent},1,1,ffffffffffffffff"),
    ]);
    let said = python.output().expect("a Python");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said, "401\n403\n410\n410\n409\n400\n");
}

/// Ten thousand connections that begin with that and then say nothing, by ten processes, until it is dropped.
struct Crowd(Vec<Child>);

impl Crowd {
    fn at(port: u16, said: &str) -> Crowd {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/local/rendezvous/crowd.py");
        let part = || {
            let mut python = Command::new("python3");
            python
                .arg(&script)
                .args([&port.to_string(), "1000", said])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            python.spawn().expect("a part of the crowd")
        };
        let mut crowd = Crowd((0..10).map(|_| part()).collect());
        for part in &mut crowd.0 {
            let mut line = String::new();
            let out = part.stdout.take().expect("what it says");
            BufReader::new(out).read_line(&mut line).expect("a line");
            assert_eq!(line, "held\n");
        }
        crowd
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for part in &mut self.0 {
            let _ = part.kill();
            let _ = part.wait();
        }
    }
}

/// Checks that the job succeeded despite the invalid clients, and that the log has one line about them.
fn met(home: &Home, child: Child) -> String {
    let ran = ydl_testkit::finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    for rank in 0..WORLD {
        let line =
            format!("worker:{rank} | rank {rank} of {WORLD} was told ours and counts 60 steps");
        assert!(ran.stdout.lines().any(|said| said == line), "{ran:#?}");
    }
    let log = fs::read_to_string(home.job().join("master.log")).expect("a log");
    let noted = log.matches("closed a connection of `worker:1`").count();
    assert_eq!(noted, 1, "{log}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    log
}

#[test]
fn programs_meet_while_strangers_and_nonsense_go_unnoticed() {
    let home = Home::new();
    let child = home.start(&job(&home));
    let (doors, master) = doors(&home);
    for port in doors {
        for _ in 0..100 {
            as_a_stranger(port);
        }
    }
    as_an_impostor(&home, master);
    home.write("go", "");
    met(&home, child);
}

#[test]
fn programs_meet_in_a_crowd_of_ten_thousand_at_every_port() {
    let home = Home::new();
    let child = home.start(&job(&home));
    let (doors, master) = doors(&home);
    // Half of a greeting to the store, and half of one of TLS's.
    let crowds = [Crowd::at(doors[1], "00cef7"), Crowd::at(master, "160301")];
    home.write("go", "");
    met(&home, child);
    drop(crowds);
}
