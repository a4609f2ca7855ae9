//! The rendezvous that the master serves, beside the frameworks' own: the same clients against both, in one run.
//!
//! A client is a process that says what a framework's library says, byte by byte, and nothing else. Ours are the tasks of
//! a job on this machine, so that what they say goes the whole way: to the agent's port, over TLS to the master, into its
//! diary, and back. Theirs are started side by side by this program and speak to the framework's own server directly.

mod client;
mod ours;
mod starter;
mod theirs;

use client::Kind;
use starter::{Clients, Starter};
use std::time::Duration;

const CLIENTS: [usize; 2] = [16, 256];
/// Of one client, one after the other.
const OPERATIONS: u32 = 5_000;
/// Of all nodes.
const BARRIERS: u32 = 20;

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("client") {
        let (kind, starter) = (words.next(), words.next());
        return client::run(&kind.unwrap_or_default(), &starter.unwrap_or_default());
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
        let starter = Starter::new();
        let theirs = theirs::start(kind, count, &starter);
        let their_times = measure(kind, &starter.gather(count));
        drop(theirs);
        let ours = ours::start(kind, count, &starter);
        let our_times = measure(kind, &starter.gather(count));
        drop(ours);
        let whose = kind.theirs();
        for ((what, their_time), (_, our_time)) in their_times.iter().zip(&our_times) {
            let what = format!("{}: {what}", kind.name());
            println!(
                "{what:<48} {count:>4} clients   ydl {:>9.3} ms   {whose} {:>9.3} ms   {:>6.2} times",
                our_time.as_secs_f64() * 1e3,
                their_time.as_secs_f64() * 1e3,
                their_time.as_secs_f64() / our_time.as_secs_f64(),
            );
        }
    }
}

/// What a kind of client does, step by step, and how long each took all of them.
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
