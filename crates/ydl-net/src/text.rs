//! Bytes written as text: hex for secrets and pins, base64 for values, percent signs for addresses.

use std::fmt::Write as _;

/// `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(HEX_DIGITS[usize::from(byte >> 4)] as char);
        text.push(HEX_DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The `N` bytes written in `text`, or nothing if it is not exactly that many in lower-case hex.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

fn hex_digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

const BASE64_DIGITS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` in padded base64 with the standard alphabet.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let three = [group[0], *group.get(1).unwrap_or(&0), *group.get(2).unwrap_or(&0)];
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            if place <= group.len() {
                let digit = bits >> (18 - 6 * place) & 63;
                text.push(BASE64_DIGITS[digit as usize] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes written in padded base64, or nothing if `text` is not exactly what [`base64`] writes.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = text.len() / 4;
    for (number, group) in text.chunks_exact(4).enumerate() {
        let padding = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        if padding > 0 && number + 1 != last {
            return None;
        }
        let mut bits = 0;
        for &letter in &group[..4 - padding] {
            bits = bits << 6 | base64_digit(letter)?;
        }
        bits <<= 6 * padding;
        let kept = 3 - padding;
        let three = bits.to_be_bytes();
        // Bits that no byte carries must be zero, so that each value has one spelling.
        if three[1 + kept..].iter().any(|&rest| rest != 0) {
            return None;
        }
        bytes.extend_from_slice(&three[1..1 + kept]);
    }
    Some(bytes)
}

fn base64_digit(letter: u8) -> Option<u32> {
    let digit = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(digit))
}

/// `text` as one segment of a path or one value of a query: everything but letters, digits and
/// `-._~` becomes a percent sign and two hex digits.
pub fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}"); // Writing to a string cannot fail.
        }
    }
    out
}

/// What a plus sign means where percent signs are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    /// Itself, as in a path.
    Plus,
    /// A space, as forms and Python's `urlencode` write it in a query.
    Space,
}

/// `text` with its percent signs decoded, or nothing if one is broken or the result is not UTF-8.
pub fn from_percent(text: &str, plus: Plus) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let high = hex_digit(rest.next()?.to_ascii_lowercase())?;
                let low = hex_digit(rest.next()?.to_ascii_lowercase())?;
                bytes.push(high << 4 | low);
            }
            b'+' if plus == Plus::Space => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_returns_what_went_in_and_takes_nothing_else() {
        let bytes: [u8; 4] = [0, 0x7f, 0x80, 0xff];
        assert_eq!(hex(&bytes), "007f80ff");
        assert_eq!(from_hex::<4>("007f80ff"), Some(bytes));
        for bad in ["", "007f80f", "007f80fff", "007f80fg", "007F80FF", "00 f80ff", "é07f80f"] {
            assert_eq!(from_hex::<4>(bad), None, "{bad}");
        }
    }

    #[test]
    fn base64_returns_what_went_in_for_every_length() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foo"), "Zm9v");
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
            assert_eq!(from_base64(&base64(&bytes)).as_deref(), Some(&bytes[..]));
        }
    }

    #[test]
    fn base64_has_one_spelling() {
        for bad in ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "=Zg=", "====", "Zm9v\n", "Zm-_"]
        {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }

    #[test]
    fn percent_returns_what_went_in() {
        let key = "worker/0 é+%\u{1f600}~";
        assert_eq!(from_percent(&percent(key), Plus::Space).as_deref(), Some(key));
        assert_eq!(from_percent(&percent(key), Plus::Plus).as_deref(), Some(key));
        assert_eq!(from_percent("a+b", Plus::Plus).as_deref(), Some("a+b"));
        assert_eq!(from_percent("a+b", Plus::Space).as_deref(), Some("a b"));
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(from_percent(bad, Plus::Plus), None, "{bad}");
        }
    }
}
