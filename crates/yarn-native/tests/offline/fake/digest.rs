//! Server side of DIGEST-MD5.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};

use super::wire;

pub const SASL: u32 = 4_294_967_263;
pub const NONCE: &str = "n0nce/of+the=server";

pub fn challenge(qualities: &str) -> String {
    format!(
        "realm=\"default\",nonce=\"{NONCE}\",qop=\"{qualities}\",charset=utf-8,\
         cipher=\"3des,rc4,des,rc4-56,rc4-40\",algorithm=md5-sess"
    )
}

/// An offered authentication method.
pub fn offer(method: &str, mechanism: &str, challenge: Option<&str>) -> Vec<u8> {
    let mut auth = [wire::bytes(1, method), wire::bytes(2, mechanism)].concat();
    if method == "TOKEN" {
        auth.extend([wire::bytes(3, ""), wire::bytes(4, "default")].concat());
    }
    if let Some(challenge) = challenge {
        auth.extend(wire::bytes(5, challenge));
    }
    wire::bytes(4, auth)
}

/// A framed SASL message.
pub fn message(state: u64, rest: &[u8]) -> Vec<u8> {
    wire::success(SASL, &[wire::number(2, state), rest.to_vec()].concat())
}

/// Server side of a session after the client has answered the challenge.
pub struct Session {
    secret: [u8; 16],
    pub quality: String,
    pub rspauth: String,
    sent: u32,
    received: u32,
    encryptor: Rc4,
    decryptor: Rc4,
}

impl Session {
    /// Returns `None` if the client's answer is wrong.
    pub fn new(answer: &str, identifier: &[u8], password: &[u8]) -> Option<Self> {
        let directive = |name: &str| {
            let start = answer.find(&format!("{name}="))? + name.len() + 1;
            let rest = &answer[start..];
            Some(match rest.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next()?.to_owned(),
                None => rest.split(',').next()?.to_owned(),
            })
        };
        let (user, realm, cnonce) =
            (directive("username")?, directive("realm")?, directive("cnonce")?);
        let (quality, uri) = (directive("qop")?, directive("digest-uri")?);
        if user != base64(identifier) || realm != "default" || uri != "/default" {
            return None;
        }
        let credentials_hash = Md5::digest(format!("{user}:{realm}:{}", base64(password)));
        let nonces = format!(":{NONCE}:{cnonce}");
        let secret: [u8; 16] =
            Md5::digest([&credentials_hash[..], nonces.as_bytes()].concat()).into();
        let zeros = if quality == "auth" { String::new() } else { format!(":{:032}", 0) };
        let response = |role: &str| {
            let uri_hash = hex(&Md5::digest(format!("{role}:{uri}{zeros}")));
            let secret = hex(&secret);
            hex(&Md5::digest(format!("{secret}:{NONCE}:00000001:{cnonce}:{quality}:{uri_hash}")))
        };
        if directive("response")? != response("AUTHENTICATE") {
            return None;
        }
        let key = |direction: &str| -> [u8; 16] {
            let text = format!("Digest H(A1) to {direction} sealing key magic constant");
            Md5::digest([&secret[..], text.as_bytes()].concat()).into()
        };
        Some(Self {
            encryptor: Rc4::new_from_slice(&key("server-to-client")).ok()?,
            decryptor: Rc4::new_from_slice(&key("client-to-server")).ok()?,
            rspauth: format!("rspauth={}", response("")),
            secret,
            quality,
            sent: 0,
            received: 0,
        })
    }

    fn mac(&self, direction: &str, sequence: u32, message: &[u8]) -> Vec<u8> {
        let text = format!("Digest session key to {direction} signing key magic constant");
        let key = Md5::digest([&self.secret[..], text.as_bytes()].concat());
        let mut mac = Hmac::<Md5>::new_from_slice(&key).expect("any key");
        mac.update(&sequence.to_be_bytes());
        mac.update(message);
        mac.finalize().into_bytes()[..10].to_vec()
    }

    pub fn wrap(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut token = [plain, &self.mac("server-to-client", self.sent, plain)].concat();
        if self.quality == "auth-conf" {
            self.encryptor.apply_keystream(&mut token);
        }
        token.extend([0, 1]);
        token.extend(self.sent.to_be_bytes());
        self.sent += 1;
        token
    }

    pub fn unwrap(&mut self, token: &[u8]) -> Vec<u8> {
        let (body, trailer) = token.split_at(token.len() - 6);
        assert_eq!(trailer[2..], self.received.to_be_bytes(), "messages arrive in order");
        let mut body = body.to_vec();
        if self.quality == "auth-conf" {
            self.decryptor.apply_keystream(&mut body);
        }
        let mac = body.split_off(body.len() - 10);
        assert_eq!(mac, self.mac("client-to-server", self.received, &body));
        self.received += 1;
        body
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { letter as char } else { '=' });
        }
    }
    text
}
