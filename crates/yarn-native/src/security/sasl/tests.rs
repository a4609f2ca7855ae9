use prost::Message;

use super::*;
use crate::noise::Noise;
use crate::security::identity::{Kerberos, TicketSource};
use crate::security::kerberos::Progress;
use crate::security::text::from_hex;

const CHALLENGE: &str =
    "realm=\"default\",nonce=\"abc\",qop=\"auth\",charset=utf-8,algorithm=md5-sess";

fn token() -> AuthMethod {
    AuthMethod::Token(Token {
        identifier: vec![1, 2, 3],
        password: vec![4, 5, 6].into(),
        kind: "NMToken".into(),
        service: String::new(),
    })
}

fn kerberos() -> AuthMethod {
    AuthMethod::Kerberos(Kerberos {
        tickets: TicketSource::Default,
        library: Some("/none.so".into()),
    })
}

fn offer(method: &str, mechanism: &str) -> SaslAuth {
    let (protocol, server_id, challenge) = match method {
        "TOKEN" => (Some(""), Some("default"), Some(CHALLENGE.as_bytes().to_vec())),
        "KERBEROS" => (Some("yarn"), Some("rm"), None),
        _ => (None, None, None),
    };
    SaslAuth {
        method: method.into(),
        mechanism: mechanism.into(),
        protocol: protocol.map(Into::into),
        server_id: server_id.map(Into::into),
        challenge,
    }
}

fn offers(list: &[(&str, &str)]) -> RpcSaslProto {
    let auths = list.iter().map(|(method, mechanism)| offer(method, mechanism)).collect();
    RpcSaslProto { auths, ..message(SaslState::Negotiate, None) }
}

fn policy(principal: Option<&str>, fallback: Option<&str>) -> Policy {
    Policy {
        server: principal.map(|name| ServerPrincipal::Exact(name.into())),
        fallback_to_simple: fallback.map(Into::into),
        ..Policy::default()
    }
}

fn first(proof: AuthMethod, policy: Policy, message: RpcSaslProto) -> Result<Step, SecurityError> {
    Handshake::new(proof, policy, "rm".into()).on_message(message, false)
}

fn sent(step: Result<Step, SecurityError>) -> RpcSaslProto {
    match step {
        Ok(Step::Send(message)) => message,
        Ok(Step::Done(..)) => panic!("the handshake is complete"),
        Err(error) => panic!("{error}"),
    }
}

fn failed(step: Result<Step, SecurityError>) -> SecurityError {
    match step {
        Err(error) => error,
        Ok(_) => panic!("it should have failed"),
    }
}

#[test]
fn chosen_offer_is_returned_unchanged_without_its_challenge() {
    let offers = offers(&[("TOKEN", "DIGEST-MD5"), ("SIMPLE", "")]);
    let message = sent(first(token(), Policy::default(), offers));
    assert_eq!(message.state(), SaslState::Initiate);
    let expected = "0a05544f4b454e120a4449474553542d4d44351a00220764656661756c74";
    assert_eq!(message.auths[0].encode_to_vec(), from_hex(expected));
    assert!(message.token.is_some());
}

#[test]
fn simple_fallback_completes_the_handshake_without_a_token() {
    let step = first(kerberos(), policy(None, Some("alice")), offers(&[("SIMPLE", "")]));
    let Ok(Step::Done(Some(message), outcome)) = step else {
        panic!("the handshake should be complete")
    };
    assert_eq!(message.encode_to_vec(), from_hex("1002220a0a0653494d504c451200"));
    assert_eq!(outcome.method, NegotiatedAuth::Simple { user: "alice".into() });
    assert!(outcome.layer.is_none());
}

#[test]
fn secure_client_rejects_server_without_authentication() {
    let at_once = || message(SaslState::Success, None);
    let error = failed(first(kerberos(), Policy::default(), at_once()));
    assert_eq!(error, SecurityError::SimpleNotAllowed);
    let error = failed(first(kerberos(), Policy::default(), offers(&[("SIMPLE", "")])));
    assert_eq!(error, SecurityError::SimpleNotAllowed);
    let step = first(kerberos(), policy(None, Some("alice")), at_once());
    assert!(matches!(
        step,
        Ok(Step::Done(None, HandshakeOutcome { method: NegotiatedAuth::Simple { .. }, .. }))
    ));
    // A token has no user to fall back to.
    let error = failed(first(token(), policy(None, Some("alice")), at_once()));
    assert!(matches!(error, SecurityError::NoCommonMethod { .. }), "{error}");
}

#[test]
fn missing_common_method_is_reported() {
    let error = failed(first(token(), Policy::default(), offers(&[("KERBEROS", "GSSAPI")])));
    assert_eq!(
        error.to_string(),
        "no common authentication method: the server accepts KERBEROS, the client has a token"
    );
    let error = failed(first(kerberos(), Policy::default(), offers(&[("TOKEN", "DIGEST-MD5")])));
    assert_eq!(
        error.to_string(),
        "no common authentication method: the server accepts TOKEN, the client has a Kerberos ticket"
    );
    let error = failed(first(token(), Policy::default(), offers(&[])));
    assert_eq!(
        error.to_string(),
        "no common authentication method: the server accepts nothing, the client has a token"
    );
}

