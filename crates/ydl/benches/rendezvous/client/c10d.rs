//! Messages of PyTorch ranks that connect in a full mesh: each stores its address, then waits for and reads all others.

use super::{ClientInfo, receive, receive_bytes, send};
use crate::{OPERATIONS, steps::StepSignals};
use std::net::TcpStream;

const VALIDATE: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];
/// As long as gloo's address of a rank.
const ADDRESS: [u8; 104] = [7; 104];

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

fn key(rank: u32) -> Vec<u8> {
    text(format!("default_pg/0//cpu//0/{rank}").as_bytes())
}

fn wait_and_read(stream: &TcpStream, rank: u32) {
    let key = key(rank);
    send(stream, &[&[6][..], &1_u64.to_le_bytes(), &key].concat());
    assert_eq!(receive::<1>(stream), [0], "the key exists");
    send(stream, &[&[3][..], &key].concat());
    let length = u64::from_le_bytes(receive(stream));
    assert_eq!(receive_bytes(stream, length as usize), ADDRESS);
}

pub fn run(info: &ClientInfo, mut signals: StepSignals) {
    signals.next();
    let stream = info.connect();
    send(&stream, &VALIDATE);
    send(&stream, &[&[1][..], &key(info.rank), &text(&ADDRESS)].concat());
    for rank in (0..info.world).filter(|rank| *rank != info.rank) {
        wait_and_read(&stream, rank);
    }
    signals.done();
    signals.next();
    if info.rank == 0 {
        let add = [&[4][..], &text(b"counter"), &1_i64.to_le_bytes()].concat();
        for count in 1..=i64::from(OPERATIONS) {
            send(&stream, &add);
            assert_eq!(i64::from_le_bytes(receive(&stream)), count);
        }
    }
    signals.done();
    signals.next();
    signals.done();
}
