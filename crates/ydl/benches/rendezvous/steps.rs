//! Synchronizes clients: each is connected to the benchmark, receives a byte to begin a step, and returns it when done.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Coordinator(TcpListener);

pub struct Clients(Vec<TcpStream>);

impl Coordinator {
    pub fn new() -> Coordinator {
        Coordinator(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// Waits for `count` clients.
    pub fn gather(&self, count: usize) -> Clients {
        self.0.set_nonblocking(true).expect("a listener");
        let (mut all, end) = (Vec::new(), Instant::now() + TIMEOUT);
        while all.len() < count {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).expect("a stream");
                    stream.set_read_timeout(Some(TIMEOUT)).expect("a stream");
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
    /// Starts the next step of all clients; returns the time until the last is done.
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

/// A client's end of the connection.
pub struct StepSignals(TcpStream);

impl StepSignals {
    pub fn connect(address: &str) -> StepSignals {
        StepSignals(TcpStream::connect(address).expect("the bench"))
    }

    pub fn next(&mut self) {
        self.0.read_exact(&mut [0]).expect("a signal");
    }

    pub fn done(&mut self) {
        self.0.write_all(&[1]).expect("the bench");
    }
}
