//! Handshakes that go well, wrong, or nowhere.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;
use yarn_native::rpc::{Channel, Options, RpcError};
use yarn_native::security::{Identity, Quality, SecurityError, ServerPrincipal, TicketSource};

use super::digest;
use super::faults::{call, impatient};
use super::server::{Fake, IDENTIFIER, PASSWORD, Peer, token};
use super::wire::{self, Fields};

fn by_token(fake: &Arc<Fake>) -> Channel {
    fake.channel(&["rm"], Identity::token(token()), impatient())
}

async fn refused(fake: &Arc<Fake>, identity: Identity, options: Options) -> SecurityError {
    let channel = fake.channel(&["rm"], identity, options);
    match call(&channel, b"").await {
        Err(RpcError::Security { source, .. }) => source,
        other => panic!("not a failure of security: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_proven_with_each_quality_and_large_messages_pass() {
    for quality in ["auth", "auth-int", "auth-conf"] {
        let fake = Fake::new(move |mut peer: Peer| async move {
            let context = peer.accept_token(quality).await.expect("a context");
            assert!(context.bytes(2).is_none(), "a token says who calls");
            peer.echo().await;
        });
        let channel = by_token(&fake);
        for size in [0, 1, 1000, 65_500, 65_536, 300_000] {
            let body: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            assert_eq!(call(&channel, &body).await.expect(quality), body, "{quality} {size}");
        }
        assert_eq!(fake.dialled(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_configured_quality_is_taken_and_a_missing_one_refused() {
    let serve = |mut peer: Peer| async move {
        let offer = digest::offer("TOKEN", "DIGEST-MD5", Some(&digest::challenge("auth,auth-int")));
        peer.negotiate(&offer).await;
        let Some(answer) = peer.answer().await else {
            return;
        };
        let session = digest::Session::new(&answer, IDENTIFIER, PASSWORD).expect("a sound answer");
        peer.refuse(&session.quality).await;
    };
    let with = |protection: Vec<Quality>| {
        let mut options = impatient();
        options.security.protection = protection;
        options
    };
    let fake = Fake::new(serve);
    for (wanted, taken) in [
        (vec![], "auth-int"),
        (vec![Quality::Authentication, Quality::Integrity], "auth"),
        (vec![Quality::Privacy, Quality::Integrity], "auth-int"),
    ] {
        let error = refused(&fake, Identity::token(token()), with(wanted)).await;
        assert!(error.to_string().contains(&format!(": {taken} (")), "{error}");
    }
    let error = refused(&fake, Identity::token(token()), with(vec![Quality::Privacy])).await;
    let expected = "the server offers protection authentication, integrity, and privacy is wanted";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_refused_by_the_server_and_not_tried_again() {
    let fake = Fake::new(async |mut peer: Peer| {
        peer.accept_token("auth").await;
    });
    let mut wrong = token();
    wrong.password = b"another".to_vec().into();
    let patient = Options::default();
    let error = refused(&fake, Identity::token(wrong), patient).await;
    assert!(error.to_string().contains("Mismatched response"), "{error}");
    assert_eq!(fake.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_proves_nothing_is_not_believed() {
    for proof in [None, Some(""), Some("rspauth=0123456789abcdef0123456789abcdef")] {
        let fake = Fake::new(move |mut peer: Peer| async move {
            let challenge = digest::challenge("auth");
            peer.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge))).await;
            peer.answer().await;
            let proof = proof.map(|proof| wire::bytes(3, proof)).unwrap_or_default();
            peer.write(&digest::message(0, &proof)).await;
            pending().await
        });
        let error = refused(&fake, Identity::token(token()), impatient()).await;
        assert_eq!(error, SecurityError::ServerUnauthenticated);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_beside_the_protection_that_was_agreed() {
    let plain = wire::success(0, b"answered");
    let success = digest::message(0, &wire::bytes(3, b"once more"));
    for (said, why) in
        [(plain, "it sent something unprotected"), (success, "it went back to the handshake")]
    {
        let fake = Fake::new(move |mut peer: Peer| {
            let said = said.clone();
            async move {
                peer.accept_token("auth-int").await;
                peer.call().await;
                // Past the protection, unlike everything else it says.
                let _ = peer.stream.write_all(&said).await;
                pending().await
            }
        });
        match call(&by_token(&fake), b"").await {
            Err(RpcError::Protocol { reason, .. }) => assert_eq!(reason, why),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_more_than_its_handshake_is_not_understood() {
    let fake = Fake::new(async |mut peer: Peer| {
        let challenge = digest::challenge("auth");
        peer.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge))).await;
        let answer = peer.answer().await.expect("an answer");
        let session = digest::Session::new(&answer, IDENTIFIER, PASSWORD).expect("a sound answer");
        let success = digest::message(0, &wire::bytes(3, &session.rspauth));
        let both = [success, wire::success(0, b"too early")].concat();
        peer.write(&both).await;
        pending().await
    });
    match call(&by_token(&fake), b"").await {
        Err(RpcError::Protocol { reason, .. }) => {
            assert_eq!(reason, "it said more than its handshake");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn bad_realms_and_challenges_are_refused() {
    for (challenge, why) in [
        (digest::challenge("auth").replace("realm", "realm=\"a\",realm"), "twice"),
        (digest::challenge("auth").replace("default", "dé"), "odd characters"),
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
        let error = refused(&fake, Identity::token(token()), impatient()).await.to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    // A realm the server does not mean: its own check fails.
    let fake = Fake::new(async |mut peer: Peer| {
        let challenge = digest::challenge("auth").replace("default", "elsewhere");
        peer.negotiate(&digest::offer("TOKEN", "DIGEST-MD5", Some(&challenge))).await;
        let answer = peer.answer().await.expect("an answer");
        assert!(digest::Session::new(&answer, IDENTIFIER, PASSWORD).is_none());
        peer.refuse("realm").await;
    });
    let error = refused(&fake, Identity::token(token()), impatient()).await;
    assert!(matches!(error, SecurityError::Refused { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn wrong_lists_of_mechanisms_are_refused() {
    let challenge = digest::challenge("auth");
    for (offers, why) in [
        (vec![], "accepts nothing"),
        (digest::offer("KERBEROS", "GSSAPI", None), "accepts KERBEROS, and the caller has a token"),
        (digest::offer("SIMPLE", "", None), "accepts SIMPLE, and the caller has a token"),
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
        let error = refused(&fake, Identity::token(token()), impatient()).await.to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

fn kerberos() -> (Identity, Options) {
    let mut options = impatient();
    options.security.server = Some(ServerPrincipal::Exact("yarn/_HOST@EXAMPLE.COM".into()));
    (Identity::kerberos(TicketSource::Default), options)
}

#[tokio::test(start_paused = true)]
async fn a_secure_client_does_not_fall_back_unless_it_may() {
    for at_once in [true, false] {
        let fake = Fake::new(move |mut peer: Peer| async move {
            if at_once {
                assert_eq!(peer.greeting().await, Some(*b"hrpc\x09\0\xdf"));
                peer.sasl().await;
                peer.write(&digest::message(0, &[])).await;
            } else {
                peer.negotiate(&digest::offer("SIMPLE", "", None)).await;
                let Some(initiate) = peer.sasl().await else {
                    return;
                };
                assert!(initiate.bytes(3).is_none(), "nothing is proven");
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
        let error = refused(&fake, identity.clone(), options.clone()).await;
        assert_eq!(error, SecurityError::SimpleRefused);
        let mut allowed = options;
        allowed.security.fallback_to_simple = Some("alice".into());
        let channel = fake.channel(&["rm"], identity, allowed);
        assert_eq!(call(&channel, b"").await, Ok(b"alice".to_vec()));
    }
}

// Kerberos has a thread of its own, which time that jumps would not wait for.
#[tokio::test]
async fn a_server_with_another_principal_gets_no_ticket() {
    let fake = Fake::new(async |mut peer: Peer| {
        let offer = [
            wire::bytes(1, "KERBEROS"),
            wire::bytes(2, "GSSAPI"),
            wire::bytes(3, "yarn"),
            wire::bytes(4, "evil.example.com"),
        ];
        peer.negotiate(&wire::bytes(4, offer.concat())).await;
        assert!(peer.sasl().await.is_none(), "nothing more is said");
    });
    let (identity, options) = kerberos();
    let error = refused(&fake, identity, options).await;
    let expected =
        "the server calls itself `yarn/evil.example.com`, but should be `yarn/_HOST@EXAMPLE.COM`";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_caller_acts_for_another_by_name() {
    let fake = Fake::new(async |mut peer: Peer| {
        let context = peer.accept_simple().await.expect("a context");
        let user = Fields::parse(context.bytes(2).expect("a user"));
        let names = format!("{:?} {:?}", user.text(1), user.text(2));
        let call = peer.call().await.expect("a call");
        peer.reply(call.id, names.as_bytes()).await;
        pending().await
    });
    let identity = Identity::simple("gateway").acting_for("alice");
    let channel = fake.channel(&["rm"], identity, impatient());
    let expected = b"Some(\"alice\") Some(\"gateway\")".to_vec();
    assert_eq!(call(&channel, b"").await, Ok(expected));
}

#[tokio::test(start_paused = true)]
async fn a_standby_found_out_in_the_handshake_is_left_for_the_active_one() {
    let fake = Fake::new(async |mut peer: Peer| {
        if peer.host == "rm1" {
            peer.greeting().await;
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
async fn a_crowd_of_tickets_is_scattered() {
    let fake = Fake::new(async |mut peer: Peer| {
        if peer.number < 3 {
            peer.greeting().await;
            peer.sasl().await;
            peer.refuse("GSS initiate failed: Request is a replay (34)").await;
        } else {
            peer.accept_token("auth").await;
            peer.echo().await;
        }
    });
    let channel = fake.channel(&["rm"], Identity::token(token()), Options::default());
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    assert_eq!(fake.dialled(), 4);
}

/// Passes on what two ends say, and cuts after so many bytes from the server, or to it.
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

/// One call by token, cut after so many bytes. What the caller is told, and how many bytes passed
/// is for the first caller to find out by cutting nowhere.
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
    call(&by_token(&fake), b"hello").await
}

#[tokio::test(start_paused = true)]
async fn a_connection_cut_at_any_byte_hangs_nobody() {
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
