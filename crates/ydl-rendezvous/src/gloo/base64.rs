//! The usual base64, with its padding.

/// `None` if it is not that.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
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
    use super::decode;

    #[test]
    fn every_padding_is_read_and_nothing_else() {
        let read =
            |text: &str| decode(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(read(""), Some(String::new()));
        assert_eq!(read("eQ=="), Some("y".to_owned()));
        assert_eq!(read("eWQ="), Some("yd".to_owned()));
        assert_eq!(read("eWRs"), Some("ydl".to_owned()));
        assert_eq!(read("eWRsIQ=="), Some("ydl!".to_owned()));
        for wrong in [
            "e", "eQ", "eQ=", "e===", "====", "e!==", "eQ==eQ==", "eW\n=", "=eQ=",
        ] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
