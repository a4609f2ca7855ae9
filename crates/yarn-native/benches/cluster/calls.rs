//! Calls per second on one connection, yarn-native and Hadoop's client alternately.

use std::process::Command;
use std::time::{Duration, Instant};

use testbed::Cluster;
use tokio::task::JoinSet;

use crate::figures::line;
use crate::{client, soon};

const ROUNDS: usize = 5;
const IN_FLIGHT: usize = 64;
const CALLS: usize = 4_000;

/// Measures `getClusterMetrics`, sequential and with many calls in flight.
pub async fn per_second(cluster: &Cluster) {
    // Warms up the server and its JIT with as many calls as are measured.
    let (_, _) = (native(cluster, 1).await, native(cluster, IN_FLIGHT).await);
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let [one, many] = java(cluster);
        let rates = [one, native(cluster, 1).await, many, native(cluster, IN_FLIGHT).await];
        for (all, rate) in figures.iter_mut().zip(rates) {
            all.push(rate);
        }
    }
    let [java_one, native_one, java_many, native_many] = figures;
    let java = line("sequential calls, Hadoop's client", "calls/s", java_one);
    let one = line("sequential calls, yarn-native", "calls/s", native_one);
    println!("{:<58} {:>9.1} times as many", "", one / java);
    let java = line("calls, 64 in flight, Hadoop's client (64 threads)", "calls/s", java_many);
    let many = line("calls, 64 in flight, yarn-native (one thread)", "calls/s", native_many);
    println!("{:<58} {:>9.1} times as many", "", many / java);
}

async fn native(cluster: &Cluster, in_flight: usize) -> f64 {
    let client = client(cluster);
    client.cluster_metrics(soon()).await.expect("metrics");
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..CALLS / in_flight {
                client.cluster_metrics(soon()).await.expect("metrics");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no call fails");
    }
    (CALLS / in_flight * in_flight) as f64 / began.elapsed().as_secs_f64()
}

/// Measures the same calls with a small Java program, which prints both rates.
fn java(cluster: &Cluster) -> [f64; 2] {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/Calls.java");
    let prepared = cluster.hadoop(source).expect("a command");
    // The test bed's flags trade peak speed for a fast start of the JVM; drop them here.
    let mut command = Command::new(prepared.get_program());
    let quick_start = ["-XX:TieredStopAtLevel=1", "-Xshare"];
    let arguments = prepared.get_args().filter(|argument| {
        let text = argument.to_string_lossy();
        !quick_start.iter().any(|flag| text.starts_with(flag))
    });
    command.args(arguments);
    for (name, value) in prepared.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.args([CALLS.to_string(), IN_FLIGHT.to_string()]);
    let output = testbed::run(&mut command, Duration::from_secs(120)).expect("Java");
    let words = output.text.lines().last().unwrap_or_default().split(' ');
    let rates: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    rates.try_into().unwrap_or_else(|_| panic!("{}", output.text))
}
