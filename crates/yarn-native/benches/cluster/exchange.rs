//! One allocate call whose response grants ten thousand containers.

use std::sync::Arc;
use std::time::Duration;

use testbed::Cluster;
use tokio::time::{Instant, sleep};
use yarn_native::rpc::{self, Address, Channel, Protocol};
use yarn_native::scheduler::{AllocateRequest, AmRmClient, Ask, Registration};
use yarn_native::security::Identity;
use yarn_native::types::Resource;

use crate::figures::{line, reset_peak, status_mib};
use crate::tap::{Echo, Tap, last_message};
use crate::{client, master, soon};

const CONTAINERS: u32 = 10_000;
const REPEATS: usize = 15;

pub async fn of_ten_thousand(cluster: &Cluster) {
    let tap = Arc::new(Tap::default());
    let mut scheduler = master(cluster, tap.clone()).await;
    let ask = || AllocateRequest {
        asks: vec![Ask::anywhere(1, Resource::new(64, 1), CONTAINERS)],
        ..AllocateRequest::default()
    };
    let first = scheduler.allocate(ask, soon()).await.expect("a response");
    assert!(first.granted.is_empty(), "grants come with a later heartbeat");
    // The scheduler grants between two heartbeats; the nodes report when it is done.
    let (client, deadline) = (client(cluster), soon());
    let mut held = 0;
    while held < CONTAINERS as i32 && Instant::now() < deadline {
        sleep(Duration::from_millis(200)).await;
        let nodes = client.nodes(&[], deadline).await.expect("nodes");
        held = nodes.iter().map(|node| node.containers).sum();
    }
    tap.received.lock().expect("a heap").clear();
    let began = Instant::now();
    let response = scheduler.allocate(AllocateRequest::default, soon()).await.expect("a response");
    let took = began.elapsed().as_secs_f64() * 1e3;
    let granted = response.granted.len();
    let response = last_message(&tap.received.lock().expect("a heap"));
    let mib = response.len() as f64 / f64::from(1 << 20);
    println!(
        "one heartbeat of a real ResourceManager: {granted} containers, {mib:.1} MiB, {took:.0} ms"
    );
    measure_replay(response).await;
}

/// Replays the response from memory, so that only the client is measured.
async fn measure_replay(response: Vec<u8>) {
    let (address, identity) = (Address::new("memory", 1), Identity::simple("bench"));
    let dial = Arc::new(Echo { response });
    let options = rpc::Options::default();
    let protocol = Protocol::APPLICATION_MASTER;
    let channel = Channel::over(dial, protocol, vec![address], identity, options);
    let mut scheduler = AmRmClient::with_channel(channel.expect("a channel"));
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await.expect("registered");
    let own = std::process::id();
    let (mut times, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        reset_peak();
        let before = status_mib(own, "VmRSS");
        let began = Instant::now();
        let response =
            scheduler.allocate(AllocateRequest::default, soon()).await.expect("a response");
        times.push(began.elapsed().as_secs_f64() * 1e3);
        peaks.push(status_mib(own, "VmHWM") - before);
        assert!(!response.granted.is_empty());
    }
    line("the same response from memory, frame to types", "ms", times);
    println!("{:<58} {:>9.1} MiB peak growth, first call", "", peaks[0]);
}
