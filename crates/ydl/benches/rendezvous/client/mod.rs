//! One client, in a separate process.

mod c10d;
mod pslite;
mod rabit;
mod xgboost;

use super::steps::StepSignals;
use std::{
    env,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

/// Protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    C10d,
    Rabit,
    Xgboost,
    Pslite,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::C10d, Kind::Rabit, Kind::Xgboost, Kind::Pslite];

    pub fn name(self) -> &'static str {
        match self {
            Kind::C10d => "c10d",
            Kind::Rabit => "rabit",
            Kind::Xgboost => "xgboost",
            Kind::Pslite => "ps-lite",
        }
    }

    pub fn framework_server(self) -> &'static str {
        match self {
            Kind::C10d => "torch's store",
            Kind::Rabit => "dmlc's tracker",
            Kind::Xgboost => "XGBoost's tracker",
            Kind::Pslite => "MXNet's scheduler",
        }
    }
}

/// Identity of a client and port of its server.
pub struct ClientInfo {
    pub rank: u32,
    pub world: u32,
    pub role: String,
    port: u16,
}

impl ClientInfo {
    fn read() -> ClientInfo {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        let names = ["PORT_OF_SERVER", "MASTER_PORT", "DMLC_TRACKER_PORT", "DMLC_PS_ROOT_PORT"];
        let port = names.into_iter().find_map(number).expect("a port");
        ClientInfo {
            rank: number("YDL_RANK").expect("a rank"),
            world: number("YDL_WORLD_SIZE").expect("a world"),
            role: env::var("YDL_ROLE").unwrap_or_default(),
            port: u16::try_from(port).expect("a port"),
        }
    }

    /// Connects to the server; retries while it is starting.
    pub fn connect(&self) -> TcpStream {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                Ok(stream) => {
                    stream.set_nodelay(true).expect("a stream");
                    return stream;
                }
                Err(error) => assert!(Instant::now() < end, "no server: {error}"),
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

pub fn run(kind: &str, coordinator: &str) {
    let info = ClientInfo::read();
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
    let signals = StepSignals::connect(coordinator);
    match kind.expect("a kind of client") {
        Kind::C10d => c10d::run(&info, signals),
        Kind::Rabit => rabit::run(&info, signals),
        Kind::Xgboost => xgboost::run(&info, signals),
        Kind::Pslite => pslite::run(&info, signals),
    }
}

fn send(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("the server");
}

fn receive<const LENGTH: usize>(mut stream: &TcpStream) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes).expect("a response");
    bytes
}

fn receive_bytes(mut stream: &TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("a response");
    bytes
}

/// Encodes text for XGBoost's trackers: after its length.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i32).to_le_bytes()[..], text.as_bytes()].concat()
}
