//! Standard base64 with padding. Usable as a serde module for byte fields.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    decode(text.as_bytes()).ok_or_else(|| D::Error::custom("invalid base64"))
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for index in 0..4 {
            text.push(match index <= group.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * index)) as usize & 63]),
                false => '=',
            });
        }
    }
    text
}

/// Returns `None` for invalid base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = match text {
        [digits @ .., b'=', b'='] => digits,
        [digits @ .., b'='] => digits,
        digits => digits,
    };
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits: u32 = 0;
        for digit in group {
            bits = bits << 6 | u32::from(value(*digit)?);
        }
        // A last group of two digits is one byte, one of three is two.
        bits <<= 6 * (4 - group.len());
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(whole.get(..group.len() - 1)?);
        if group.len() == 1 {
            return None;
        }
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn bytes_of_every_length_survive_a_round_trip() {
        assert_eq!(encode(b"ydl!"), "eWRsIQ==");
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
            assert_eq!(decode(encode(&bytes).as_bytes()).as_ref(), Some(&bytes));
        }
    }

    #[test]
    fn valid_padding_is_accepted_and_invalid_input_rejected() {
        let decode_text =
            |text: &str| decode(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(decode_text(""), Some(String::new()));
        assert_eq!(decode_text("eQ=="), Some("y".to_owned()));
        assert_eq!(decode_text("eWQ="), Some("yd".to_owned()));
        assert_eq!(decode_text("eWRs"), Some("ydl".to_owned()));
        assert_eq!(decode_text("eWRsIQ=="), Some("ydl!".to_owned()));
        for invalid in ["e", "eQ", "eQ=", "e===", "====", "e!==", "eQ==eQ==", "eW\n=", "=eQ="] {
            assert_eq!(decode(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
