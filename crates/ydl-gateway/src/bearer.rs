//! Bearer tokens that clients must present.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConstantTimeEq};

const FILE_BYTES_MAX: u64 = 64 << 10;
const TOKENS_MAX: usize = 64;
/// Shorter tokens could be guessed.
const LENGTH_MIN: usize = 16;

/// Tokens of which each request needs one. Only their hashes are kept, which have equal lengths for the comparison.
#[derive(Clone)]
pub struct Bearer(Vec<[u8; 32]>);

impl Bearer {
    /// Reads one token per line. Several are valid at once, so that clients can change over to a new one.
    pub fn read(path: &Path) -> Result<Bearer, BearerError> {
        let failed = |source| BearerError::Io { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Bearer::of(&text).map_err(|why| BearerError::Content { path: path.to_owned(), why })
    }

    fn of(text: &str) -> Result<Bearer, &'static str> {
        let lines = text.lines().map(str::trim);
        let tokens: Vec<_> =
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        if tokens.is_empty() {
            return Err("it has no token");
        }
        if tokens.len() > TOKENS_MAX {
            return Err("it has more than 64 tokens");
        }
        if tokens.iter().any(|token| token.len() < LENGTH_MIN) {
            return Err("a token has fewer than 16 characters");
        }
        if tokens.iter().any(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err("a token has characters other than visible ASCII");
        }
        Ok(Bearer(tokens.iter().map(|token| hash(token.as_bytes())).collect()))
    }

    /// Returns true if the request has one of the tokens. Takes the same time for each wrong token.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked(7) else { return false };
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return false;
        }
        let given = hash(token.trim_ascii());
        let matches = self.0.iter().map(|token| token.ct_eq(&given));
        matches.fold(Choice::from(0), |all, one| all | one).into()
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({} tokens)", self.0.len())
    }
}

/// Error of reading a token file.
#[derive(Debug)]
pub enum BearerError {
    Io { path: PathBuf, source: io::Error },
    Content { path: PathBuf, why: &'static str },
}

impl fmt::Display for BearerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => {
                write!(f, "cannot read the token file `{}`: {source}", path.display())
            }
            Self::Content { path, why } => {
                write!(f, "cannot use the token file `{}`: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for BearerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_tokens_are_admitted() {
        let bearer = Bearer::of("# old\n0123456789abcdef\n\n fedcba9876543210 \n").unwrap();
        let admits = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer.admits(&headers)
        };
        assert!(admits(&["Bearer 0123456789abcdef"]));
        assert!(admits(&["bearer fedcba9876543210"]));
        for wrong in [
            "Bearer 0123456789abcdeg",
            "Bearer ",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer # old",
        ] {
            assert!(!admits(&[wrong]), "{wrong}");
        }
        assert!(!admits(&[]));
        assert!(!admits(&["Bearer 0123456789abcdef", "Bearer x"]));
    }

    #[test]
    fn weak_and_empty_token_files_are_refused() {
        for (text, why) in [
            ("", "it has no token"),
            ("# only a comment", "it has no token"),
            ("short", "a token has fewer than 16 characters"),
            ("0123456789abc def", "a token has characters other than visible ASCII"),
        ] {
            assert_eq!(Bearer::of(text).unwrap_err(), why);
        }
        assert!(Bearer::of(&"0123456789abcdef\n".repeat(65)).is_err());
        let missing = Bearer::read(Path::new("/nonexistent/token")).unwrap_err().to_string();
        assert!(
            missing.starts_with("cannot read the token file `/nonexistent/token`: "),
            "{missing}"
        );
    }
}
