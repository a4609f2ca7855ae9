//! Cost of yarn-native against a real ResourceManager, compared with Hadoop's own client in the
//! same run.
//!
//! Requires the examples in the same profile (`bench/run` builds them), Java with its compiler, and
//! the test bed.

mod calls;
mod exchange;
mod figures;
mod programs;
mod tap;

use std::sync::Arc;
use std::time::Duration;

use testbed::{Cluster, Hdfs, Options, Version};
use tokio::time::{Instant, sleep};
use yarn_native::client::{Client, Submission};
use yarn_native::rpc::{self, Address, Channel, Dial, Protocol};
use yarn_native::scheduler::{AmRmClient, Registration};
use yarn_native::security::Identity;

/// Larger than any allocate call asks for. Only the scheduler counts it.
const NODE_MEMORY_MIB: u32 = 4 << 20;
const NODE_VCORES: u32 = 50_000;
const NODES: usize = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = Cluster::start(Options {
        nodes: NODES,
        hdfs: Hdfs::None,
        node_memory_mib: NODE_MEMORY_MIB,
        node_vcores: NODE_VCORES,
        ..Options::new(Version::NEWEST)
    })
    .expect("a cluster");
    let version = Version::NEWEST;
    println!("Hadoop {version}, one ResourceManager, {NODES} NodeManagers");
    // An application to list.
    let _running = master(&cluster, Arc::new(rpc::Tcp)).await;
    programs::listing(&cluster);
    programs::memory_of_run(&cluster).await;
    calls::per_second(&cluster).await;
    exchange::of_ten_thousand(&cluster).await;
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

fn client(cluster: &Cluster) -> Client {
    let rm = &cluster.resource_managers()[0].client;
    let address = Address::new(rm.ip().to_string(), rm.port());
    let identity = Identity::simple(cluster.own_user());
    Client::new(vec![address], identity, rpc::Options::default()).expect("a client")
}

/// Registers an unmanaged master over streams opened by `dial`.
async fn master(cluster: &Cluster, dial: Arc<dyn Dial>) -> AmRmClient {
    let client = client(cluster);
    let id = client.new_application(soon()).await.expect("an id").id;
    let submission = Submission { unmanaged: true, ..Submission::new(id, "bench") };
    client.submit(&submission, soon()).await.expect("submitted");
    let deadline = soon();
    let token = loop {
        match client.master_token(id, deadline).await.expect("a report") {
            Some(token) => break token,
            None => sleep(Duration::from_millis(50)).await,
        }
    };
    let rm = &cluster.resource_managers()[0].scheduler;
    let address = Address::new(rm.ip().to_string(), rm.port());
    let (protocol, identity) = (Protocol::APPLICATION_MASTER, Identity::token(token));
    let options = rpc::Options::default();
    let channel = Channel::over(dial, protocol, vec![address], identity, options);
    let mut scheduler = AmRmClient::with_channel(channel.expect("a channel"));
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await.expect("registered");
    scheduler
}
