//! Ciphers of DIGEST-MD5's privacy: RC4, and triple DES for servers with RC4 disabled.

use cbc::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use des::TdesEde2;
use rc4::{KeyInit, Rc4, StreamCipher};

/// Block size of triple DES.
const BLOCK: usize = 8;

/// A supported cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cipher {
    Rc4,
    TripleDes,
}

impl Cipher {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "rc4" => Some(Self::Rc4),
            "3des" => Some(Self::TripleDes),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc4 => "rc4",
            Self::TripleDes => "3des",
        }
    }

    /// Chooses RC4 if offered: it is much faster, and both ciphers are outdated.
    pub(super) fn choose(offered: &[Self]) -> Option<Self> {
        [Self::Rc4, Self::TripleDes].into_iter().find(|cipher| offered.contains(cipher))
    }
}

/// Encryption state, which continues from message to message.
pub(super) enum Encryptor {
    Rc4(Box<Rc4>),
    TripleDes(Box<cbc::Encryptor<TdesEde2>>),
}

/// Decryption state, which continues from message to message.
pub(super) enum Decryptor {
    Rc4(Box<Rc4>),
    TripleDes(Box<cbc::Decryptor<TdesEde2>>),
}

impl Encryptor {
    pub(super) fn new(cipher: Cipher, key: &[u8; 16]) -> Self {
        match cipher {
            Cipher::Rc4 => Self::Rc4(Box::new(rc4(key))),
            Cipher::TripleDes => {
                let (keys, iv) = triple_des_keys(key);
                let state = cbc::Encryptor::new(&Array(keys), &Array(iv));
                Self::TripleDes(Box::new(state))
            }
        }
    }

    /// Pads the message, appends its MAC and encrypts the result in place.
    pub(super) fn encrypt(&mut self, message: &mut Vec<u8>, mac: &[u8]) {
        match self {
            Self::Rc4(state) => {
                message.extend_from_slice(mac);
                state.apply_keystream(message);
            }
            Self::TripleDes(state) => {
                let pad = BLOCK - (message.len() + mac.len()) % BLOCK;
                message.extend(std::iter::repeat_n(pad as u8, pad));
                message.extend_from_slice(mac);
                for block in message.chunks_exact_mut(BLOCK) {
                    let block: &mut [u8; BLOCK] =
                        block.try_into().expect("chunks_exact gives whole blocks");
                    state.encrypt_block(block.into());
                }
            }
        }
    }
}

impl Decryptor {
    pub(super) fn new(cipher: Cipher, key: &[u8; 16]) -> Self {
        match cipher {
            Cipher::Rc4 => Self::Rc4(Box::new(rc4(key))),
            Cipher::TripleDes => {
                let (keys, iv) = triple_des_keys(key);
                let state = cbc::Decryptor::new(&Array(keys), &Array(iv));
                Self::TripleDes(Box::new(state))
            }
        }
    }

    /// Decrypts in place and removes the padding, leaving the message followed by its MAC of `mac`
    /// bytes. Returns `None` for an invalid length or padding.
    pub(super) fn decrypt(&mut self, message: &mut Vec<u8>, mac: usize) -> Option<()> {
        match self {
            Self::Rc4(state) => {
                state.apply_keystream(message);
                (message.len() >= mac).then_some(())
            }
            Self::TripleDes(state) => {
                if !message.len().is_multiple_of(BLOCK) || message.len() <= mac {
                    return None;
                }
                for block in message.chunks_exact_mut(BLOCK) {
                    let block: &mut [u8; BLOCK] =
                        block.try_into().expect("chunks_exact gives whole blocks");
                    state.decrypt_block(block.into());
                }
                let padded = message.len() - mac;
                let pad = usize::from(message[padded - 1]);
                let start = padded.checked_sub(pad)?;
                let valid = (1..=BLOCK).contains(&pad)
                    && message[start..padded].iter().all(|&byte| usize::from(byte) == pad);
                valid.then(|| drop(message.drain(start..padded)))
            }
        }
    }
}

fn rc4(key: &[u8; 16]) -> Rc4 {
    Rc4::new_from_slice(key).expect("RC4 takes any key of 1 to 256 bytes")
}

/// Derives the two DES keys, 7 bytes each spread over 8 with parity bits, and the initialization
/// vector.
fn triple_des_keys(key: &[u8; 16]) -> ([u8; 16], [u8; BLOCK]) {
    let mut keys = [0; 16];
    for (spread, packed) in keys.chunks_exact_mut(8).zip(key.chunks_exact(7)) {
        let bits = packed.iter().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        for (i, byte) in spread.iter_mut().enumerate() {
            let seven = ((bits >> (49 - 7 * i)) & 0x7f) as u8;
            let parity = u8::from(seven.count_ones().is_multiple_of(2));
            *byte = seven << 1 | parity;
        }
    }
    let mut iv = [0; BLOCK];
    iv.copy_from_slice(&key[8..]);
    (keys, iv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::text::from_hex;

    #[test]
    fn triple_des_keys_have_odd_parity() {
        let key = from_hex("2a10d2aafa4db083a4abc199d22b0c36");
        let (keys, iv) = triple_des_keys(&key.try_into().expect("16 bytes"));
        assert_eq!(keys.to_vec(), from_hex("2a083454aed33761 83d32a7919ce4957"));
        assert_eq!(iv.to_vec(), from_hex("a4abc199d22b0c36"));
    }
}
