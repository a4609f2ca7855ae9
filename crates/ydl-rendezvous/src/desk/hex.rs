//! Bytes in a text of any kind.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: String = digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    to.serialize_str(&text)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| {
        let digit = |letter: &u8| char::from(*letter).to_digit(16);
        u8::try_from(digit(high)? << 4 | digit(low)?).ok()
    };
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes
        .filter(|_| rest.is_empty())
        .ok_or_else(|| D::Error::custom("these are not bytes in hexadecimal digits"))
}
