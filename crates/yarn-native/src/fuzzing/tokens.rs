//! Credentials files and token identifiers.

use super::split_selector;
use crate::credentials::{Credentials, Format, TokenIdentifier};
use crate::token::Token;

const KINDS: [&str; 7] = [
    "YARN_AM_RM_TOKEN",
    "NMToken",
    "ContainerToken",
    "YARN_CLIENT_TOKEN",
    "RM_DELEGATION_TOKEN",
    "HDFS_DELEGATION_TOKEN",
    "kms-dt",
];

/// Reads credentials in either format. Other bytes become a token identifier, of the kind selected
/// by the first byte.
pub fn credentials(bytes: &[u8]) {
    if bytes.starts_with(b"HDTS") {
        return file(bytes);
    }
    let Some((pick, rest)) = split_selector(bytes) else {
        return;
    };
    decode_identifier(&Token {
        identifier: rest.to_vec(),
        password: Vec::new().into(),
        kind: KINDS[usize::from(pick) % KINDS.len()].into(),
        service: String::new(),
    });
}

fn file(bytes: &[u8]) {
    let read = match Credentials::from_bytes(bytes) {
        Ok(read) => read,
        Err(error) => return drop(error.to_string()),
    };
    for format in [Format::Writable, Format::Protobuf] {
        let written = read.to_bytes(format);
        let again = Credentials::from_bytes(&written).expect("what was written is read");
        assert_eq!(again, read, "{format:?}");
    }
    for (_, token) in read.tokens() {
        decode_identifier(token);
    }
}

fn decode_identifier(token: &Token) {
    match TokenIdentifier::decode(token) {
        Ok(identifier) => drop((identifier.to_string(), identifier.expires_ms())),
        Err(error) => drop(error.to_string()),
    }
}
