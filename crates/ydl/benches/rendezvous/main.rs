//! The master's rendezvous compared with the frameworks' own servers: the same clients against both, in one run.
//!
//! A client is a process that sends the same bytes as a framework's library. With ydl, clients are tasks of a job on this
//! machine: their messages go to the agent's port, over TLS to the master, into its journal, and back. Otherwise this
//! program starts the clients, and they talk to the framework's own server directly.

mod client;
mod framework_server;
mod steps;
mod ydl_job;

use client::Kind;
use std::time::Duration;
use steps::{Clients, Coordinator};

const CLIENTS: [usize; 2] = [16, 256];
/// Sequential operations of one client.
const OPERATIONS: u32 = 5_000;
/// Barriers of all nodes.
const BARRIERS: u32 = 20;

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("client") {
        let (kind, coordinator) = (words.next(), words.next());
        return client::run(&kind.unwrap_or_default(), &coordinator.unwrap_or_default());
    }
    let chosen: Option<String> = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    for kind in Kind::ALL {
        if chosen.as_deref().is_none_or(|name| name == kind.name()) {
            compare(kind);
        }
    }
}

fn compare(kind: Kind) {
    for count in CLIENTS {
        let coordinator = Coordinator::new();
        let server = framework_server::start(kind, count, &coordinator);
        let framework_times = measure(kind, &coordinator.gather(count));
        drop(server);
        let job = ydl_job::start(kind, count, &coordinator);
        let ydl_times = measure(kind, &coordinator.gather(count));
        drop(job);
        let server_name = kind.framework_server();
        for ((what, framework_time), (_, ydl_time)) in framework_times.iter().zip(&ydl_times) {
            let what = format!("{}: {what}", kind.name());
            println!(
                "{what:<48} {count:>4} clients   ydl {:>9.3} ms   {server_name} {:>9.3} ms   {:>6.2} times",
                ydl_time.as_secs_f64() * 1e3,
                framework_time.as_secs_f64() * 1e3,
                framework_time.as_secs_f64() / ydl_time.as_secs_f64(),
            );
        }
    }
}

/// Runs the steps of a kind of client; returns the time of each until the last client was done.
fn measure(kind: Kind, clients: &Clients) -> Vec<(&'static str, Duration)> {
    let mut all = vec![("until all have met", clients.step())];
    match kind {
        Kind::C10d => {
            let each = clients.step() / OPERATIONS;
            all.push(("one `add` of one client", each));
        }
        Kind::Pslite => all.push(("one barrier", clients.step() / BARRIERS)),
        Kind::Rabit | Kind::Xgboost => {}
    }
    clients.step();
    all
}
