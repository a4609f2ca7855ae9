//! Servers that send arbitrary bytes.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use yarn_native::rpc::{Options, Safety};
use yarn_native::security::Identity;

use super::digest;
use super::server::{Fake, Peer, token};
use super::wire;

/// A small deterministic random generator.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    /// Returns valid bytes with a few of them changed, removed or inserted.
    fn mutated(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, self.below(256) as u8),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    }
}

async fn check_terminates(identity: Identity, sent: Vec<u8>) {
    let fake = Fake::new(move |mut peer: Peer| {
        let sent = sent.clone();
        async move {
            let _ = peer.stream.write_all(&sent).await;
            // Drains the client's data, so that only the sent bytes matter.
            let _ = tokio::io::copy(&mut peer.stream, &mut tokio::io::sink()).await;
        }
    });
    let options = Options { retry_timeout: Duration::ZERO, ..Options::default() };
    let channel = fake.channel(&["rm"], identity, options);
    let deadline = Instant::now() + Duration::from_secs(10);
    // Any outcome is acceptable before the deadline.
    let _ = channel.call_raw("aMethod", b"", deadline, Safety::Once).await;
    assert!(Instant::now() <= deadline + Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn arbitrary_responses_do_not_hang() {
    let mut noise = Noise(0x1234_5678_9abc_def1);
    let valid = [
        wire::success(0, b"hello"),
        wire::exception(0, 1, "org.apache.hadoop.ipc.StandbyException", "no"),
        wire::exception(0, 2, "x.Y", "fatal"),
    ];
    for round in 0..600 {
        let sent = noise.mutated(&valid[round % valid.len()]);
        check_terminates(Identity::simple("alice"), sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn arbitrary_handshakes_do_not_hang() {
    let mut noise = Noise(0x0fed_cba9_8765_4321);
    let challenge = digest::challenge("auth,auth-int,auth-conf");
    let offer = digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge));
    let valid = [
        digest::message(1, &offer),
        [digest::message(1, &offer), digest::message(0, &wire::bytes(3, "rspauth=00"))].concat(),
        digest::message(0, &[]),
    ];
    for round in 0..600 {
        let sent = noise.mutated(&valid[round % valid.len()]);
        check_terminates(Identity::token(token()), sent).await;
    }
}
