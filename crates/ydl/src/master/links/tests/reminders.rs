//! Newcomers are announced repeatedly until the other workers reset.

use super::*;
use std::time::Duration;

/// Address of a worker's notification listener: port 40000.
const LISTENS: &str = "gAWVXQAAAAAAAAB9lCiMBGV0aDCUXZSMCDEwLjAuMC43lE1AnIaUYYwCbG+UXZSMCTEyNy4wLjAuMZRNQJyGlGF1QyAA\
    AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eH5SGlC4=";
/// Its response to a notification.
const TAKEN: &str = "c41edba9650bd7f1bc648117db6dcbd46d4aaf63984f071b554bf122cb3a34184400000080059539000000000000008c\
    22686f726f766f642e72756e6e65722e636f6d6d6f6e2e7574696c2e6e6574776f726b948c0b41636b526573706f6e73\
    659493942981942e";

impl LinksHarness {
    /// Registers the first worker's listener. Returns the number of connections to it.
    fn listens(&mut self) -> usize {
        let call = ConnId::Inbound(2);
        let (path, length) = ("/worker_addresses/worker-0:0", LISTENS.len());
        let request = format!("PUT {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{LISTENS}");
        let frames =
            vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, request.into_bytes())];
        calls(&self.send("c0", frames))
    }

    /// Accepts a connection and answers a notification without acting on it.
    fn takes(&mut self, call: u64) {
        let call = ConnId::Outbound(call);
        let taken = hex::decode(TAKEN).expect("hex");
        let frames = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, taken)];
        let sent = answers(&self.send("c0", frames));
        assert_eq!(sent, 1);
    }

    /// Advances one second. Returns the number of connections.
    fn second(&mut self, now: &mut Instant) -> usize {
        *now += Duration::from_secs(1);
        let (records, frames_out) = self.links.retry_due(*now);
        let round = self.links.round();
        let linked = records.into_iter().map(|record| JournalEntry::Link(round, record));
        self.journal.extend(linked);
        calls(&frames_out)
    }
}

fn calls(frames: &[OutgoingFrame]) -> usize {
    let is_dial =
        |outgoing: &&OutgoingFrame| matches!(outgoing.frame, ServerFrame::Dial(_, 40_000));
    frames.iter().filter(is_dial).count()
}

#[test]
fn an_ignored_newcomer_is_announced_again() {
    let mut harness = LinksHarness::new();
    harness.up("c0");
    harness.apply(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    harness.up("c1");
    harness.apply(Event::Ticked);
    let mut now = Instant::now();
    harness.attach("c0");
    harness.attach("c1");
    assert_eq!(harness.put("c1", 1), 0, "the new worker does not wait");
    assert_eq!(harness.second(&mut now), 0, "a reminder without a listener");
    assert_eq!(harness.listens(), 1);
    let seconds = |harness: &mut LinksHarness, now: &mut Instant, count: u32| -> Vec<usize> {
        (0..count).map(|_| harness.second(now)).collect()
    };
    assert_eq!(seconds(&mut harness, &mut now, 3), [0, 0, 0], "more than one reminder");
    harness.takes(1);
    // Detected as ignored, and repeated after one second, then two, then four.
    assert_eq!(seconds(&mut harness, &mut now, 2), [0, 1]);
    harness.takes(2);
    assert_eq!(seconds(&mut harness, &mut now, 3), [0, 0, 1]);
    harness.takes(3);
    // A new master knows the number of announcements and starts its timers again.
    let mut successor = harness.successor();
    for name in ["c0", "c1"] {
        successor.attach(name);
    }
    assert_eq!(successor.put("c1", 1), 0, "the new worker does not wait");
    assert_eq!(seconds(&mut successor, &mut now, 5), [0, 0, 0, 0, 1]);
    successor.takes(4);
    // Now the worker resets.
    assert_eq!(successor.ask("c0", 0), 2, "no world of two");
    assert_eq!(seconds(&mut successor, &mut now, 20), [0; 20]);
}
