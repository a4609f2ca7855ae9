//! Faults of a single connection.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use yarn_native::rpc::{Channel, ExceptionKind, Options, RpcError, Safety};
use yarn_native::security::Identity;

use super::server::{Fake, Peer};
use super::wire;

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Options without retries, so that the first failure is returned.
pub fn no_retry() -> Options {
    Options { retry_timeout: Duration::ZERO, ..Options::default() }
}

pub async fn call(channel: &Channel, body: &[u8]) -> Result<Vec<u8>, RpcError> {
    let answer = channel.call_raw("aMethod", body, soon(), Safety::Once).await;
    answer.map(|answer| answer.to_vec())
}

fn simple(fake: &Arc<Fake>) -> Channel {
    fake.channel(&["rm"], Identity::simple("alice"), no_retry())
}

async fn accepted(mut peer: Peer) -> Peer {
    peer.accept_simple().await;
    peer
}

#[tokio::test(start_paused = true)]
async fn call_receives_its_response() {
    let fake = Fake::new(async |peer| accepted(peer).await.echo().await);
    assert_eq!(call(&simple(&fake), b"hello").await, Ok(b"hello".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_a_connection_and_complete_in_any_order() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let mut calls = Vec::new();
        for _ in 0..100 {
            calls.extend(peer.call().await);
        }
        for call in calls.iter().rev() {
            peer.reply(call.id, &call.body).await;
        }
        pending().await
    });
    let channel = simple(&fake);
    let calls: Vec<_> = (0..100u8)
        .map(|i| {
            let channel = channel.clone();
            tokio::spawn(async move { (call(&channel, &[i]).await, i) })
        })
        .collect();
    for task in calls {
        let (answer, i) = task.await.expect("no panic");
        assert_eq!(answer, Ok(vec![i]));
    }
    assert_eq!(fake.connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn truncated_response_fails_the_call() {
    let whole = wire::success(0, b"an answer");
    for end in 0..whole.len() {
        let part = whole[..end].to_vec();
        let fake = Fake::new(move |peer| {
            let part = part.clone();
            async move {
                let mut peer = accepted(peer).await;
                peer.call().await;
                peer.write(&part).await;
            }
        });
        let error = call(&simple(&fake), b"").await.expect_err("it was cut off");
        let RpcError::Unanswered { reason, .. } = error else { panic!("{end}: {error}") };
        assert_eq!(reason.contains("in the middle"), end > 0, "{end}: {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_response_is_rejected_immediately() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        peer.call().await;
        peer.write(&0x7fff_ffffu32.to_be_bytes()).await;
        pending().await
    });
    let began = Instant::now();
    let error = call(&simple(&fake), b"").await.expect_err("oversized");
    assert!(matches!(&error, RpcError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("frame of 2147483647 bytes exceeds the limit"), "{error}");
    assert_eq!(Instant::now(), began);
}

#[tokio::test(start_paused = true)]
async fn unsolicited_response_closes_the_connection() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let call = peer.call().await.expect("a call");
        peer.reply(call.id + 7, b"").await;
        pending().await
    });
    let error = call(&simple(&fake), b"").await.expect_err("unknown call");
    assert!(error.to_string().contains("response to unknown call 7"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn late_response_does_not_affect_other_calls() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let first = peer.call().await.expect("a first call");
        let second = peer.call().await.expect("a second call");
        peer.reply(first.id, b"late").await;
        peer.reply(second.id, b"in time").await;
        pending().await
    });
    let channel = simple(&fake);
    let deadline = Instant::now() + Duration::from_secs(1);
    let late = channel.call_raw("aMethod", b"", deadline, Safety::Once).await;
    let error = late.expect_err("deadline exceeded");
    assert!(matches!(error, RpcError::DeadlinePassed { sent: true, .. }), "{error}");
    assert_eq!(call(&channel, b"").await, Ok(b"in time".to_vec()));
    assert_eq!(fake.connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn silent_server_hits_the_read_timeout() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        while peer.call().await.is_some() {}
    });
    let options = Options { read_timeout: Duration::from_secs(5), ..no_retry() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("no response");
    assert!(matches!(error, RpcError::Unanswered { .. }), "{error}");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn deadline_applies_when_the_server_reads_nothing() {
    let fake = Fake::new(async |peer| {
        let _peer = peer;
        pending().await
    });
    let channel = simple(&fake);
    let large = vec![0; 10 << 20];
    let deadline = Instant::now() + Duration::from_secs(3);
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let (channel, large) = (channel.clone(), large[..200 << 10].to_vec());
            tokio::spawn(async move {
                channel.call_raw("aMethod", &large, deadline, Safety::Once).await
            })
        })
        .collect();
    for task in calls {
        let error = task.await.expect("no panic").expect_err("the server does not read");
        assert!(matches!(error, RpcError::DeadlinePassed { .. }), "{error}");
    }
    assert_eq!(Instant::now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn unread_requests_are_not_buffered_without_limit() {
    let fake = Fake::new(async |peer| {
        let _unread = accepted(peer).await;
        pending().await
    });
    let channel = simple(&fake);
    let deadline = Instant::now() + Duration::from_secs(5);
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let channel = channel.clone();
            let body = [0; 64 << 10];
            tokio::spawn(
                async move { channel.call_raw("aMethod", &body, deadline, Safety::Once).await },
            )
        })
        .collect();
    let mut not_sent = 0;
    for call in calls {
        let outcome = call.await.expect("no panic");
        let Err(RpcError::DeadlinePassed { sent, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        not_sent += usize::from(!sent);
    }
    assert!(not_sent > 50, "{not_sent} of 200 were not sent");
}

#[tokio::test(start_paused = true)]
async fn pings_are_sent_while_a_call_is_pending() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let call = peer.call().await.expect("a call");
        let pinged = peer.ping().await && peer.ping().await;
        peer.reply(call.id, &[u8::from(pinged)]).await;
        pending().await
    });
    let options = Options { ping_interval: Duration::from_secs(2), ..no_retry() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let began = Instant::now();
    assert_eq!(call(&channel, b"").await, Ok(vec![1]));
    assert_eq!(began.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_and_reopened() {
    let closed = Arc::new(AtomicUsize::new(0));
    let counter = closed.clone();
    let fake = Fake::new(move |peer| {
        let counter = counter.clone();
        async move {
            accepted(peer).await.echo().await;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let channel = simple(&fake);
    assert_eq!(call(&channel, b"1").await, Ok(b"1".to_vec()));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(closed.load(Ordering::SeqCst), 1);
    assert_eq!(call(&channel, b"2").await, Ok(b"2".to_vec()));
    assert_eq!(fake.connection_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn exception_fails_only_its_call() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let first = peer.call().await.expect("a first call");
        peer.fail(first.id, "yarn.exceptions.ApplicationNotFoundException").await;
        peer.echo().await;
    });
    let channel = simple(&fake);
    let error = call(&channel, b"").await.expect_err("an exception");
    assert_eq!(
        error.to_string(),
        "rm:8032 rejected `aMethod`: the message (`ApplicationNotFoundException`)"
    );
    let kind = error.exception().map(yarn_native::rpc::Exception::kind);
    assert_eq!(kind, Some(ExceptionKind::ApplicationNotFound));
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    assert_eq!(fake.connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn denied_and_unsupported_calls_are_distinguished() {
    for (class, check) in [
        (
            "security.AccessControlException",
            (|error| matches!(error, RpcError::Denied { .. })) as fn(&RpcError) -> bool,
        ),
        ("security.authorize.AuthorizationException", |e| matches!(e, RpcError::Denied { .. })),
        ("ipc.RpcNoSuchMethodException", |e| matches!(e, RpcError::Unsupported { .. })),
        ("ipc.RpcNoSuchProtocolException", |e| matches!(e, RpcError::Unsupported { .. })),
        ("ipc.StandbyException", |e| matches!(e, RpcError::NoActiveServer { .. })),
        ("yarn.exceptions.YarnException", |e| matches!(e, RpcError::Rejected { .. })),
    ] {
        let fake = Fake::new(move |peer| async move {
            let mut peer = accepted(peer).await;
            while let Some(call) = peer.call().await {
                peer.fail(call.id, class).await;
            }
        });
        let error = call(&simple(&fake), b"").await.expect_err(class);
        assert!(check(&error), "{class}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejection_reason_is_read_after_a_broken_pipe() {
    let fake = Fake::new(async |mut peer| {
        peer.connection_header().await;
        let class = "org.apache.hadoop.security.AccessControlException";
        let rejection =
            wire::exception(u32::MAX - 2, 2, class, "SIMPLE authentication is not enabled.");
        peer.write(&rejection).await;
        // The stream is dropped with the client's bytes unread.
    });
    let channel = simple(&fake);
    // More than the pipe's buffer, so that the write fails.
    let error = call(&channel, &vec![0; 1 << 20]).await.expect_err("rejected");
    assert!(matches!(error, RpcError::Denied { .. }), "{error}");
    assert!(error.to_string().contains("SIMPLE authentication is not enabled."), "{error}");
}

#[tokio::test(start_paused = true)]
async fn fatal_response_fails_all_calls_of_its_connection() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        if peer.number == 0 {
            let first = peer.call().await.expect("a first call");
            peer.reply(first.id, b"").await;
            let second = peer.call().await.expect("a second call");
            peer.call().await.expect("a third call");
            peer.write(&wire::exception(second.id, 2, "x.Y", "no more")).await;
        }
        peer.echo().await;
    });
    let channel = simple(&fake);
    call(&channel, b"").await.expect("an answer");
    let (second, third) = tokio::join!(call(&channel, b"2"), call(&channel, b"3"));
    let mut errors = [second, third].map(|outcome| outcome.expect_err("fatal").to_string());
    errors.sort();
    assert_eq!(
        errors[0],
        "no response from rm:8032 to `aMethod`, which may have been executed: no more (`Y`)"
    );
    assert_eq!(errors[1], "rm:8032 rejected `aMethod`: no more (`Y`)");
    assert_eq!(call(&channel, b"4").await, Ok(b"4".to_vec()), "over a new connection");
}

#[tokio::test(start_paused = true)]
async fn web_port_is_detected() {
    let fake = Fake::new(async |mut peer| {
        let _ = peer.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        pending().await
    });
    let error = call(&simple(&fake), b"").await.expect_err("not Hadoop");
    assert_eq!(
        error.to_string(),
        "Hadoop RPC protocol error at rm:8032: the server speaks HTTP: this is a web port, \
         not an RPC port"
    );
}

#[tokio::test(start_paused = true)]
async fn oversized_request_is_not_sent() {
    let fake = Fake::new(async |peer| accepted(peer).await.echo().await);
    let options = Options { request_bytes_max: 10, ..no_retry() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let error = call(&channel, &[0; 11]).await.expect_err("too long");
    assert_eq!(error.to_string(), "request `aMethod` has 11 bytes, the limit is 10");
    assert_eq!(fake.connection_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_are_queued() {
    let max_pending = Arc::new(AtomicUsize::new(0));
    let seen = max_pending.clone();
    let fake = Fake::new(move |peer| {
        let seen = seen.clone();
        async move {
            let mut peer = accepted(peer).await;
            loop {
                // Collects all pending calls, then answers them.
                let mut calls = Vec::new();
                while let Ok(call) =
                    tokio::time::timeout(Duration::from_millis(10), peer.call()).await
                {
                    let Some(call) = call else { return };
                    calls.push(call);
                }
                seen.fetch_max(calls.len(), Ordering::SeqCst);
                for call in calls {
                    peer.reply(call.id, &call.body).await;
                }
            }
        }
    });
    let options = Options { calls_max: 3, ..no_retry() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let calls: Vec<_> = (0..20u8)
        .map(|i| {
            let channel = channel.clone();
            tokio::spawn(async move { call(&channel, &[i]).await })
        })
        .collect();
    for task in calls {
        task.await.expect("no panic").expect("an answer");
    }
    assert_eq!(max_pending.load(Ordering::SeqCst), 3);
}