#[test]
fn unknown_mechanism_is_reported() {
    let error = failed(first(token(), Policy::default(), offers(&[("TOKEN", "SCRAM-SHA-512")])));
    let expected = "unsupported SASL mechanism `SCRAM-SHA-512` for TOKEN";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn wrong_server_principal_is_rejected_before_sending_a_ticket() {
    let offers = || offers(&[("KERBEROS", "GSSAPI")]);
    let error = failed(first(kerberos(), policy(Some("hdfs/_HOST@R"), None), offers()));
    let expected = "unexpected server principal `yarn/rm`, expected `hdfs/_HOST@R`";
    assert_eq!(error.to_string(), expected);
    let error = failed(first(kerberos(), policy(None, None), offers()));
    assert_eq!(error, SecurityError::NoServerPrincipal);
}

#[test]
fn missing_library_is_reported() {
    let offers = offers(&[("KERBEROS", "GSSAPI")]);
    let error = failed(first(kerberos(), policy(Some("yarn/_HOST@R"), None), offers));
    assert!(matches!(error, SecurityError::MissingLibrary { .. }), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn unexpected_messages_are_rejected() {
    for state in [SaslState::Initiate, SaslState::Challenge, SaslState::Response, SaslState::Wrap] {
        let error = failed(first(token(), Policy::default(), message(state, None)));
        assert!(error.to_string().contains(state.as_str_name()), "{error}");
    }
    let mut handshake = Handshake::new(token(), Policy::default(), "rm".into());
    sent(handshake.on_message(offers(&[("TOKEN", "DIGEST-MD5")]), false));
    let again = handshake.on_message(offers(&[("TOKEN", "DIGEST-MD5")]), false);
    failed(again);
    // A failed handshake stays failed.
    failed(handshake.on_message(message(SaslState::Success, None), false));
}

#[test]
fn names_with_quote_characters_are_rejected() {
    for name in ["a\"b", "a\\b", "a b", "a\nb", "\u{e9}"] {
        for part in 0..2 {
            let mut offers = offers(&[("TOKEN", "DIGEST-MD5")]);
            match part {
                0 => offers.auths[0].protocol = Some(name.into()),
                _ => offers.auths[0].server_id = Some(name.into()),
            }
            let error = failed(first(token(), Policy::default(), offers));
            assert!(error.to_string().contains("invalid server name"), "{name}: {error}");
        }
    }
}

#[test]
fn handshake_rounds_are_limited() {
    /// A context that never completes.
    struct EndlessContext;

    impl crate::security::kerberos::SecurityContext for EndlessContext {
        fn step(&mut self, _: Option<&[u8]>) -> Result<Progress, SecurityError> {
            Ok(Progress { token: Vec::new(), complete: false })
        }
        fn wrap(&mut self, _: &[u8], _: bool) -> Result<Vec<u8>, SecurityError> {
            Err(SecurityError::protocol("nothing is negotiated"))
        }
        fn unwrap(&mut self, _: &[u8]) -> Result<(Vec<u8>, bool), SecurityError> {
            Err(SecurityError::protocol("nothing is negotiated"))
        }
        fn plain_max(&mut self, _: bool, _: usize) -> Result<usize, SecurityError> {
            Ok(0)
        }
    }

    let (client, _) = KerberosClient::start(Box::new(EndlessContext), &[]).expect("a start");
    let mut handshake = Handshake::new(kerberos(), Policy::default(), "rm".into());
    handshake.state = HandshakeState::Kerberos(client);
    let challenge = || message(SaslState::Challenge, Some(vec![1]));
    for _ in 0..ROUNDS_MAX {
        sent(handshake.on_message(challenge(), false));
    }
    let error = failed(handshake.on_message(challenge(), false));
    assert!(error.to_string().contains("too many handshake rounds"), "{error}");
}

#[test]
fn success_without_server_proof_is_rejected() {
    for answer in [None, Some(vec![]), Some(b"rspauth=00000000000000000000000000000000".to_vec())] {
        let mut handshake = Handshake::new(token(), Policy::default(), "rm".into());
        sent(handshake.on_message(offers(&[("TOKEN", "DIGEST-MD5")]), false));
        let error = failed(handshake.on_message(message(SaslState::Success, answer), false));
        assert_eq!(error, SecurityError::ServerUnauthenticated);
    }
}

#[test]
fn only_possible_aliases_are_looked_up() {
    let lookup = |principal: &str, server_host: &str| {
        let handshake =
            Handshake::new(kerberos(), policy(Some(principal), None), server_host.to_owned());
        handshake.host_to_look_up(&offers(&[("KERBEROS", "GSSAPI")]))
    };
    assert_eq!(lookup("yarn/_HOST@R", "rm"), None);
    assert_eq!(lookup("yarn/_HOST@R", "127.0.0.1"), Some("rm".into()));
    assert_eq!(lookup("yarn/rm@R", "127.0.0.1"), None);
}

#[test]
fn handshake_accepts_arbitrary_bytes() {
    let mut noise = Noise::new(3);
    let valid = offers(&[("TOKEN", "DIGEST-MD5"), ("SIMPLE", "")]).encode_to_vec();
    for _ in 0..5_000 {
        let mut handshake = Handshake::new(token(), Policy::default(), "rm".into());
        for _ in 0..3 {
            let Ok(message) = RpcSaslProto::decode(&*noise.mutated(&valid)) else {
                continue;
            };
            let _ = handshake.on_message(message, false);
        }
    }
}
