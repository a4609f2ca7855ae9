//! Bytes from a socket below the level of messages: frames, handshakes, protection.

use bytes::Bytes;
use prost::Message;

use super::{parts, split_selector};
use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::proto::common::rpc_sasl_proto::SaslState;
use crate::proto::common::{RpcResponseHeaderProto, RpcSaslProto};
use crate::rpc::Exception;
use crate::rpc::codec::Codec;
use crate::rpc::frame::{Response, SASL_RESPONSE};
use crate::security::digest::{DigestClient, DigestLayer};
use crate::security::error::SecurityError;
use crate::security::identity::{AuthMethod, Kerberos};
use crate::security::kerberos::{KerberosClient, Progress, SecurityContext};
use crate::security::layer::Layer;
use crate::security::sasl::{Handshake, Step};
use crate::security::{Policy, Quality, ServerPrincipal};
use crate::token::Token;

/// Small, so that the limit is reached.
const FRAME_BYTES_MAX: usize = 32 << 10;
const CIPHERS: [Option<&str>; 3] = [None, Some("rc4"), Some("3des")];

/// Decodes a stream of frames in pieces, protected or not.
pub fn frames(bytes: &[u8]) {
    let Some((pick, rest)) = split_selector(bytes) else {
        return;
    };
    let mut codec = Codec::new(FRAME_BYTES_MAX);
    let mut server = None;
    if let Some(cipher) = CIPHERS.get(usize::from(pick & 3)) {
        let (client, peer) = DigestLayer::both_sides(*cipher);
        codec.protect(Layer::Digest(client));
        server = Some(peer);
    }
    let step = 1 + usize::from(pick >> 2) * 16;
    for piece in rest.chunks(step) {
        let sent = match &mut server {
            Some(server) => protected(server.wrap(piece)),
            None => piece.to_vec(),
        };
        codec.read_buffer().extend_from_slice(&sent);
        loop {
            match codec.decode() {
                Ok(Some(frame)) => response(frame),
                Ok(None) => break,
                Err(broken) => return drop(broken.to_string()),
            }
        }
    }
    let _ = codec.is_mid_frame();
}

fn response(frame: Bytes) {
    let Ok(answer) = Response::parse(frame.clone()) else {
        return;
    };
    let exception = Exception::of_header(&answer.header);
    let _ = (exception.kind(), exception.to_string());
    let _ = answer.body();
    if let Ok(again) = Response::parse(frame) {
        let _ = again.sasl();
    }
}

/// Returns a frame as a server sends it under protection.
fn protected(token: Vec<u8>) -> Vec<u8> {
    let header = RpcResponseHeaderProto {
        call_id: SASL_RESPONSE,
        status: RpcStatusProto::Success.into(),
        ..RpcResponseHeaderProto::default()
    };
    let message = RpcSaslProto {
        state: SaslState::Wrap.into(),
        token: Some(token),
        ..RpcSaslProto::default()
    };
    let mut body = header.encode_length_delimited_to_vec();
    body.extend(message.encode_length_delimited_to_vec());
    let length = u32::try_from(body.len()).expect("a piece is short");
    [&length.to_be_bytes()[..], &body].concat()
}

/// Runs a handshake with messages of a server, for each kind of client.
pub fn handshake(bytes: &[u8]) {
    let Some((pick, rest)) = split_selector(bytes) else {
        return;
    };
    let parts = parts(rest);
    match pick % 5 {
        0 => digest(&parts),
        1 => kerberos(&parts),
        2 => run_handshake(AuthMethod::Token(token()), &parts),
        3 => run_handshake(AuthMethod::Simple { user: "alice".into() }, &parts),
        // The library is never found: server messages are checked before it is needed.
        _ => run_handshake(
            AuthMethod::Kerberos(Kerberos {
                library: Some("/nowhere".into()),
                ..Kerberos::default()
            }),
            &parts,
        ),
    }
}

