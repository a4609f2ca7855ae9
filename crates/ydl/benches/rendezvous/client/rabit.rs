//! Messages of Rabit workers to the tracker. They do not connect to each other, which takes no time of the tracker.

use super::{ClientInfo, receive, receive_bytes, send, text};
use crate::steps::StepSignals;
use std::net::TcpStream;

const MAGIC: i32 = 0xff99;

fn number(stream: &TcpStream) -> i32 {
    i32::from_le_bytes(receive(stream))
}

fn greet(info: &ClientInfo, rank: i32, command: &str) -> TcpStream {
    let stream = info.connect();
    send(&stream, &MAGIC.to_le_bytes());
    assert_eq!(number(&stream), MAGIC);
    let name = text(&info.rank.to_string());
    let numbers = [rank.to_le_bytes(), (-1_i32).to_le_bytes()].concat();
    send(&stream, &[numbers, name, text(command)].concat());
    stream
}

/// Registers at the tracker; returns the assigned rank.
fn register(info: &ClientInfo) -> i32 {
    let stream = greet(info, -1, "start");
    let rank = number(&stream);
    let (_parent, world) = (number(&stream), number(&stream));
    assert_eq!(world as u32, info.world);
    let neighbours = number(&stream);
    receive_bytes(&stream, 4 * neighbours as usize + 8);
    send(&stream, &0_i32.to_le_bytes());
    let connects = number(&stream);
    let _accepts = number(&stream);
    for _ in 0..connects {
        let length = number(&stream);
        receive_bytes(&stream, length as usize + 8);
    }
    let port = 9000 + rank;
    send(&stream, &[0_i32.to_le_bytes(), port.to_le_bytes()].concat());
    rank
}

pub fn run(info: &ClientInfo, mut signals: StepSignals) {
    signals.next();
    let rank = register(info);
    signals.done();
    signals.next();
    drop(greet(info, rank, "shutdown"));
    signals.done();
}
