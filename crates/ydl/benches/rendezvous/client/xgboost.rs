//! Messages of XGBoost workers from 2.1 on, which look up their neighbour in the ring.

use super::{ClientInfo, receive, receive_bytes, send, text};
use crate::steps::StepSignals;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const MAGIC: [u8; 4] = [0x99, 0xff, 0, 0];

fn greet(info: &ClientInfo, world: i64, rank: u32, command: &str) -> TcpStream {
    let stream = info.connect();
    send(&stream, &MAGIC);
    assert_eq!(receive::<4>(&stream), MAGIC);
    let name = info.rank;
    let hello = format!(r#"{{"rank":{rank},"task_id":"{name:04}","world_size":{world}}}"#);
    send(&stream, &[text(&hello), text(command)].concat());
    stream
}

fn document(stream: &TcpStream) -> String {
    let length = i32::from_le_bytes(receive(stream));
    String::from_utf8(receive_bytes(stream, length as usize)).expect("JSON")
}

pub fn run(info: &ClientInfo, mut signals: StepSignals) {
    // One port for the neighbour and one for errors.
    let port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (ring, errors) = (port(), port());
    let number = |of: &TcpListener| of.local_addr().expect("an address").port();
    signals.next();
    let (port, error) = (number(&ring), number(&errors));
    let start = format!(r#"{{"cmd":1,"error_port":{error},"port":{port}}}"#);
    let stream = greet(info, -1, 0, &start);
    assert!(document(&stream).contains("world_size"));
    let next = document(&stream);
    signals.done();
    signals.next();
    // Ranks form a ring: the own rank is the one before its neighbour's.
    let (_, rest) = next.split_once(r#""rank":"#).expect("a rank");
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    let next: u32 = digits.parse().expect("a rank");
    let rank = (next + info.world - 1) % info.world;
    greet(info, info.world.into(), rank, r#"{"cmd":2}"#);
    signals.done();
}
