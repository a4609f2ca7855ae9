//! Base64 and hexadecimal encoding for DIGEST-MD5.

use zeroize::Zeroizing;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes Base64 with the standard alphabet, padded, on one line. The text is erased when dropped,
/// since passwords are encoded with it.
pub(crate) fn base64(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len().div_ceil(3) * 4));
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            let sextet = (group >> (18 - 6 * position)) & 63;
            let letter = if position <= chunk.len() { BASE64[sextet as usize] } else { b'=' };
            text.push(char::from(letter));
        }
    }
    text
}

/// Encodes lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> Zeroizing<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Decodes hexadecimal test vectors, ignoring blanks.
#[cfg(test)]
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a vector is hexadecimal")).expect("a digit"))
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded_and_hexadecimal_is_lower_case() {
        let encoded: Vec<_> = ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())).into();
        let plain: Vec<&str> = encoded.iter().map(|t| t.as_str()).collect();
        assert_eq!(plain, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
        assert_eq!(base64(&[0xfb, 0xff]).as_str(), "+/8=");
        assert_eq!(hex(&[0xAB, 0x01]).as_str(), "ab01");
    }
}
