//! One connection that goes wrong.

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

/// No second chance, so that the first failure is seen.
pub fn impatient() -> Options {
    Options { retry_timeout: Duration::ZERO, ..Options::default() }
}

pub async fn call(channel: &Channel, body: &[u8]) -> Result<Vec<u8>, RpcError> {
    let answer = channel.call_raw("aMethod", body, soon(), Safety::Once).await;
    answer.map(|answer| answer.to_vec())
}

fn simple(fake: &Arc<Fake>) -> Channel {
    fake.channel(&["rm"], Identity::simple("alice"), impatient())
}

async fn accepted(mut peer: Peer) -> Peer {
    peer.accept_simple().await;
    peer
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered() {
    let fake = Fake::new(async |peer| accepted(peer).await.echo().await);
    assert_eq!(call(&simple(&fake), b"hello").await, Ok(b"hello".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn many_calls_share_a_connection_and_are_answered_in_any_order() {
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
    for waiting in calls {
        let (answer, i) = waiting.await.expect("no panic");
        assert_eq!(answer, Ok(vec![i]));
    }
    assert_eq!(fake.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_answer_is_no_answer() {
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
async fn a_huge_length_is_refused_at_once() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        peer.call().await;
        peer.write(&0x7fff_ffffu32.to_be_bytes()).await;
        pending().await
    });
    let began = Instant::now();
    let error = call(&simple(&fake), b"").await.expect_err("nothing is that long");
    assert!(matches!(&error, RpcError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("it announces 2147483647 bytes"), "{error}");
    assert_eq!(Instant::now(), began);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_call_nobody_made_ends_the_connection() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let call = peer.call().await.expect("a call");
        peer.reply(call.id + 7, b"").await;
        pending().await
    });
    let error = call(&simple(&fake), b"").await.expect_err("it was another call");
    assert!(error.to_string().contains("it answered call 7, which was not made"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_disturbs_nobody() {
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
    let error = late.expect_err("nobody answered in time");
    assert!(matches!(error, RpcError::DeadlinePassed { sent: true, .. }), "{error}");
    assert_eq!(call(&channel, b"").await, Ok(b"in time".to_vec()));
    assert_eq!(fake.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_says_anything_is_given_up() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        while peer.call().await.is_some() {}
    });
    let options = Options { read_timeout: Duration::from_secs(5), ..impatient() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("nobody answers");
    assert!(matches!(error, RpcError::Unanswered { .. }), "{error}");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_does_not_hold_a_caller_beyond_its_deadline() {
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
    for waiting in calls {
        let error = waiting.await.expect("no panic").expect_err("nobody reads");
        assert!(matches!(error, RpcError::DeadlinePassed { .. }), "{error}");
    }
    assert_eq!(Instant::now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_does_not_take_is_not_heaped_up_for_it() {
    let fake = Fake::new(async |peer| {
        let _taking_nothing = accepted(peer).await;
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
    let mut kept_back = 0;
    for call in calls {
        let outcome = call.await.expect("no panic");
        let Err(RpcError::DeadlinePassed { sent, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        kept_back += usize::from(!sent);
    }
    assert!(kept_back > 50, "{kept_back} of 200 were kept back");
}

#[tokio::test(start_paused = true)]
async fn pings_are_sent_while_a_call_waits() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        let call = peer.call().await.expect("a call");
        let pinged = peer.ping().await && peer.ping().await;
        peer.reply(call.id, &[u8::from(pinged)]).await;
        pending().await
    });
    let options = Options { ping_interval: Duration::from_secs(2), ..impatient() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let began = Instant::now();
    assert_eq!(call(&channel, b"").await, Ok(vec![1]));
    assert_eq!(began.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_made_again() {
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
    assert_eq!(fake.dialled(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_exception_fails_its_call_and_no_other() {
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
        "rm:8032 refused `aMethod`: so it said (`ApplicationNotFoundException`)"
    );
    let kind = error.exception().map(yarn_native::rpc::Exception::kind);
    assert_eq!(kind, Some(ExceptionKind::ApplicationNotFound));
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    assert_eq!(fake.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_done_and_what_is_unknown_are_told_apart() {
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
async fn a_refused_connection_says_why_although_the_pipe_is_broken() {
    let fake = Fake::new(async |mut peer| {
        peer.greeting().await;
        let class = "org.apache.hadoop.security.AccessControlException";
        let said = wire::exception(u32::MAX - 2, 2, class, "SIMPLE authentication is not enabled.");
        peer.write(&said).await;
        // Dropped with the client's bytes unread.
    });
    let channel = simple(&fake);
    // More than the pipe takes: the write must fail.
    let error = call(&channel, &vec![0; 1 << 20]).await.expect_err("refused");
    assert!(matches!(error, RpcError::Denied { .. }), "{error}");
    assert!(error.to_string().contains("SIMPLE authentication is not enabled."), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_fatal_answer_ends_all_calls_of_its_connection() {
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
    assert_eq!(errors[0], "rm:8032 may or may not have carried out `aMethod`: no more (`Y`)");
    assert_eq!(errors[1], "rm:8032 refused `aMethod`: no more (`Y`)");
    assert_eq!(call(&channel, b"4").await, Ok(b"4".to_vec()), "over a new connection");
}

#[tokio::test(start_paused = true)]
async fn a_web_port_is_recognised() {
    let fake = Fake::new(async |mut peer| {
        let _ = peer.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        pending().await
    });
    let error = call(&simple(&fake), b"").await.expect_err("not Hadoop");
    assert_eq!(
        error.to_string(),
        "rm:8032 does not answer as a Hadoop server does: it speaks HTTP; this is a web port, \
         not an RPC port"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_long_is_not_sent() {
    let fake = Fake::new(async |peer| accepted(peer).await.echo().await);
    let options = Options { request_bytes_max: 10, ..impatient() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let error = call(&channel, &[0; 11]).await.expect_err("too long");
    assert_eq!(error.to_string(), "`aMethod` is 11 bytes long, and servers accept 10");
    assert_eq!(fake.dialled(), 0);
}

#[tokio::test(start_paused = true)]
async fn callers_beyond_the_limit_wait_for_their_turn() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let fake = Fake::new(move |peer| {
        let seen = seen.clone();
        async move {
            let mut peer = accepted(peer).await;
            loop {
                // All that is there, then answers.
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
    let options = Options { calls_max: 3, ..impatient() };
    let channel = fake.channel(&["rm"], Identity::simple("alice"), options);
    let calls: Vec<_> = (0..20u8)
        .map(|i| {
            let channel = channel.clone();
            tokio::spawn(async move { call(&channel, &[i]).await })
        })
        .collect();
    for waiting in calls {
        waiting.await.expect("no panic").expect("an answer");
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}
