//! Client side of DIGEST-MD5: answers the challenge and verifies the server's response.

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::security::digest::challenge::{self, Challenge};
use crate::security::digest::cipher::Cipher;
use crate::security::digest::layer::DigestLayer;
use crate::security::error::SecurityError;
use crate::security::quality::Quality;
use crate::security::text::{base64, hex};
use crate::token::Token;

/// Maximum message size announced by the client. Servers are not bound by it.
const MAXBUF: usize = 65536;
/// Nonce count; each nonce is used once.
const NONCE_COUNT: &str = "00000001";
/// Size of the client's nonce in random bytes.
const CNONCE_BYTES: usize = 24;

/// Client that has answered the challenge and expects the server's response.
pub(crate) struct DigestClient {
    session: Zeroizing<[u8; 16]>,
    expected_rspauth: Zeroizing<String>,
    quality: Quality,
    cipher: Option<Cipher>,
    maxbuf: usize,
}

impl DigestClient {
    /// Answers a challenge with a token. `uri` names the server, `/default` in Hadoop.
    pub(crate) fn answer(
        challenge: &[u8],
        token: &Token,
        uri: &str,
        wanted: &[Quality],
    ) -> Result<(Self, Vec<u8>), SecurityError> {
        let mut random = [0; CNONCE_BYTES];
        getrandom::fill(&mut random).map_err(|_| SecurityError::NoRandomness)?;
        Self::answer_with(challenge, token, uri, wanted, &base64(&random))
    }

    fn answer_with(
        challenge: &[u8],
        token: &Token,
        uri: &str,
        wanted: &[Quality],
        cnonce: &str,
    ) -> Result<(Self, Vec<u8>), SecurityError> {
        let Challenge { realm, nonce, qualities, ciphers, maxbuf } = Challenge::parse(challenge)?;
        // Privacy requires a common cipher.
        let usable: Vec<Quality> = qualities
            .into_iter()
            .filter(|&q| q != Quality::Privacy || Cipher::choose(&ciphers).is_some())
            .collect();
        let quality = Quality::choose(wanted, &usable)
            .ok_or_else(|| SecurityError::no_common_quality(&usable, wanted))?;
        let cipher = Cipher::choose(&ciphers).filter(|_| quality == Quality::Privacy);

        let user = base64(&token.identifier);
        let password = base64(token.password.expose());
        let session = session_secret(&user, &realm, &password, &nonce, cnonce);
        let respond = |role: &str| compute_response(&session, &nonce, cnonce, quality, role, uri);
        let mut reply = format!(
            "charset=utf-8,username=\"{}\",realm=\"{realm}\",nonce=\"{nonce}\",nc={NONCE_COUNT},\
             cnonce=\"{cnonce}\",digest-uri=\"{uri}\",maxbuf={MAXBUF},response={},qop={}",
            *user,
            *respond("AUTHENTICATE"),
            quality.digest_name(),
        );
        if let Some(cipher) = cipher {
            reply.push_str(&format!(",cipher=\"{}\"", cipher.name()));
        }
        let expected_rspauth = respond("");
        Ok((Self { session, expected_rspauth, quality, cipher, maxbuf }, reply.into_bytes()))
    }

    /// Verifies the server's knowledge of the password and returns the negotiated protection.
    pub(crate) fn finish(self, answer: &[u8]) -> Result<Option<DigestLayer>, SecurityError> {
        let text = std::str::from_utf8(answer).map_err(|_| SecurityError::ServerUnauthenticated)?;
        let directives =
            challenge::directives(text).map_err(|_| SecurityError::ServerUnauthenticated)?;
        let rspauth = directives
            .iter()
            .find_map(|&(name, value)| (name == "rspauth").then_some(value))
            .ok_or(SecurityError::ServerUnauthenticated)?;
        if !bool::from(rspauth.as_bytes().ct_eq(self.expected_rspauth.as_bytes())) {
            return Err(SecurityError::ServerUnauthenticated);
        }
        Ok(match self.quality {
            Quality::Authentication => None,
            Quality::Integrity | Quality::Privacy => {
                // Java limits messages to its own buffer size, too.
                let maxbuf = self.maxbuf.min(MAXBUF);
                Some(DigestLayer::new(&self.session, self.cipher, maxbuf))
            }
        })
    }
}

/// Computes MD5(A1), the secret shared by client and server.
fn session_secret(
    user: &str,
    realm: &str,
    password: &str,
    nonce: &str,
    cnonce: &str,
) -> Zeroizing<[u8; 16]> {
    let credentials_hash = Md5::new()
        .chain_update(user)
        .chain_update(":")
        .chain_update(realm)
        .chain_update(":")
        .chain_update(password)
        .finalize();
    let credentials_hash = Zeroizing::new(<[u8; 16]>::from(credentials_hash));
    let session = Md5::new()
        .chain_update(*credentials_hash)
        .chain_update(format!(":{nonce}:{cnonce}"))
        .finalize();
    Zeroizing::new(session.into())
}

