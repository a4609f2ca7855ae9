//! Parser for the server's challenge: `realm="default",nonce="…",qop="auth,auth-int",…`.

use crate::security::digest::cipher::Cipher;
use crate::security::error::SecurityError;
use crate::security::quality::Quality;

/// Maximum length of a challenge; the RFC allows 2048 bytes.
const CHALLENGE_BYTES_MAX: usize = 8192;
/// Maximum message size of a server that announces none.
const MAXBUF_DEFAULT: usize = 65536;
/// Minimum message size; with less a server could accept no message.
const MAXBUF_MIN: usize = 64;

/// A validated challenge.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) realm: String,
    pub(super) nonce: String,
    pub(super) qualities: Vec<Quality>,
    pub(super) ciphers: Vec<Cipher>,
    pub(super) maxbuf: usize,
}

impl Challenge {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, SecurityError> {
        if bytes.len() > CHALLENGE_BYTES_MAX {
            return Err(invalid("too long"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
        let (mut realm, mut nonce, mut maxbuf, mut md5_sess) = (None, None, None, false);
        let (mut qualities, mut ciphers) = (None, None);
        for (name, value) in directives(text)? {
            match name {
                // Several realms would require a choice by the user; Hadoop sends one.
                "realm" => set_once(&mut realm, echoable(value)?)?,
                "nonce" => set_once(&mut nonce, echoable(value)?)?,
                "maxbuf" => {
                    let size = value.parse().ok().filter(|&n: &usize| n >= MAXBUF_MIN);
                    set_once(&mut maxbuf, size.ok_or_else(|| invalid("invalid `maxbuf`"))?)?;
                }
                "qop" => set_once(&mut qualities, parse_list(value, Quality::from_digest_name))?,
                "cipher" => set_once(&mut ciphers, parse_list(value, Cipher::from_name))?,
                "algorithm" => md5_sess = value == "md5-sess",
                // `charset`, `stale`, and unknown directives of later servers.
                _ => {}
            }
        }
        if !md5_sess {
            return Err(invalid("algorithm is not `md5-sess`"));
        }
        Ok(Self {
            realm: realm.unwrap_or_default(),
            nonce: nonce.filter(|nonce| !nonce.is_empty()).ok_or_else(|| invalid("no nonce"))?,
            qualities: qualities.unwrap_or_else(|| vec![Quality::Authentication]),
            ciphers: ciphers.unwrap_or_default(),
            maxbuf: maxbuf.unwrap_or(MAXBUF_DEFAULT),
        })
    }
}

fn invalid(reason: &str) -> SecurityError {
    SecurityError::protocol(format!("invalid DIGEST-MD5 challenge: {reason}"))
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), SecurityError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(invalid("duplicate directive")),
    }
}

/// Validates a value that is sent back in quotes.
fn echoable(value: &str) -> Result<String, SecurityError> {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if value.bytes().all(plain) {
        Ok(value.to_owned())
    } else {
        Err(invalid("invalid characters in realm or nonce"))
    }
}

/// Parses the known words of a comma-separated list and ignores others.
fn parse_list<T>(value: &str, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
    value.split(',').filter_map(|word| parse(word.trim())).collect()
}

/// Splits a challenge into names and values. Quotes are removed; quoted commas do not separate.
pub(super) fn directives(text: &str) -> Result<Vec<(&str, &str)>, SecurityError> {
    let mut found = Vec::new();
    let mut rest = text.trim_matches(is_separator);
    while !rest.is_empty() {
        let (name, after) =
            rest.split_once('=').ok_or_else(|| invalid("directive with no value"))?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or_else(|| invalid("unterminated quote"))?,
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        if !(after.is_empty() || after.starts_with(is_separator)) {
            return Err(invalid("unexpected text after a closing quote"));
        }
        found.push((name.trim(), value.trim()));
        rest = after.trim_start_matches(is_separator);
    }
    Ok(found)
}

fn is_separator(letter: char) -> bool {
    letter == ',' || letter.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HADOOP: &str = "realm=\"default\",nonce=\"MMaXW+iudIpz0ORWwKeauBMzgHgGlOL7NAWr+nOr\",\
        qop=\"auth,auth-int,auth-conf\",charset=utf-8,cipher=\"3des,rc4,des,rc4-56,rc4-40\",\
        algorithm=md5-sess";

    #[test]
    fn hadoop_challenge_is_parsed() {
        let challenge = Challenge::parse(HADOOP.as_bytes()).expect("a real challenge");
        assert_eq!(challenge.realm, "default");
        assert_eq!(challenge.nonce, "MMaXW+iudIpz0ORWwKeauBMzgHgGlOL7NAWr+nOr");
        assert_eq!(challenge.qualities.len(), 3);
        assert_eq!(challenge.ciphers, [Cipher::TripleDes, Cipher::Rc4]);
        assert_eq!(challenge.maxbuf, 65536);
    }

    #[test]
    fn invalid_challenges_are_rejected() {
        for (bad, why) in [
            ("nonce=\"a\"", "algorithm"),
            ("nonce=\"a\",algorithm=md5", "algorithm"),
            ("algorithm=md5-sess", "no nonce"),
            ("nonce=\"\",algorithm=md5-sess", "no nonce"),
            ("nonce=\"a,algorithm=md5-sess", "unterminated quote"),
            ("nonce=\"a\"b,algorithm=md5-sess", "closing quote"),
            ("nonce=a,nonce=b,algorithm=md5-sess", "duplicate directive"),
            ("realm=\"a\",realm=\"b\",nonce=c,algorithm=md5-sess", "duplicate directive"),
            ("realm=\"d\\\\,x\",nonce=c,algorithm=md5-sess", "invalid characters"),
            ("realm=\"d\u{e9}\",nonce=c,algorithm=md5-sess", "invalid characters"),
            ("nonce=a,maxbuf=-1,algorithm=md5-sess", "maxbuf"),
            ("nonce=a,maxbuf=3,algorithm=md5-sess", "maxbuf"),
            ("hello", "no value"),
            (&"a=b,".repeat(4000), "too long"),
        ] {
            let error = Challenge::parse(bad.as_bytes()).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn parser_accepts_arbitrary_bytes() {
        let mut noise = crate::noise::Noise::new(11);
        for _ in 0..20_000 {
            let _ = Challenge::parse(&noise.mutated(HADOOP.as_bytes()));
            let _ = Challenge::parse(&noise.any(80));
        }
    }

    #[test]
    fn challenge_without_qop_offers_authentication() {
        let challenge = Challenge::parse(b"nonce=a , algorithm=md5-sess").expect("minimal");
        assert_eq!(challenge.qualities, [Quality::Authentication]);
        assert_eq!(challenge.realm, "");
    }
}
