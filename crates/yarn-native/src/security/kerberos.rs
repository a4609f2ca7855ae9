//! SASL's GSSAPI mechanism: exchange of GSSAPI tokens, then negotiation of the protection.

use crate::security::error::SecurityError;
use crate::security::quality::Quality;

/// Maximum message size announced by the client.
const SIZE_MAX: [u8; 3] = [0xff; 3];
/// Maximum plaintext per message, even if the server accepts more.
const PLAIN_MAX: usize = 65536;

/// Security context of a GSSAPI library.
pub(crate) trait SecurityContext: Send {
    /// Processes the server's token and returns the next token to send.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Progress, SecurityError>;
    /// Protects a message, with encryption if `encrypted`.
    fn wrap(&mut self, plain: &[u8], encrypted: bool) -> Result<Vec<u8>, SecurityError>;
    /// Unwraps a message. Returns the plaintext and whether it was encrypted.
    fn unwrap(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), SecurityError>;
    /// Returns the maximum plaintext size with a protected form of at most `size` bytes.
    fn plain_max(&mut self, encrypted: bool, size: usize) -> Result<usize, SecurityError>;
}

/// Result of a context step.
pub(crate) struct Progress {
    pub(crate) token: Vec<u8>,
    pub(crate) complete: bool,
}

/// Client side of a Kerberos handshake.
pub(crate) struct KerberosClient {
    context: Box<dyn SecurityContext>,
    wanted: Vec<Quality>,
    state: NegotiationState,
}

/// Expected next message of the server.
enum NegotiationState {
    /// A GSSAPI token.
    Establishing,
    /// The offered qualities of protection.
    Offer,
    /// Success.
    Negotiated { quality: Quality, size: usize },
}

impl KerberosClient {
    /// Creates the client and returns its first token.
    pub(crate) fn start(
        mut context: Box<dyn SecurityContext>,
        wanted: &[Quality],
    ) -> Result<(Self, Vec<u8>), SecurityError> {
        let Progress { token, complete } = context.step(None)?;
        let state = if complete { NegotiationState::Offer } else { NegotiationState::Establishing };
        Ok((Self { context, wanted: wanted.to_vec(), state }, token))
    }

    /// Responds to a challenge.
    pub(crate) fn respond(&mut self, challenge: &[u8]) -> Result<Vec<u8>, SecurityError> {
        match self.state {
            NegotiationState::Establishing => {
                let Progress { token, complete } = self.context.step(Some(challenge))?;
                if complete {
                    self.state = NegotiationState::Offer;
                }
                // An empty token is sent as an empty response.
                Ok(token)
            }
            NegotiationState::Offer => self.negotiate_layer(challenge),
            NegotiationState::Negotiated { .. } => {
                Err(SecurityError::protocol("challenge after the protection was negotiated"))
            }
        }
    }

    fn negotiate_layer(&mut self, challenge: &[u8]) -> Result<Vec<u8>, SecurityError> {
        let (offer, _) = self.context.unwrap(challenge)?;
        let [mask, size @ ..]: [u8; 4] = offer
            .try_into()
            .map_err(|_| SecurityError::protocol("protection offer is not 4 bytes long"))?;
        let offered: Vec<Quality> = Quality::STRONGEST_FIRST
            .into_iter()
            .filter(|quality| mask & quality.gssapi_bit() != 0)
            .collect();
        let quality = Quality::choose(&self.wanted, &offered)
            .ok_or_else(|| SecurityError::no_common_quality(&offered, &self.wanted))?;
        let mut response = [quality.gssapi_bit(), 0, 0, 0];
        if quality != Quality::Authentication {
            response[1..].copy_from_slice(&SIZE_MAX);
        }
        let size = size.iter().fold(0, |size, &byte| size << 8 | usize::from(byte));
        self.state = NegotiationState::Negotiated { quality, size };
        self.context.wrap(&response, false)
    }

    /// Processes the server's success message, which is valid only after the negotiation.
    pub(crate) fn finish(mut self) -> Result<Option<GssapiLayer>, SecurityError> {
        let NegotiationState::Negotiated { quality, size } = self.state else {
            return Err(SecurityError::protocol("success before mutual authentication"));
        };
        let encrypted = match quality {
            Quality::Authentication => return Ok(None),
            Quality::Integrity => false,
            Quality::Privacy => true,
        };
        let plain_max = self.context.plain_max(encrypted, size.min(PLAIN_MAX))?;
        if plain_max == 0 {
            return Err(SecurityError::protocol("maximum message size is too small"));
        }
        Ok(Some(GssapiLayer { context: self.context, encrypted, plain_max }))
    }
}