/// Computes the client's response or, with an empty `role`, the server's.
fn compute_response(
    session: &[u8; 16],
    nonce: &str,
    cnonce: &str,
    quality: Quality,
    role: &str,
    uri: &str,
) -> Zeroizing<String> {
    let no_body =
        if quality == Quality::Authentication { "" } else { ":00000000000000000000000000000000" };
    let uri_hash = Md5::digest(format!("{role}:{uri}{no_body}"));
    let whole = Md5::new()
        .chain_update(hex(session).as_bytes())
        .chain_update(format!(":{nonce}:{NONCE_COUNT}:{cnonce}:{}:", quality.digest_name()))
        .chain_update(hex(&uri_hash).as_bytes())
        .finalize();
    hex(&whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::text::from_hex;

    const CNONCE: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn token() -> Token {
        Token {
            identifier: from_hex("0a0d0a0908071080d095ffbc311001102a"),
            password: b"0123456789abcdefghij".to_vec().into(),
            kind: "YARN_AM_RM_TOKEN".into(),
            service: String::new(),
        }
    }

    fn challenge(ciphers: &str) -> String {
        format!(
            "realm=\"default\",nonce=\"MMaXW+iudIpz0ORWwKeauBMzgHgGlOL7NAWr+nOr\",\
             qop=\"auth,auth-int,auth-conf\",charset=utf-8,cipher=\"{ciphers}\",algorithm=md5-sess"
        )
    }

    fn answer(wanted: &[Quality], ciphers: &str) -> Result<(DigestClient, String), SecurityError> {
        let challenge = challenge(ciphers);
        let (client, reply) =
            DigestClient::answer_with(challenge.as_bytes(), &token(), "/default", wanted, CNONCE)?;
        Ok((client, String::from_utf8(reply).expect("a reply is text")))
    }

    fn check(quality: Quality, response: &str, rspauth: &str, cipher: &str) {
        let (client, reply) = answer(&[quality], "3des,rc4,des,rc4-56,rc4-40").expect("an answer");
        assert_eq!(
            reply,
            format!(
                "charset=utf-8,username=\"Cg0KCQgHEIDQlf+8MRABECo=\",realm=\"default\",\
                 nonce=\"MMaXW+iudIpz0ORWwKeauBMzgHgGlOL7NAWr+nOr\",nc=00000001,\
                 cnonce=\"{CNONCE}\",digest-uri=\"/default\",maxbuf=65536,\
                 response={response},qop={}{cipher}",
                quality.digest_name(),
            )
        );
        let layer = client
            .finish(format!("rspauth={rspauth}").as_bytes())
            .expect("an authenticated server");
        assert_eq!(layer.is_some(), quality != Quality::Authentication);
    }

    #[test]
    fn answers_match_java() {
        check(
            Quality::Authentication,
            "a3c84709068d3c115f2b2665be2a2459",
            "27ac4fe45c830055f5e13fc565dd0075",
            "",
        );
        check(
            Quality::Integrity,
            "d06c525d8cc32c94629b89e7d0aaff50",
            "d9087b892dcaf8ca1b389b5bb2860e30",
            "",
        );
        check(
            Quality::Privacy,
            "5e3956eaacd41cbc996346bbacd437bd",
            "a747fde2bf5791b2e9714d7ba3f30429",
            ",cipher=\"rc4\"",
        );
    }

    #[test]
    fn server_without_the_password_is_rejected() {
        for bad in [
            "rspauth=27ac4fe45c830055f5e13fc565dd0076",
            "rspauth=",
            "rspauth",
            "",
            "response=27ac4fe45c830055f5e13fc565dd0075",
            "\u{0}",
        ] {
            let (client, _) = answer(&[Quality::Authentication], "rc4").expect("an answer");
            let outcome = client.finish(bad.as_bytes()).map(|_| ());
            assert_eq!(outcome, Err(SecurityError::ServerUnauthenticated), "{bad}");
        }
    }

    #[test]
    fn triple_des_replaces_rc4_and_privacy_requires_a_cipher() {
        let (_, reply) = answer(&[], "3des,des").expect("an answer");
        assert!(reply.ends_with("qop=auth-conf,cipher=\"3des\""), "{reply}");
        let (_, reply) = answer(&[], "des").expect("an answer");
        assert!(reply.ends_with("qop=auth-int"), "{reply}");
        let refused = answer(&[Quality::Privacy], "des").map(|_| ());
        assert!(matches!(refused, Err(SecurityError::NoCommonQuality { .. })));
    }
}
