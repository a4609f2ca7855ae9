//! What ranks of PyTorch say to meet in a full mesh: each tells its address, and waits for and reads everybody's.

use super::{Own, hear, hear_bytes, say};
use crate::{OPERATIONS, starter::Turns};
use std::net::TcpStream;

const VALIDATE: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];
/// As long as what gloo tells of a rank.
const ADDRESS: [u8; 104] = [7; 104];

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

fn key(rank: u32) -> Vec<u8> {
    text(format!("default_pg/0//cpu//0/{rank}").as_bytes())
}

fn wait_and_read(stream: &TcpStream, rank: u32) {
    let key = key(rank);
    say(stream, &[&[6][..], &1_u64.to_le_bytes(), &key].concat());
    assert_eq!(hear::<1>(stream), [0], "it waited for long enough");
    say(stream, &[&[3][..], &key].concat());
    let length = u64::from_le_bytes(hear(stream));
    assert_eq!(hear_bytes(stream, length as usize), ADDRESS);
}

pub fn run(own: &Own, mut turns: Turns) {
    turns.next();
    let stream = own.connect();
    say(&stream, &VALIDATE);
    say(&stream, &[&[1][..], &key(own.rank), &text(&ADDRESS)].concat());
    for rank in (0..own.world).filter(|rank| *rank != own.rank) {
        wait_and_read(&stream, rank);
    }
    turns.done();
    turns.next();
    if own.rank == 0 {
        let add = [&[4][..], &text(b"counter"), &1_i64.to_le_bytes()].concat();
        for count in 1..=i64::from(OPERATIONS) {
            say(&stream, &add);
            assert_eq!(i64::from_le_bytes(hear(&stream)), count);
        }
    }
    turns.done();
    turns.next();
    turns.done();
}