/// Protection of messages after the handshake.
pub(crate) struct GssapiLayer {
    context: Box<dyn SecurityContext>,
    encrypted: bool,
    plain_max: usize,
}

impl GssapiLayer {
    pub(crate) fn plain_max(&self) -> usize {
        self.plain_max
    }

    pub(crate) fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, SecurityError> {
        self.context.wrap(plain, self.encrypted)
    }

    pub(crate) fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, SecurityError> {
        let (plain, encrypted) = self.context.unwrap(token)?;
        if self.encrypted && !encrypted {
            return Err(SecurityError::Tampered { reason: "message is not encrypted" });
        }
        Ok(plain)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A context that completes after one exchange and marks protection with a first byte: `i` for
    /// integrity, `c` for privacy.
    pub(crate) struct FakeContext;

    impl SecurityContext for FakeContext {
        fn step(&mut self, token: Option<&[u8]>) -> Result<Progress, SecurityError> {
            Ok(match token {
                None => Progress { token: b"first".to_vec(), complete: false },
                Some(_) => Progress { token: Vec::new(), complete: true },
            })
        }
        fn wrap(&mut self, plain: &[u8], encrypted: bool) -> Result<Vec<u8>, SecurityError> {
            Ok([if encrypted { b"c" } else { b"i" }, plain].concat())
        }
        fn unwrap(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), SecurityError> {
            match token.split_first() {
                Some((b'c', plain)) => Ok((plain.to_vec(), true)),
                Some((b'i', plain)) => Ok((plain.to_vec(), false)),
                _ => Err(SecurityError::Tampered { reason: "unknown token" }),
            }
        }
        fn plain_max(&mut self, _: bool, size: usize) -> Result<usize, SecurityError> {
            Ok(size.saturating_sub(1))
        }
    }

    fn established(wanted: &[Quality]) -> KerberosClient {
        let (mut client, first) =
            KerberosClient::start(Box::new(FakeContext), wanted).expect("a start");
        assert_eq!(first, b"first");
        assert_eq!(client.respond(b"mutual").expect("the second token"), b"");
        client
    }

    #[test]
    fn strongest_offered_protection_is_negotiated() {
        let mut client = established(&[]);
        assert_eq!(client.respond(b"i\x07\x01\x00\x00").expect("an answer"), b"i\x04\xff\xff\xff");
        let mut layer = client.finish().expect("success").expect("a layer");
        assert_eq!(layer.plain_max(), 65535);
        assert_eq!(layer.wrap(b"x").expect("wrapped"), b"cx");
        assert_eq!(layer.unwrap(b"cy").expect("unwrapped"), b"y");
        assert!(layer.unwrap(b"iy").is_err(), "privacy was negotiated");
    }

    #[test]
    fn message_size_is_capped_by_the_client() {
        let mut client = established(&[]);
        client.respond(b"i\x07\xff\xff\xff").expect("an answer");
        let layer = client.finish().expect("success").expect("a layer");
        assert_eq!(layer.plain_max(), PLAIN_MAX - 1);
    }

    #[test]
    fn authentication_only_has_no_layer() {
        let mut client = established(&[Quality::Authentication]);
        assert_eq!(client.respond(b"i\x07\x01\x00\x00").expect("an answer"), b"i\x01\x00\x00\x00");
        assert!(client.finish().expect("success").is_none());
    }

    #[test]
    fn success_before_negotiation_is_rejected() {
        let (client, _) = KerberosClient::start(Box::new(FakeContext), &[]).expect("a start");
        assert!(client.finish().is_err());
        assert!(established(&[]).finish().is_err());
    }

    #[test]
    fn invalid_offers_are_rejected() {
        for offer in [&b""[..], b"i", b"i\x04\x01\x00", b"i\x04\x01\x00\x00\x00", b"i\0\0\0\0"] {
            assert!(established(&[]).respond(offer).is_err(), "{offer:?}");
        }
        let refused = established(&[Quality::Privacy]).respond(b"i\x03\x01\x00\x00");
        assert!(matches!(refused, Err(SecurityError::NoCommonQuality { .. })));
        let mut client = established(&[]);
        client.respond(b"i\x04\x00\x00\x00").expect("an answer");
        assert!(client.finish().is_err(), "no message fits");
    }

    #[test]
    fn challenge_after_negotiation_is_rejected() {
        let mut client = established(&[]);
        client.respond(b"i\x07\x01\x00\x00").expect("an answer");
        assert!(client.respond(b"i\x07\x01\x00\x00").is_err());
    }
}
