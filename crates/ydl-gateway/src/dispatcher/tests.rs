use std::time::Duration;

use super::*;
use crate::route_table::{Replica, ReplicaState};

fn dispatcher(concurrency: u32) -> Arc<Dispatcher> {
    let dispatcher = Arc::new(Dispatcher::new(Arc::default()));
    dispatcher.apply(&table(concurrency));
    dispatcher
}

fn table(concurrency: u32) -> RouteTable {
    let replica = Replica {
        id: "a".into(),
        address: "127.0.0.1:1".into(),
        revision: 1,
        weight: 1,
        state: ReplicaState::Serving,
        concurrency,
    };
    RouteTable { replicas: vec![replica], ..RouteTable::empty("server") }
}

fn limits(requests: usize) -> QueueLimits {
    QueueLimits { requests, bytes: 1000, wait: Duration::from_secs(3600) }
}

async fn acquire(dispatcher: &Arc<Dispatcher>, limits: QueueLimits) -> Result<Lease, NoReplica> {
    dispatcher.acquire(100, &[], &limits, Instant::now()).await
}

/// Starts a request and waits until it is in the queue.
async fn hold(dispatcher: &Arc<Dispatcher>) -> tokio::task::JoinHandle<Result<Lease, NoReplica>> {
    let before = dispatcher.load().1;
    let own = dispatcher.clone();
    let task = tokio::spawn(async move { acquire(&own, limits(9)).await });
    while dispatcher.load().1 == before {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test]
async fn requests_wait_in_order_for_a_busy_replica() {
    let dispatcher = dispatcher(1);
    let first = acquire(&dispatcher, limits(9)).await.unwrap();
    let second = hold(&dispatcher).await;
    let third = hold(&dispatcher).await;
    assert_eq!(dispatcher.load(), (1, 2));
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert!(!third.is_finished());
    drop(second);
    drop(third.await.unwrap().unwrap());
    assert_eq!(dispatcher.load(), (0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let dispatcher = dispatcher(1);
    let first = acquire(&dispatcher, limits(9)).await.unwrap();
    let second = hold(&dispatcher).await;
    let third = hold(&dispatcher).await;
    second.abort();
    second.await.unwrap_err();
    assert_eq!(dispatcher.load(), (1, 1));
    drop(first);
    let third = third.await.unwrap().unwrap();
    assert_eq!(&*third.picked.id, "a");
}

#[tokio::test]
async fn a_full_queue_and_a_long_wait_are_refused() {
    let dispatcher = dispatcher(1);
    let _first = acquire(&dispatcher, limits(9)).await.unwrap();
    let full = acquire(&dispatcher, limits(0)).await.unwrap_err();
    assert_eq!(full, NoReplica::Full(QueueFull::Requests));
    let large = dispatcher.acquire(1001, &[], &limits(9), Instant::now()).await.unwrap_err();
    assert_eq!(large, NoReplica::Full(QueueFull::Bytes));
    let now = QueueLimits { wait: Duration::ZERO, ..limits(9) };
    assert_eq!(acquire(&dispatcher, now).await.unwrap_err(), NoReplica::TimedOut);
    assert_eq!(dispatcher.load(), (1, 0));
}

#[tokio::test]
async fn a_new_table_serves_the_queue() {
    let dispatcher = dispatcher(1);
    let _first = acquire(&dispatcher, limits(9)).await.unwrap();
    let second = hold(&dispatcher).await;
    dispatcher.apply(&table(2));
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_retry_prefers_another_replica_but_takes_the_same() {
    let dispatcher = dispatcher(1);
    let tried = ["a".into()];
    let lease = dispatcher.acquire(0, &tried, &limits(0), Instant::now()).await.unwrap();
    assert_eq!(&*lease.picked.id, "a");
}
