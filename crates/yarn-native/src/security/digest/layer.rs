//! Message protection after a handshake with integrity or privacy.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::security::digest::cipher::{Cipher, Decryptor, Encryptor};
use crate::security::error::SecurityError;

/// Sizes of a message's MAC and of its trailer: version and sequence number.
const MAC: usize = 10;
const VERSION: [u8; 2] = [0, 1];
const TRAILER: usize = VERSION.len() + 4;

/// Protects both directions of a connection. A cipher is present only for privacy.
pub(crate) struct DigestLayer {
    outgoing: DirectionState<Encryptor>,
    incoming: DirectionState<Decryptor>,
    plain_max: usize,
}

struct DirectionState<C> {
    signing: Zeroizing<[u8; 16]>,
    /// Sequence number of the next message.
    sequence: u32,
    cipher: Option<C>,
}

/// Direction of a key.
#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

impl DigestLayer {
    /// Creates the client's layer. `session` is MD5(A1), the shared secret.
    pub(super) fn new(session: &[u8; 16], cipher: Option<Cipher>, maxbuf: usize) -> Self {
        // Overhead: MAC, trailer and, as Java counts, the padding of a block.
        let overhead = MAC + TRAILER + if cipher.is_some() { 10 } else { 0 };
        Self::between(session, cipher, Direction::ToServer, maxbuf - overhead)
    }

    /// Creates the layers of both sides of a session.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn both_sides(cipher: Option<&str>) -> (Self, Self) {
        let cipher = cipher.and_then(Cipher::from_name);
        let side = |out| Self::between(&[7; 16], cipher, out, 1024);
        (side(Direction::ToServer), side(Direction::ToClient))
    }

    fn between(
        session: &[u8; 16],
        cipher: Option<Cipher>,
        out: Direction,
        plain_max: usize,
    ) -> Self {
        let back = match out {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        };
        let encryption = |direction| encryption_key(session, direction);
        Self {
            outgoing: DirectionState {
                signing: signing_key(session, out),
                sequence: 0,
                cipher: cipher.map(|cipher| Encryptor::new(cipher, &encryption(out))),
            },
            incoming: DirectionState {
                signing: signing_key(session, back),
                sequence: 0,
                cipher: cipher.map(|cipher| Decryptor::new(cipher, &encryption(back))),
            },
            plain_max,
        }
    }

    pub(crate) fn plain_max(&self) -> usize {
        self.plain_max
    }

    pub(crate) fn wrap(&mut self, plain: &[u8]) -> Vec<u8> {
        let side = &mut self.outgoing;
        let sequence = side.sequence.to_be_bytes();
        side.sequence = side.sequence.wrapping_add(1);
        let mac = compute_mac(&side.signing, sequence, plain);
        let mut message = Vec::with_capacity(plain.len() + MAC + TRAILER + 8);
        message.extend_from_slice(plain);
        match &mut side.cipher {
            Some(encryptor) => encryptor.encrypt(&mut message, &mac),
            None => message.extend_from_slice(&mac),
        }
        message.extend_from_slice(&VERSION);
        message.extend_from_slice(&sequence);
        message
    }

    pub(crate) fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, SecurityError> {
        let side = &mut self.incoming;
        let body = token.len().checked_sub(TRAILER).ok_or_else(|| tampered("message too short"))?;
        let (body, trailer) = token.split_at(body);
        if trailer[..2] != VERSION {
            return Err(tampered("unknown version"));
        }
        let sequence = side.sequence.to_be_bytes();
        if trailer[2..] != sequence {
            return Err(tampered("message out of order"));
        }
        side.sequence = side.sequence.wrapping_add(1);
        let mut message = body.to_vec();
        if let Some(decryptor) = &mut side.cipher {
            decryptor.decrypt(&mut message, MAC).ok_or_else(|| tampered("invalid padding"))?;
        }
        let plain = message.len().checked_sub(MAC).ok_or_else(|| tampered("message too short"))?;
        let mac = message.split_off(plain);
        let expected = compute_mac(&side.signing, sequence, &message);
        if !bool::from(expected.ct_eq(&mac)) {
            return Err(tampered("MAC mismatch"));
        }
        Ok(message)
    }
}

fn tampered(reason: &'static str) -> SecurityError {
    SecurityError::Tampered { reason }
}

fn compute_mac(key: &[u8; 16], sequence: [u8; 4], message: &[u8]) -> [u8; MAC] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(&sequence);
    mac.update(message);
    let whole = mac.finalize().into_bytes();
    std::array::from_fn(|i| whole[i])
}

fn signing_key(session: &[u8; 16], direction: Direction) -> Zeroizing<[u8; 16]> {
    derived(
        session,
        match direction {
            Direction::ToServer => {
                b"Digest session key to client-to-server signing key magic constant"
            }
            Direction::ToClient => {
                b"Digest session key to server-to-client signing key magic constant"
            }
        },
    )
}

fn encryption_key(session: &[u8; 16], direction: Direction) -> Zeroizing<[u8; 16]> {
    derived(
        session,
        match direction {
            Direction::ToServer => b"Digest H(A1) to client-to-server sealing key magic constant",
            Direction::ToClient => b"Digest H(A1) to server-to-client sealing key magic constant",
        },
    )
}

