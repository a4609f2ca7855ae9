//! Failover between standby and restarting servers.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use yarn_native::client::Client;
use yarn_native::rpc::{Options, RpcError, Safety};
use yarn_native::security::Identity;

use super::faults::{call, no_retry, soon};
use super::server::{Fake, Peer, token};

async fn accepted(mut peer: Peer) -> Peer {
    peer.accept_simple().await;
    peer
}

fn alice() -> Identity {
    Identity::simple("alice")
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_skipped() {
    let fake = Fake::with_refusals(|peer| match peer.host.as_str() {
        "rm2" => Some(Box::pin(async { accepted(peer).await.echo().await })),
        _ => None,
    });
    let channel = fake.channel(&["rm1", "rm2"], alice(), Options::default());
    assert_eq!(call(&channel, b"1").await, Ok(b"1".to_vec()));
    assert_eq!(call(&channel, b"2").await, Ok(b"2".to_vec()));
    assert_eq!(fake.dialed_hosts(), ["rm1", "rm2"], "the second call starts at the active server");
}

#[tokio::test(start_paused = true)]
async fn protocol_error_names_the_server_that_responded() {
    let fake = Fake::with_refusals(|peer| match peer.host.as_str() {
        "rm2" => Some(Box::pin(async { accepted(peer).await.echo().await })),
        _ => None,
    });
    let client = Client::with_channel(fake.channel(&["rm1", "rm2"], alice(), Options::default()));
    let outcome = client.cluster_metrics(soon()).await;
    let Err(RpcError::Protocol { address, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(address, "rm2:8032");
}

#[tokio::test(start_paused = true)]
async fn without_retries_each_server_is_tried_once() {
    let fake = Fake::with_refusals(|_| None);
    let channel = fake.channel(&["rm1", "rm2", "rm3"], alice(), no_retry());
    let error = call(&channel, b"").await.expect_err("no server");
    assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
    assert_eq!(fake.dialed_hosts(), ["rm1", "rm2", "rm3"]);
}

#[tokio::test(start_paused = true)]
async fn failover_continues_until_a_server_is_active() {
    let standby_answers = Arc::new(AtomicUsize::new(0));
    let counter = standby_answers.clone();
    let fake = Fake::new(move |peer| {
        let counter = counter.clone();
        async move {
            let mut peer = accepted(peer).await;
            while let Some(call) = peer.call().await {
                if counter.fetch_add(1, Ordering::SeqCst) < 9 {
                    peer.fail(call.id, "ipc.StandbyException").await;
                } else {
                    peer.reply(call.id, &call.retry.to_be_bytes()).await;
                }
            }
        }
    });
    let channel = fake.channel(&["rm1", "rm2"], alice(), Options::default());
    // Even non-idempotent calls are retried: a standby server has not executed them.
    let answer = call(&channel, b"").await.expect("the tenth attempt is answered");
    assert_eq!(answer, 9i64.to_be_bytes(), "each attempt sends its retry count");
    assert_eq!(fake.connection_count(), 2, "both connections are reused");
}

#[tokio::test(start_paused = true)]
async fn failover_ends_at_the_retry_timeout() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        while let Some(call) = peer.call().await {
            peer.fail(call.id, "ipc.StandbyException").await;
        }
    });
    let options = Options { retry_timeout: Duration::from_secs(20), ..Options::default() };
    let channel = fake.channel(&["rm1", "rm2"], alice(), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("none is active");
    let expected = "no active server at rm1:8032, rm2:8032: the message (`StandbyException`)";
    assert_eq!(error.to_string(), expected);
    assert!((18..=20).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lost_response_is_retried_only_for_idempotent_calls() {
    let make = || {
        Fake::new(async |peer| {
            let mut peer = accepted(peer).await;
            if peer.number == 0 {
                // Executed, but not answered.
                peer.call().await;
            } else {
                peer.echo().await;
            }
        })
    };
    let fake = make();
    let channel = fake.channel(&["rm"], alice(), Options::default());
    let answer = channel.call_raw("allocate", b"x", soon(), Safety::Idempotent).await;
    assert_eq!(answer.as_deref(), Ok(&b"x"[..]));
    assert_eq!(fake.connection_count(), 2);

    let fake = make();
    let channel = fake.channel(&["rm"], alice(), Options::default());
    let error = channel.call_raw("start", b"x", soon(), Safety::Once).await.expect_err("lost");
    assert!(matches!(error, RpcError::Unanswered { method: "start", .. }), "{error}");
    assert_eq!(fake.connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn retried_call_keeps_its_id_and_counts_attempts() {
    let ids = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = ids.clone();
    let fake = Fake::new(move |peer| {
        let seen = seen.clone();
        async move {
            let mut peer = accepted(peer).await;
            let Some(call) = peer.call().await else {
                return;
            };
            seen.lock().expect("no panic").push((call.id, call.retry));
            if peer.number == 2 {
                peer.reply(call.id, b"").await;
            }
        }
    });
    let channel = fake.channel(&["rm"], alice(), Options::default());
    let answer = channel.call_raw("allocate", b"", soon(), Safety::Idempotent).await;
    answer.expect("the third attempt is answered");
    assert_eq!(*ids.lock().expect("no panic"), [(0, 0), (0, 1), (0, 2)]);
}

#[tokio::test(start_paused = true)]
async fn retriable_exception_is_retried_on_the_same_server() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        for _ in 0..3 {
            let call = peer.call().await.expect("a call");
            peer.fail(call.id, "ipc.RetriableException").await;
        }
        peer.echo().await;
    });
    let channel = fake.channel(&["rm1", "rm2"], alice(), Options::default());
    let began = Instant::now();
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    assert_eq!(fake.dialed_hosts(), ["rm1"]);
    assert!(began.elapsed() >= Duration::from_millis(350), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_retried_until_timeout_or_deadline() {
    let fake = Fake::with_refusals(|_| None);
    let options = Options { retry_timeout: Duration::from_secs(5), ..Options::default() };
    let channel = fake.channel(&["rm"], alice(), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("no server");
    let expected = "no server could be reached at rm:8032: connection refused";
    assert_eq!(error.to_string(), expected);
    assert!((4..=5).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());

    let channel = fake.channel(&["rm"], alice(), Options::default());
    let deadline = Instant::now() + Duration::from_secs(2);
    let error = channel.call_raw("aMethod", b"", deadline, Safety::Once).await;
    assert_eq!(error.expect_err("no server").to_string(), expected);
    assert!(Instant::now() <= deadline);
    assert!(fake.connection_count() < 40, "retries back off: {}", fake.connection_count());
}

#[tokio::test(start_paused = true)]
async fn retry_timeout_applies_with_zero_backoff() {
    let fake = Fake::with_refusals(|_| None);
    let options = Options {
        retry_timeout: Duration::from_secs(5),
        backoff_max: Duration::ZERO,
        ..Options::default()
    };
    let channel = fake.channel(&["rm1", "rm2"], alice(), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("no server");
    assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
    assert!(began.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn maximum_durations_do_not_overflow() {
    let unlimited = || Options {
        connect_timeout: Duration::MAX,
        read_timeout: Duration::MAX,
        ping_interval: Duration::MAX,
        idle_timeout: Duration::MAX,
        retry_timeout: Duration::MAX,
        backoff_max: Duration::MAX,
        ..Options::default()
    };
    let fake = Fake::new(async |peer| accepted(peer).await.echo().await);
    let channel = fake.channel(&["rm"], alice(), unlimited());
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    let unreachable = Fake::with_refusals(|_| None).channel(&["rm"], alice(), unlimited());
    let error = call(&unreachable, b"").await.expect_err("no server");
    assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn silent_server_triggers_failover() {
    let fake = Fake::new(async |mut peer| match peer.host.as_str() {
        "rm1" => {
            // The process is stopped, as by SIGSTOP, but the socket still accepts connections.
            let _stopped = peer.stream;
            pending().await
        }
        _ => {
            peer.accept_token("auth").await;
            peer.echo().await;
        }
    });
    let channel = fake.channel(&["rm1", "rm2"], Identity::token(token()), Options::default());
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    assert_eq!(fake.dialed_hosts(), ["rm1", "rm2"]);
}

#[tokio::test(start_paused = true)]
async fn call_after_a_missed_deadline_uses_the_next_server() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        match peer.host.as_str() {
            "rm1" => while peer.call().await.is_some() {},
            _ => peer.echo().await,
        }
    });
    let channel = fake.channel(&["rm1", "rm2"], alice(), no_retry());
    let deadline = Instant::now() + Duration::from_secs(1);
    let error = channel.call_raw("aMethod", b"", deadline, Safety::Once).await;
    assert!(matches!(error, Err(RpcError::DeadlinePassed { .. })));
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn deadline_error_reports_an_earlier_sent_attempt() {
    let fake = Fake::new(async |mut peer| {
        match peer.number {
            0 => {
                peer.accept_token("auth").await;
                peer.call().await;
            }
            // The process is stopped, but the socket still accepts connections.
            _ => pending().await,
        }
    });
    let identity = Identity::token(token());
    let channel = fake.channel(&["rm"], identity, Options::default());
    let deadline = Instant::now() + Duration::from_secs(5);
    let outcome = channel.call_raw("aMethod", b"", deadline, Safety::Idempotent).await;
    let Err(RpcError::DeadlinePassed { sent, reason, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(sent);
    assert_eq!(reason.as_deref(), Some("the server closed the connection"));
}

#[tokio::test(start_paused = true)]
async fn channel_without_addresses_is_an_error() {
    let fake = Fake::with_refusals(|_| None);
    let channel = fake.channel(&[], alice(), Options::default());
    let error = call(&channel, b"").await.expect_err("no addresses");
    let expected = "no server could be reached at no address: none is configured";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn replaced_identity_uses_a_new_connection() {
    let fake = Fake::new(async |mut peer| {
        let context = peer.accept_simple().await.expect("a context");
        let user = super::wire::Fields::parse(context.bytes(2).expect("a user"));
        let name = user.text(1).expect("a name");
        while let Some(call) = peer.call().await {
            peer.reply(call.id, name.as_bytes()).await;
        }
    });
    let channel = fake.channel(&["rm"], alice(), no_retry());
    assert_eq!(call(&channel, b"").await, Ok(b"alice".to_vec()));
    channel.replace_identity(Identity::simple("bob"));
    assert_eq!(call(&channel, b"").await, Ok(b"bob".to_vec()));
    assert_eq!(fake.connection_count(), 2);
}