fn token() -> Token {
    Token {
        identifier: b"identifier".to_vec(),
        password: b"password".to_vec().into(),
        kind: "YARN_AM_RM_TOKEN".into(),
        service: String::new(),
    }
}

fn run_handshake(proof: AuthMethod, parts: &[&[u8]]) {
    let policy = Policy {
        server: Some(ServerPrincipal::Pattern("yarn/*.example.com@EXAMPLE.COM".into())),
        ..Policy::default()
    };
    let mut handshake = Handshake::new(proof, policy, "rm.example.com".into());
    for part in parts {
        let Ok(message) = RpcSaslProto::decode(*part) else {
            return;
        };
        let _ = (handshake.may_block(&message), handshake.host_to_look_up(&message));
        match handshake.on_message(message, true) {
            Ok(Step::Send(answer)) => drop(answer.encode_to_vec()),
            Ok(Step::Done(..)) => return,
            Err(error) => return drop(error.to_string()),
        }
    }
}

/// Processes a challenge and the server's proof.
fn digest(parts: &[&[u8]]) {
    let [challenge, rest @ ..] = parts else {
        return;
    };
    for wanted in [&[][..], &[Quality::Privacy], &[Quality::Integrity]] {
        match DigestClient::answer(challenge, &token(), "/default", wanted) {
            Ok((client, answer)) => {
                assert!(String::from_utf8(answer).is_ok());
                let proof = rest.first().copied().unwrap_or_default();
                assert!(client.finish(proof).is_err(), "a guessed proof was accepted");
            }
            Err(error) => drop(error.to_string()),
        }
    }
}

/// Security context that accepts everything.
struct PermissiveContext;

impl SecurityContext for PermissiveContext {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Progress, SecurityError> {
        Ok(Progress {
            token: token.unwrap_or_default().to_vec(),
            complete: token.is_none_or(|token| token.len() % 2 == 0),
        })
    }

    fn wrap(&mut self, plain: &[u8], _: bool) -> Result<Vec<u8>, SecurityError> {
        Ok(plain.to_vec())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), SecurityError> {
        Ok((token.to_vec(), token.first().is_some_and(|first| first % 2 == 0)))
    }

    fn plain_max(&mut self, _: bool, size: usize) -> Result<usize, SecurityError> {
        Ok(size.saturating_sub(60))
    }
}

fn kerberos(parts: &[&[u8]]) {
    let Ok((mut client, _)) = KerberosClient::start(Box::new(PermissiveContext), &[]) else {
        return;
    };
    let mut parts = parts.iter();
    for part in parts.by_ref().take(3) {
        if client.respond(part).is_err() {
            break;
        }
    }
    if let Ok(Some(mut layer)) = client.finish() {
        assert!(layer.plain_max() > 0);
        for part in parts {
            let _ = layer.unwrap(part);
        }
    }
}

/// Unwraps messages under DIGEST-MD5 protection: forged ones, and tampered ones of the server.
pub fn layers(bytes: &[u8]) {
    let Some((pick, rest)) = split_selector(bytes) else {
        return;
    };
    let cipher = CIPHERS[usize::from(pick) % CIPHERS.len()];
    for part in parts(rest) {
        let (mut client, mut server) = DigestLayer::both_sides(cipher);
        // Only messages with the right trailer reach the cipher.
        let forged = [part, &[0, 1, 0, 0, 0, 0]].concat();
        assert!(client.unwrap(part).is_err(), "a forged message was accepted");
        assert!(client.unwrap(&forged).is_err(), "a forged message was accepted");

        let (mut client, _) = DigestLayer::both_sides(cipher);
        let mut sealed = server.wrap(part);
        assert_eq!(client.unwrap(&sealed).as_deref(), Ok(part));
        let (mut client, _) = DigestLayer::both_sides(cipher);
        let tampered = usize::from(pick) % sealed.len();
        sealed[tampered] ^= 1 + pick / 8;
        assert!(client.unwrap(&sealed).is_err(), "byte {tampered} was tampered with");
    }
}
