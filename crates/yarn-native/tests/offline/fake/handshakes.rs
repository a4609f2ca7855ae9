//! Successful, failing and stalled handshakes.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;
use yarn_native::rpc::{Channel, Options, RpcError};
use yarn_native::security::{Identity, Quality, SecurityError, ServerPrincipal, TicketSource};

use super::digest;
use super::faults::{call, no_retry};
use super::server::{Fake, IDENTIFIER, PASSWORD, Peer, token};
use super::wire::{self, Fields};

fn token_channel(fake: &Arc<Fake>) -> Channel {
    fake.channel(&["rm"], Identity::token(token()), no_retry())
}

async fn security_error(fake: &Arc<Fake>, identity: Identity, options: Options) -> SecurityError {
    let channel = fake.channel(&["rm"], identity, options);
    match call(&channel, b"").await {
        Err(RpcError::Security { source, .. }) => source,
        other => panic!("not a security error: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn token_handshake_supports_each_quality_and_large_messages() {
    for quality in ["auth", "auth-int", "auth-conf"] {
        let fake = Fake::new(move |mut peer: Peer| async move {
            let context = peer.accept_token(quality).await.expect("a context");
            assert!(context.bytes(2).is_none(), "a token identifies the user");
            peer.echo().await;
        });
        let channel = token_channel(&fake);
        for size in [0, 1, 1000, 65_500, 65_536, 300_000] {
            let body: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            assert_eq!(call(&channel, &body).await.expect(quality), body, "{quality} {size}");
        }
        assert_eq!(fake.connection_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn configured_quality_is_negotiated_or_rejected() {
    let serve = |mut peer: Peer| async move {
        let offer = digest::offer("TOKEN", "DIGEST-MD5", Some(&digest::challenge("auth,auth-int")));
        peer.negotiate(&offer).await;
        let Some(answer) = peer.answer().await else {
            return;
        };
        let session = digest::Session::new(&answer, IDENTIFIER, PASSWORD).expect("a valid answer");
        peer.reject(&session.quality).await;
    };
    let with = |protection: Vec<Quality>| {
        let mut options = no_retry();
        options.security.protection = protection;
        options
    };
    let fake = Fake::new(serve);
    for (wanted, negotiated) in [
        (vec![], "auth-int"),
        (vec![Quality::Authentication, Quality::Integrity], "auth"),
        (vec![Quality::Privacy, Quality::Integrity], "auth-int"),
    ] {
        let error = security_error(&fake, Identity::token(token()), with(wanted)).await;
        assert!(error.to_string().contains(&format!(": {negotiated} (")), "{error}");
    }
    let error = security_error(&fake, Identity::token(token()), with(vec![Quality::Privacy])).await;
    let expected = "no common protection: the server offers authentication, integrity, the client accepts privacy";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn wrong_password_is_rejected_and_not_retried() {
    let fake = Fake::new(async |mut peer: Peer| {
        peer.accept_token("auth").await;
    });
    let mut wrong = token();
    wrong.password = b"another".to_vec().into();
    let with_retries = Options::default();
    let error = security_error(&fake, Identity::token(wrong), with_retries).await;
    assert!(error.to_string().contains("Mismatched response"), "{error}");
    assert_eq!(fake.connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn server_without_proof_is_rejected() {
    for proof in [None, Some(""), Some("rspauth=0123456789abcdef0123456789abcdef")] {
        let fake = Fake::new(move |mut peer: Peer| async move {
            let challenge = digest::challenge("auth");
            peer.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge))).await;
            peer.answer().await;
            let proof = proof.map(|proof| wire::bytes(3, proof)).unwrap_or_default();
            peer.write(&digest::message(0, &proof)).await;
            pending().await
        });
        let error = security_error(&fake, Identity::token(token()), no_retry()).await;
        assert_eq!(error, SecurityError::ServerUnauthenticated);
    }
}

#[tokio::test(start_paused = true)]
async fn unprotected_messages_are_rejected_after_negotiation() {
    let plain = wire::success(0, b"answered");
    let success = digest::message(0, &wire::bytes(3, b"once more"));
    for (message, why) in [
        (plain, "unprotected message on a protected connection"),
        (success, "handshake message after the handshake"),
    ] {
        let fake = Fake::new(move |mut peer: Peer| {
            let message = message.clone();
            async move {
                peer.accept_token("auth-int").await;
                peer.call().await;
                // Bypasses the protection.
                let _ = peer.stream.write_all(&message).await;
                pending().await
            }
        });
        match call(&token_channel(&fake), b"").await {
            Err(RpcError::Protocol { reason, .. }) => assert_eq!(reason, why),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn data_after_the_handshake_is_a_protocol_error() {
    let fake = Fake::new(async |mut peer: Peer| {
        let challenge = digest::challenge("auth");
        peer.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge))).await;
        let answer = peer.answer().await.expect("an answer");
        let session = digest::Session::new(&answer, IDENTIFIER, PASSWORD).expect("a valid answer");
        let success = digest::message(0, &wire::bytes(3, &session.rspauth));
        let both = [success, wire::success(0, b"too early")].concat();
        peer.write(&both).await;
        pending().await
    });
    match call(&token_channel(&fake), b"").await {
        Err(RpcError::Protocol { reason, .. }) => {
            assert_eq!(reason, "data after the end of the handshake");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_realms_and_challenges_are_rejected() {
    for (challenge, why) in [
        (digest::challenge("auth").replace("realm", "realm=\"a\",realm"), "duplicate directive"),
        (digest::challenge("auth").replace("default", "dé"), "invalid characters"),
        (digest::challenge("auth").replace("md5-sess", "md5"), "algorithm"),
        (digest::challenge("auth").replace("nonce", "once"), "no nonce"),
        (String::new(), "algorithm"),
    ] {
        let fake = Fake::new(move |mut peer: Peer| {
            let offer = digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge));
            async move {
                peer.negotiate(&offer).await;
                pending().await
            }
        });
        let error = security_error(&fake, Identity::token(token()), no_retry()).await.to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    // A wrong realm: the server's own check fails.
    let fake = Fake::new(async |mut peer: Peer| {
        let challenge = digest::challenge("auth").replace("default", "elsewhere");
        peer.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge))).await;
        let answer = peer.answer().await.expect("an answer");
        assert!(digest::Session::new(&answer, IDENTIFIER, PASSWORD).is_none());
        peer.reject("realm").await;
    });
    let error = security_error(&fake, Identity::token(token()), no_retry()).await;
    assert!(matches!(error, SecurityError::Rejected { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn unsupported_mechanism_lists_are_rejected() {
    let challenge = digest::challenge("auth");
    for (offers, why) in [
        (vec![], "accepts nothing"),
        (digest::offer("KERBEROS", "GSSAPI", None), "accepts KERBEROS, the client has a token"),
        (digest::offer("SIMPLE", "", None), "accepts SIMPLE, the client has a token"),
        (digest::offer("TOKEN", "SCRAM-SHA-512", Some(&challenge)), "`SCRAM-SHA-512`"),
        (digest::offer("TOKEN", "DIGEST-MD5", None), "without a challenge"),
        (digest::offer("SIMPLE", "", None).repeat(100), "too many methods"),
    ] {
        let fake = Fake::new(move |mut peer: Peer| {
            let offers = offers.clone();
            async move {
                peer.negotiate(&offers).await;
                pending().await
            }
        });
        let error = security_error(&fake, Identity::token(token()), no_retry()).await.to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

fn kerberos() -> (Identity, Options) {
    let mut options = no_retry();
    options.security.server = Some(ServerPrincipal::Exact("yarn/_HOST@EXAMPLE.COM".into()));
    (Identity::kerberos(TicketSource::Default), options)
}

#[tokio::test(start_paused = true)]
async fn secure_client_falls_back_only_if_allowed() {
    for at_once in [true, false] {
        let fake = Fake::new(move |mut peer: Peer| async move {
            if at_once {
                assert_eq!(peer.connection_header().await, Some(*b"hrpc\x09\0\xdf"));
                peer.sasl().await;
                peer.write(&digest::message(0, &[])).await;
            } else {
                peer.negotiate(&digest::offer("SIMPLE", "", None)).await;
                let Some(initiate) = peer.sasl().await else {
                    return;
                };
                assert!(initiate.bytes(3).is_none(), "no token is sent");
            }
            let Some(context) = peer.context().await else {
                return;
            };
            let user = Fields::parse(context.bytes(2).expect("a user"));
            let call = peer.call().await.expect("a call");
            peer.reply(call.id, user.bytes(1).expect("a name")).await;
            pending().await
        });
        let (identity, options) = kerberos();
        let error = security_error(&fake, identity.clone(), options.clone()).await;
        assert_eq!(error, SecurityError::SimpleNotAllowed);
        let mut allowed = options;
        allowed.security.fallback_to_simple = Some("alice".into());
        let channel = fake.channel(&["rm"], identity, allowed);
        assert_eq!(call(&channel, b"").await, Ok(b"alice".to_vec()));
    }
}

// Kerberos runs on its own thread, which paused time would not wait for.
#[tokio::test]
async fn wrong_server_principal_receives_no_ticket() {
    let fake = Fake::new(async |mut peer: Peer| {
        let offer = [
            wire::bytes(1, "KERBEROS"),
            wire::bytes(2, "GSSAPI"),
            wire::bytes(3, "yarn"),
            wire::bytes(4, "evil.example.com"),
        ];
        peer.negotiate(&wire::bytes(4, offer.concat())).await;
        assert!(peer.sasl().await.is_none(), "no further message");
    });
    let (identity, options) = kerberos();
    let error = security_error(&fake, identity, options).await;
    let expected =
        "unexpected server principal `yarn/evil.example.com`, expected `yarn/_HOST@EXAMPLE.COM`";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn simple_caller_impersonates_by_name() {
    let fake = Fake::new(async |mut peer: Peer| {
        let context = peer.accept_simple().await.expect("a context");
        let user = Fields::parse(context.bytes(2).expect("a user"));
        let names = format!("{:?} {:?}", user.text(1), user.text(2));
        let call = peer.call().await.expect("a call");
        peer.reply(call.id, names.as_bytes()).await;
        pending().await
    });
    let identity = Identity::simple("gateway").acting_for("alice");
    let channel = fake.channel(&["rm"], identity, no_retry());
    let expected = b"Some(\"alice\") Some(\"gateway\")".to_vec();
    assert_eq!(call(&channel, b"").await, Ok(expected));
}

#[tokio::test(start_paused = true)]
async fn standby_reported_in_the_handshake_triggers_failover() {
    let fake = Fake::new(async |mut peer: Peer| {
        if peer.host == "rm1" {
            peer.connection_header().await;
            peer.sasl().await;
            let class = "org.apache.hadoop.ipc.StandbyException";
            peer.write(&wire::exception(digest::SASL, 2, class, "standby")).await;
        } else {
            peer.accept_token("auth-int").await;
            peer.echo().await;
        }
    });
    let channel = fake.channel(&["rm1", "rm2"], Identity::token(token()), Options::default());
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn replay_errors_are_retried() {
    let fake = Fake::new(async |mut peer: Peer| {
        if peer.number < 3 {
            peer.connection_header().await;
            peer.sasl().await;
            peer.reject("GSS initiate failed: Request is a replay (34)").await;
        } else {
            peer.accept_token("auth").await;
            peer.echo().await;
        }
    });
    let channel = fake.channel(&["rm"], Identity::token(token()), Options::default());
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    assert_eq!(fake.connection_count(), 4);
}

/// Forwards bytes between two streams and cuts after `from` bytes from the server or `to` bytes to
/// it.
async fn relay(client: DuplexStream, server: DuplexStream, from: usize, to: usize) {
    let (mut client_in, mut client_out) = tokio::io::split(client);
    let (mut server_in, mut server_out) = tokio::io::split(server);
    let up = async {
        let mut part = (&mut client_in).take(to as u64);
        let _ = tokio::io::copy(&mut part, &mut server_out).await;
    };
    let down = async {
        let mut part = (&mut server_in).take(from as u64);
        let _ = tokio::io::copy(&mut part, &mut client_out).await;
        let _ = client_out.flush().await;
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// Makes one call with a token over a connection cut after the given number of bytes in each
/// direction.
async fn cut_call(quality: &'static str, from: usize, to: usize) -> Result<Vec<u8>, RpcError> {
    let fake = Fake::new(move |peer: Peer| async move {
        let (near, far) = duplex(64 << 10);
        let Peer { stream, .. } = peer;
        let served = Peer::on(far);
        tokio::spawn(async move {
            let mut served = served;
            if served.accept_token(quality).await.is_some() {
                served.echo().await;
            }
        });
        relay(stream, near, from, to).await;
    });
    call(&token_channel(&fake), b"hello").await
}

#[tokio::test(start_paused = true)]
async fn connection_cut_at_any_byte_never_hangs() {
    const PLENTY: usize = 1 << 20;
    for quality in ["auth", "auth-int", "auth-conf"] {
        for towards_client in [true, false] {
            let mut cut = 0;
            loop {
                let began = Instant::now();
                let outcome = match towards_client {
                    true => cut_call(quality, cut, PLENTY).await,
                    false => cut_call(quality, PLENTY, cut).await,
                };
                assert!(began.elapsed() < Duration::from_secs(5), "{quality} {cut}");
                match outcome {
                    Ok(answer) => {
                        assert_eq!(answer, b"hello");
                        break;
                    }
                    Err(RpcError::Unreachable { .. } | RpcError::Unanswered { .. }) => {}
                    Err(other) => panic!("{quality}, cut at {cut}: {other}"),
                }
                cut += 1;
            }
            assert!(cut > 200, "a handshake is longer than {cut} bytes");
        }
    }
}