fn derived(session: &[u8; 16], purpose: &[u8]) -> Zeroizing<[u8; 16]> {
    let hash = Md5::new().chain_update(session).chain_update(purpose).finalize();
    Zeroizing::new(hash.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::text::from_hex;

    /// Session secret recorded from a Hadoop server.
    fn session() -> [u8; 16] {
        let bytes = from_hex("db82a65c2f08fffed96f24705cd1e43f");
        bytes.try_into().expect("16 bytes")
    }

    fn check(cipher: Option<Cipher>, to_server: [&str; 2], to_client: [&str; 2]) {
        let mut client = DigestLayer::new(&session(), cipher, 65536);
        let mut server = DigestLayer::between(&session(), cipher, Direction::ToClient, 65536);
        for (i, plain) in ["hello", "hadoop"].into_iter().enumerate() {
            let sent = client.wrap(plain.as_bytes());
            assert_eq!(sent, from_hex(to_server[i]), "{cipher:?} to server {i}");
            assert_eq!(server.unwrap(&sent).as_deref(), Ok(plain.as_bytes()));
            let answered = server.wrap(plain.as_bytes());
            assert_eq!(answered, from_hex(to_client[i]), "{cipher:?} to client {i}");
            assert_eq!(client.unwrap(&answered).as_deref(), Ok(plain.as_bytes()));
        }
    }

    #[test]
    fn derived_keys_match_a_recorded_session() {
        let key = |key: Zeroizing<[u8; 16]>| key.to_vec();
        let session = session();
        let expected = from_hex("4f4238d105e4932bb54841cd2ae32178");
        assert_eq!(key(signing_key(&session, Direction::ToServer)), expected);
        let expected = from_hex("2a10d2aafa4db083a4abc199d22b0c36");
        assert_eq!(key(encryption_key(&session, Direction::ToServer)), expected);
        let expected = from_hex("ac9072dce5e767d8688f01c69f337a8e");
        assert_eq!(key(signing_key(&session, Direction::ToClient)), expected);
        let expected = from_hex("719da526f8bb55cb30dc6ade2efa73c3");
        assert_eq!(key(encryption_key(&session, Direction::ToClient)), expected);
    }

    #[test]
    fn integrity_matches_java() {
        check(
            None,
            [
                "68656c6c6fff18aa1292f3d4fa5937000100000000",
                "6861646f6f70ca8404cf1ab3cfa07878000100000001",
            ],
            [
                "68656c6c6f0d3fb494b9e5a0dd7156000100000000",
                "6861646f6f7065b78cfa0858c56a6651000100000001",
            ],
        );
    }

    #[test]
    fn privacy_with_rc4_matches_java() {
        check(
            Some(Cipher::Rc4),
            [
                "33af8cecbf59eac1c3c7599fb32838000100000000",
                "925bc2c4e394be44d5566c911a8299ca000100000001",
            ],
            [
                "26becf5f61fb8d2e69cce0d9b26dde000100000000",
                "ba1f7b847d690866b6ed4c89dc5c9560000100000001",
            ],
        );
    }

    #[test]
    fn privacy_with_triple_des_matches_java() {
        check(
            Some(Cipher::TripleDes),
            [
                "632955360bf79d1987f8f73a7f56e301000100000000",
                "37cf0ccd75478707163b1500730f324bd97c63c04be237f7000100000001",
            ],
            [
                "89bab2fc05232d2aaceeaf237a0419a7000100000000",
                "5478ca138660075dc374902ac6eb33b80f038dbdd5f7e399000100000001",
            ],
        );
    }

    #[test]
    fn altered_replayed_or_truncated_messages_are_rejected() {
        for cipher in [None, Some(Cipher::Rc4), Some(Cipher::TripleDes)] {
            let fresh = || DigestLayer::new(&session(), cipher, 65536);
            let mut server = DigestLayer::between(&session(), cipher, Direction::ToClient, 65536);
            let valid = server.wrap(b"a message of some length");
            for i in 0..valid.len() {
                let mut bad = valid.clone();
                bad[i] ^= 1;
                assert!(fresh().unwrap(&bad).is_err(), "{cipher:?}, byte {i} changed");
                assert!(fresh().unwrap(&valid[..i]).is_err(), "{cipher:?}, cut at {i}");
            }
            let mut client = fresh();
            assert!(client.unwrap(&valid).is_ok());
            assert!(client.unwrap(&valid).is_err(), "{cipher:?}, replayed");
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected() {
        let mut noise = crate::noise::Noise::new(5);
        for cipher in [None, Some(Cipher::Rc4), Some(Cipher::TripleDes)] {
            for _ in 0..2_000 {
                let mut token = noise.any(64);
                token.extend_from_slice(&[0, 1, 0, 0, 0, 0]);
                assert!(DigestLayer::new(&session(), cipher, 65536).unwrap(&token).is_err());
            }
        }
    }

    #[test]
    fn plaintext_size_stays_within_java_limits() {
        assert_eq!(DigestLayer::new(&session(), None, 65536).plain_max(), 65520);
        assert_eq!(DigestLayer::new(&session(), Some(Cipher::Rc4), 65536).plain_max(), 65510);
    }
}
