//! When clients begin, and when they are done: each is connected here, takes a byte for a step and gives it back after.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// Whatever takes longer has gone wrong.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Starter(TcpListener);

pub struct Clients(Vec<TcpStream>);

impl Starter {
    pub fn new() -> Starter {
        Starter(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// So many clients, when all are there.
    pub fn gather(&self, count: usize) -> Clients {
        self.0.set_nonblocking(true).expect("a listener");
        let (mut all, end) = (Vec::new(), Instant::now() + PATIENCE);
        while all.len() < count {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).expect("a stream");
                    stream.set_read_timeout(Some(PATIENCE)).expect("a stream");
                    all.push(stream);
                }
                Err(_) => {
                    assert!(Instant::now() < end, "{} of {count} clients", all.len());
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
        }
        Clients(all)
    }
}

impl Clients {
    /// All do the next thing; how long until the last is done.
    pub fn step(&self) -> Duration {
        let began = Instant::now();
        for mut client in &self.0 {
            client.write_all(&[1]).expect("a client");
        }
        for mut client in &self.0 {
            client.read_exact(&mut [0]).expect("a client that is done");
        }
        began.elapsed()
    }
}

/// The other end.
pub struct Turns(TcpStream);

impl Turns {
    pub fn at(address: &str) -> Turns {
        Turns(TcpStream::connect(address).expect("the bench"))
    }

    pub fn next(&mut self) {
        self.0.read_exact(&mut [0]).expect("a turn");
    }

    pub fn done(&mut self) {
        self.0.write_all(&[1]).expect("the bench");
    }
}
