//! What workers of Rabit say to be linked up. Their connections to each other are not made: they cost no tracker anything.

use super::{Own, hear, hear_bytes, say, text};
use crate::starter::Turns;
use std::net::TcpStream;

const MAGIC: i32 = 0xff99;

fn number(stream: &TcpStream) -> i32 {
    i32::from_le_bytes(hear(stream))
}

fn greet(own: &Own, rank: i32, command: &str) -> TcpStream {
    let stream = own.connect();
    say(&stream, &MAGIC.to_le_bytes());
    assert_eq!(number(&stream), MAGIC);
    let name = text(&own.rank.to_string());
    let numbers = [rank.to_le_bytes(), (-1_i32).to_le_bytes()].concat();
    say(&stream, &[numbers, name, text(command)].concat());
    stream
}

/// The rank it was given.
fn link_up(own: &Own) -> i32 {
    let stream = greet(own, -1, "start");
    let rank = number(&stream);
    let (_parent, world) = (number(&stream), number(&stream));
    assert_eq!(world as u32, own.world);
    let neighbours = number(&stream);
    hear_bytes(&stream, 4 * neighbours as usize + 8);
    say(&stream, &0_i32.to_le_bytes());
    let connects = number(&stream);
    let _accepts = number(&stream);
    for _ in 0..connects {
        let length = number(&stream);
        hear_bytes(&stream, length as usize + 8);
    }
    let port = 9000 + rank;
    say(&stream, &[0_i32.to_le_bytes(), port.to_le_bytes()].concat());
    rank
}

pub fn run(own: &Own, mut turns: Turns) {
    turns.next();
    let rank = link_up(own);
    turns.done();
    turns.next();
    drop(greet(own, rank, "shutdown"));
    turns.done();
}
