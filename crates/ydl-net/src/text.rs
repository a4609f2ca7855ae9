//! Text encodings of bytes, stricter than the libraries below them: each value has one spelling.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Bytes that are encoded in a path segment or a query value: all but letters, digits and `-._~`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Decodes `N` bytes of lower-case hex. Returns `None` for any other length, digit or case.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    let lower = !text.bytes().any(|letter| letter.is_ascii_uppercase());
    lower.then_some(bytes)
}

/// Encodes bytes in padded base64 with the standard alphabet.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Percent-encodes `text` as one segment of a path or one value of a query.
pub fn percent(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Meaning of a plus sign in percent-encoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    /// Itself, as in a path.
    Plus,
    /// A space, as forms and Python's `urlencode` write it in a query.
    Space,
}

/// Decodes percent-encoded text. Returns `None` for an incomplete escape or bytes that are not UTF-8.
pub(crate) fn from_percent(text: &str, plus: Plus) -> Option<String> {
    // The library passes incomplete escapes through.
    let mut escapes = text.split('%').skip(1);
    let complete = |escape: &str| {
        let digits = escape.as_bytes().get(..2)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(())
    };
    if escapes.any(|escape| complete(escape).is_none()) {
        return None;
    }
    let text = match plus {
        Plus::Plus => text.into(),
        Plus::Space => text.replace('+', " "),
    };
    Some(percent_decode_str(&text).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_hex_accepts_lower_case_of_the_right_length_only() {
        let bytes: [u8; 4] = [0, 0x7f, 0x80, 0xff];
        assert_eq!(from_hex::<4>("007f80ff"), Some(bytes));
        for bad in ["", "007f80f", "007f80fff", "007f80fg", "007F80FF", "00 f80ff", "é07f80f"] {
            assert_eq!(from_hex::<4>(bad), None, "{bad}");
        }
    }

    #[test]
    fn base64_is_padded() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foo"), "Zm9v");
    }

    #[test]
    fn percent_encoding_round_trips() {
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
