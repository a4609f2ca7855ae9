//! The rendezvous of a job on this machine: who may speak there, and what becomes of nonsense.

mod home;

use home::Home;
use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    time::Duration,
};

const WORLD: usize = 3;

fn job(home: &Home) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rendezvous/meet.py");
    let (script, place) = (script.display(), home.path().display());
    format!(
        "name: meet\nframework: pytorch\nfiles: [{script}]\n\
         roles: {{worker: {{instances: {WORLD}, memory: 128 MiB, run: python3 meet.py {place}}}}}\n"
    )
}

fn doors(home: &Home) -> Vec<u16> {
    let door = |rank: usize| {
        home.wait_for("a door", |home| {
            let port = fs::read_to_string(home.path().join(format!("door.{rank}"))).ok()?;
            port.parse().ok()
        })
    };
    (0..WORLD).map(door).collect()
}

/// What somebody else on this machine could say: that everybody may go, in the words of the protocol.
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
    assert_eq!(answer, [], "a stranger was answered");
}

#[test]
fn programs_meet_while_strangers_and_nonsense_go_unnoticed() {
    let home = Home::new();
    let child = home.start(&job(&home));
    for port in doors(&home) {
        for _ in 0..100 {
            as_a_stranger(port);
        }
    }
    home.write("go", "");
    let ran = home::finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    for rank in 0..WORLD {
        let line =
            format!("worker:{rank} | rank {rank} of {WORLD} was told ours and counts 60 steps");
        assert!(ran.out.lines().any(|said| said == line), "{ran:#?}");
    }
    let log = fs::read_to_string(home.job().join("master.log")).expect("a log");
    let noted = log.matches("a connection of `worker:1` was ended").count();
    assert_eq!(noted, 1, "{log}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
