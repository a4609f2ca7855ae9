//! SASL's GSSAPI mechanism: first the library's own tokens, then an agreement about protection.

use crate::security::error::SecurityError;
use crate::security::quality::Quality;

/// The most this client says it takes in one message.
const SIZE_MAX: [u8; 3] = [0xff; 3];
/// What may be put into one message even if a server takes more.
const PLAIN_MAX: usize = 65536;

/// A security context of some GSSAPI library.
pub(crate) trait SecurityContext: Send {
    /// Takes what the server sent, gives what to send.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Progress, SecurityError>;
    /// Protects a message; sealed, nobody else can read it.
    fn wrap(&mut self, plain: &[u8], encrypted: bool) -> Result<Vec<u8>, SecurityError>;
    /// The message, and whether it was sealed.
    fn unwrap(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), SecurityError>;
    /// The longest message whose protected form is at most `size` bytes.
    fn plain_max(&mut self, encrypted: bool, size: usize) -> Result<usize, SecurityError>;
}

/// How far a context has come.
pub(crate) struct Progress {
    pub(crate) token: Vec<u8>,
    pub(crate) complete: bool,
}

/// A client on its way through the handshake.
pub(crate) struct KerberosClient {
    context: Box<dyn SecurityContext>,
    wanted: Vec<Quality>,
    state: NegotiationState,
}

/// What the server's next message must be.
enum NegotiationState {
    /// A token for the library.
    Establishing,
    /// The protections it offers.
    Offer,
    /// Success.
    Negotiated { quality: Quality, size: usize },
}

impl KerberosClient {
    /// The client, and the first token to send.
    pub(crate) fn start(
        mut context: Box<dyn SecurityContext>,
        wanted: &[Quality],
    ) -> Result<(Self, Vec<u8>), SecurityError> {
        let Progress { token, complete } = context.step(None)?;
        let state = if complete { NegotiationState::Offer } else { NegotiationState::Establishing };
        Ok((Self { context, wanted: wanted.to_vec(), state }, token))
    }

    /// Answers a challenge.
    pub(crate) fn respond(&mut self, challenge: &[u8]) -> Result<Vec<u8>, SecurityError> {
        match self.state {
            NegotiationState::Establishing => {
                let Progress { token, complete } = self.context.step(Some(challenge))?;
                if complete {
                    self.state = NegotiationState::Offer;
                }
                // Nothing left to say is said as an empty response.
                Ok(token)
            }
            NegotiationState::Offer => self.negotiate_layer(challenge),
            NegotiationState::Negotiated { .. } => {
                Err(SecurityError::protocol("it challenges after protection was agreed"))
            }
        }
    }

    fn negotiate_layer(&mut self, challenge: &[u8]) -> Result<Vec<u8>, SecurityError> {
        let (offer, _) = self.context.unwrap(challenge)?;
        let [mask, size @ ..]: [u8; 4] = offer
            .try_into()
            .map_err(|_| SecurityError::protocol("its offer of protection has not 4 bytes"))?;
        let offered: Vec<Quality> = Quality::STRONGEST_FIRST
            .into_iter()
            .filter(|quality| mask & quality.gssapi_bit() != 0)
            .collect();
        let quality = Quality::choose(&self.wanted, &offered)
            .ok_or_else(|| SecurityError::no_common_quality(&offered, &self.wanted))?;
        let mut answer = [quality.gssapi_bit(), 0, 0, 0];
        if quality != Quality::Authentication {
            answer[1..].copy_from_slice(&SIZE_MAX);
        }
        let size = size.iter().fold(0, |size, &byte| size << 8 | usize::from(byte));
        self.state = NegotiationState::Negotiated { quality, size };
        self.context.wrap(&answer, false)
    }

    /// Takes the server's success, which counts only once both sides have agreed.
    pub(crate) fn finish(mut self) -> Result<Option<GssapiLayer>, SecurityError> {
        let NegotiationState::Negotiated { quality, size } = self.state else {
            return Err(SecurityError::protocol("it reports success before it has proven itself"));
        };
        let encrypted = match quality {
            Quality::Authentication => return Ok(None),
            Quality::Integrity => false,
            Quality::Privacy => true,
        };
        let plain_max = self.context.plain_max(encrypted, size.min(PLAIN_MAX))?;
        if plain_max == 0 {
            return Err(SecurityError::protocol("it takes no message of any size"));
        }
        Ok(Some(GssapiLayer { context: self.context, encrypted, plain_max }))
    }
}

/// Protects the messages that follow.
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
            return Err(SecurityError::Tampered { what: "it is not encrypted" });
        }
        Ok(plain)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A library whose context is complete after one exchange, and which protects by a first byte:
    /// `i` for integrity, `c` for privacy.
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
                _ => Err(SecurityError::Tampered { what: "it is not ours" }),
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
    fn the_strongest_protection_offered_is_agreed() {
        let mut client = established(&[]);
        assert_eq!(client.respond(b"i\x07\x01\x00\x00").expect("an answer"), b"i\x04\xff\xff\xff");
        let mut layer = client.finish().expect("success").expect("a layer");
        assert_eq!(layer.plain_max(), 65535);
        assert_eq!(layer.wrap(b"x").expect("wrapped"), b"cx");
        assert_eq!(layer.unwrap(b"cy").expect("unwrapped"), b"y");
        assert!(layer.unwrap(b"iy").is_err(), "privacy was agreed");
    }

    #[test]
    fn messages_stay_modest_whatever_the_server_takes() {
        let mut client = established(&[]);
        client.respond(b"i\x07\xff\xff\xff").expect("an answer");
        let layer = client.finish().expect("success").expect("a layer");
        assert_eq!(layer.plain_max(), PLAIN_MAX - 1);
    }

    #[test]
    fn authentication_alone_leaves_no_layer() {
        let mut client = established(&[Quality::Authentication]);
        assert_eq!(client.respond(b"i\x07\x01\x00\x00").expect("an answer"), b"i\x01\x00\x00\x00");
        assert!(client.finish().expect("success").is_none());
    }

    #[test]
    fn success_before_the_agreement_is_refused() {
        let (client, _) = KerberosClient::start(Box::new(FakeContext), &[]).expect("a start");
        assert!(client.finish().is_err());
        assert!(established(&[]).finish().is_err());
    }

    #[test]
    fn a_bad_offer_is_refused() {
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
    fn a_challenge_after_the_agreement_is_refused() {
        let mut client = established(&[]);
        client.respond(b"i\x07\x01\x00\x00").expect("an answer");
        assert!(client.respond(b"i\x07\x01\x00\x00").is_err());
    }
}
