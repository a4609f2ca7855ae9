//! What workers of XGBoost say from 2.1 on to find their neighbour in the ring.

use super::{Own, hear, hear_bytes, say, text};
use crate::starter::Turns;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const MAGIC: [u8; 4] = [0x99, 0xff, 0, 0];

fn greet(own: &Own, world: i64, rank: u32, command: &str) -> TcpStream {
    let stream = own.connect();
    say(&stream, &MAGIC);
    assert_eq!(hear::<4>(&stream), MAGIC);
    let name = own.rank;
    let hello = format!(r#"{{"rank":{rank},"task_id":"{name:04}","world_size":{world}}}"#);
    say(&stream, &[text(&hello), text(command)].concat());
    stream
}

fn document(stream: &TcpStream) -> String {
    let length = i32::from_le_bytes(hear(stream));
    String::from_utf8(hear_bytes(stream, length as usize)).expect("JSON")
}

pub fn run(own: &Own, mut turns: Turns) {
    // It has a port for its neighbour and one for bad news.
    let port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (ring, errors) = (port(), port());
    let number = |of: &TcpListener| of.local_addr().expect("an address").port();
    turns.next();
    let (port, error) = (number(&ring), number(&errors));
    let start = format!(r#"{{"cmd":1,"error_port":{error},"port":{port}}}"#);
    let stream = greet(own, -1, 0, &start);
    assert!(document(&stream).contains("world_size"));
    let next = document(&stream);
    turns.done();
    turns.next();
    // Ranks are in a ring, so that one's own is the one before its neighbour's.
    let (_, rest) = next.split_once(r#""rank":"#).expect("a rank");
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    let next: u32 = digits.parse().expect("a rank");
    let rank = (next + own.world - 1) % own.world;
    greet(own, own.world.into(), rank, r#"{"cmd":2}"#);
    turns.done();
}
