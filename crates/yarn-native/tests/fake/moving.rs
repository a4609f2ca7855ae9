//! Servers that stand by, restart and move.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use yarn_native::client::Client;
use yarn_native::rpc::{Options, RpcError, Safety};
use yarn_native::security::Identity;

use super::faults::{call, impatient, soon};
use super::server::{Fake, Peer, token};

async fn accepted(mut peer: Peer) -> Peer {
    peer.accept_simple().await;
    peer
}

fn alice() -> Identity {
    Identity::simple("alice")
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_connections_is_passed_over() {
    let fake = Fake::picky(|peer| match peer.host.as_str() {
        "rm2" => Some(Box::pin(async { accepted(peer).await.echo().await })),
        _ => None,
    });
    let channel = fake.channel(&["rm1", "rm2"], alice(), Options::default());
    assert_eq!(call(&channel, b"1").await, Ok(b"1".to_vec()));
    assert_eq!(call(&channel, b"2").await, Ok(b"2".to_vec()));
    assert_eq!(fake.seen(), ["rm1", "rm2"], "the second call begins where the first ended");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_sense_is_blamed_on_whoever_gave_it() {
    let fake = Fake::picky(|peer| match peer.host.as_str() {
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
async fn without_patience_each_server_has_one_chance() {
    let fake = Fake::picky(|_| None);
    let channel = fake.channel(&["rm1", "rm2", "rm3"], alice(), impatient());
    let error = call(&channel, b"").await.expect_err("nobody is there");
    assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
    assert_eq!(fake.seen(), ["rm1", "rm2", "rm3"]);
}

#[tokio::test(start_paused = true)]
async fn servers_that_flap_are_followed_until_one_is_active() {
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
    // Even what must not be done twice is tried again: a server that stands by has done nothing.
    let answer = call(&channel, b"").await.expect("the tenth try is answered");
    assert_eq!(answer, 9i64.to_be_bytes(), "each try says which it is");
    assert_eq!(fake.dialled(), 2, "both connections are kept");
}

#[tokio::test(start_paused = true)]
async fn servers_that_flap_for_ever_are_given_up_in_time() {
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
    let expected = "no server at rm1:8032, rm2:8032 is active: so it said (`StandbyException`)";
    assert_eq!(error.to_string(), expected);
    assert!((18..=20).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_only_where_that_is_safe() {
    let make = || {
        Fake::new(async |peer| {
            let mut peer = accepted(peer).await;
            if peer.number == 0 {
                // Carried out, but not answered.
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
    assert_eq!(fake.dialled(), 2);

    let fake = make();
    let channel = fake.channel(&["rm"], alice(), Options::default());
    let error = channel.call_raw("start", b"x", soon(), Safety::Once).await.expect_err("lost");
    assert!(matches!(error, RpcError::Unanswered { method: "start", .. }), "{error}");
    assert_eq!(fake.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retried_call_keeps_its_id_and_counts_its_tries() {
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
    answer.expect("the third try is answered");
    assert_eq!(*ids.lock().expect("no panic"), [(0, 0), (0, 1), (0, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_patience_is_asked_again_later() {
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
    assert_eq!(fake.seen(), ["rm1"]);
    assert!(began.elapsed() >= Duration::from_millis(350), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_tried_until_patience_or_the_deadline_ends() {
    let fake = Fake::picky(|_| None);
    let options = Options { retry_timeout: Duration::from_secs(5), ..Options::default() };
    let channel = fake.channel(&["rm"], alice(), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("nobody is there");
    let expected = "no server could be reached at rm:8032: connection refused";
    assert_eq!(error.to_string(), expected);
    assert!((4..=5).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());

    let channel = fake.channel(&["rm"], alice(), Options::default());
    let deadline = Instant::now() + Duration::from_secs(2);
    let error = channel.call_raw("aMethod", b"", deadline, Safety::Once).await;
    assert_eq!(error.expect_err("nobody is there").to_string(), expected);
    assert!(Instant::now() <= deadline);
    assert!(fake.dialled() < 40, "it does not hammer: {}", fake.dialled());
}

#[tokio::test(start_paused = true)]
async fn patience_ends_also_where_no_pause_is_configured() {
    let fake = Fake::picky(|_| None);
    let options = Options {
        retry_timeout: Duration::from_secs(5),
        backoff_max: Duration::ZERO,
        ..Options::default()
    };
    let channel = fake.channel(&["rm1", "rm2"], alice(), options);
    let began = Instant::now();
    let error = call(&channel, b"").await.expect_err("nobody is there");
    assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
    assert!(began.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn times_without_end_are_only_long() {
    let endless = || Options {
        connect_timeout: Duration::MAX,
        read_timeout: Duration::MAX,
        ping_interval: Duration::MAX,
        idle_timeout: Duration::MAX,
        retry_timeout: Duration::MAX,
        backoff_max: Duration::MAX,
        ..Options::default()
    };
    let fake = Fake::new(async |peer| accepted(peer).await.echo().await);
    let channel = fake.channel(&["rm"], alice(), endless());
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
    let nobody = Fake::picky(|_| None).channel(&["rm"], alice(), endless());
    let error = call(&nobody, b"").await.expect_err("nobody is there");
    assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_is_left_for_another() {
    let fake = Fake::new(async |mut peer| match peer.host.as_str() {
        "rm1" => {
            // It listens and is stopped, as by SIGSTOP.
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
    assert_eq!(fake.seen(), ["rm1", "rm2"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_deadline_in_silence_the_next_call_goes_to_the_other_server() {
    let fake = Fake::new(async |peer| {
        let mut peer = accepted(peer).await;
        match peer.host.as_str() {
            "rm1" => while peer.call().await.is_some() {},
            _ => peer.echo().await,
        }
    });
    let channel = fake.channel(&["rm1", "rm2"], alice(), impatient());
    let deadline = Instant::now() + Duration::from_secs(1);
    let error = channel.call_raw("aMethod", b"", deadline, Safety::Once).await;
    assert!(matches!(error, Err(RpcError::DeadlinePassed { .. })));
    assert_eq!(call(&channel, b"x").await, Ok(b"x".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_left_once_may_have_been_carried_out_although_it_did_not_leave_again() {
    let fake = Fake::new(async |mut peer| {
        match peer.number {
            0 => {
                peer.accept_token("auth").await;
                peer.call().await;
            }
            // It listens and is stopped.
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
async fn a_channel_without_addresses_says_so() {
    let fake = Fake::picky(|_| None);
    let channel = fake.channel(&[], alice(), Options::default());
    let error = call(&channel, b"").await.expect_err("nowhere to go");
    let expected = "no server could be reached at no address: none is configured";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_identity_is_shown_over_a_new_connection() {
    let fake = Fake::new(async |mut peer| {
        let context = peer.accept_simple().await.expect("a context");
        let user = super::wire::Fields::parse(context.bytes(2).expect("a user"));
        let name = user.text(1).expect("a name");
        while let Some(call) = peer.call().await {
            peer.reply(call.id, name.as_bytes()).await;
        }
    });
    let channel = fake.channel(&["rm"], alice(), impatient());
    assert_eq!(call(&channel, b"").await, Ok(b"alice".to_vec()));
    channel.replace_identity(Identity::simple("bob"));
    assert_eq!(call(&channel, b"").await, Ok(b"bob".to_vec()));
    assert_eq!(fake.dialled(), 2);
}
