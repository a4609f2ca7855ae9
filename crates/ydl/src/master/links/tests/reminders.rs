//! Newcomers are announced repeatedly until the other workers reset.

use super::*;
use std::time::Duration;
use ydl_net::text::from_base64;

/// Address of a worker's notification listener: port 40000.
const LISTENS: &str = "gAWVXQAAAAAAAAB9lCiMBGV0aDCUXZSMCDEwLjAuMC43lE1AnIaUYYwCbG+UXZSMCTEyNy4wLjAuMZRNQJyGlGF1QyAA\
    AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eH5SGlC4=";
/// Its response to a notification.
const TAKEN: &str = "xB7bqWUL1/G8ZIEX223L1G1Kr2OYTwcbVUvxIss6NBhEAAAAgAWVOQAAAAAAAACMImhvcm92b2QucnVubmVyLmNvbW1vbi51\
    dGlsLm5ldHdvcmuUjAtBY2tSZXNwb25zZZSTlCmBlC4=";

impl Scene {
    /// Registers the first worker's listener. Returns the number of connections to it.
    fn listens(&mut self) -> usize {
        let call = ConnId::Inbound(2);
        let (path, length) = ("/worker_addresses/worker-0:0", LISTENS.len());
        let said = format!("PUT {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{LISTENS}");
        let ups = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, said.into_bytes())];
        calls(&self.say("c0", ups))
    }

    /// Accepts a connection and answers a notification without acting on it.
    fn takes(&mut self, call: u64) {
        let call = ConnId::Outbound(call);
        let taken = from_base64(TAKEN).expect("base64");
        let ups = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, taken)];
        let told = answers(&self.say("c0", ups));
        assert_eq!(told, 1);
    }

    /// Advances one second. Returns the number of connections.
    fn second(&mut self, now: &mut Instant) -> usize {
        *now += Duration::from_secs(1);
        let (keep, passed) = self.links.remind(*now);
        let round = self.links.round();
        let linked = keep.into_iter().map(|kept| Entry::Linked(round, kept));
        self.diary.extend(linked);
        calls(&passed)
    }
}

fn calls(passed: &[Passed]) -> usize {
    let called = |passed: &&Passed| matches!(passed.down, ServerFrame::Dial(_, 40_000));
    passed.iter().filter(called).count()
}

#[test]
fn a_newcomer_whom_nobody_heeds_is_announced_again() {
    let mut scene = Scene::new();
    scene.up("c0");
    scene.happen(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    scene.up("c1");
    scene.happen(Event::Ticked);
    let mut now = Instant::now();
    scene.attach("c0");
    scene.attach("c1");
    assert_eq!(scene.put("c1", 1), 0, "the newcomer waits");
    assert_eq!(scene.second(&mut now), 0, "nobody listens yet");
    assert_eq!(scene.listens(), 1);
    let seconds = |scene: &mut Scene, now: &mut Instant, count: u32| -> Vec<usize> {
        (0..count).map(|_| scene.second(now)).collect()
    };
    assert_eq!(seconds(&mut scene, &mut now, 3), [0, 0, 0], "one at a time");
    scene.takes(1);
    // Detected as ignored, and repeated after one second, then two, then four.
    assert_eq!(seconds(&mut scene, &mut now, 2), [0, 1]);
    scene.takes(2);
    assert_eq!(seconds(&mut scene, &mut now, 3), [0, 0, 1]);
    scene.takes(3);
    // A new master knows the number of announcements and starts its timers again.
    let mut heir = scene.heir();
    for name in ["c0", "c1"] {
        heir.attach(name);
    }
    assert_eq!(heir.put("c1", 1), 0, "the newcomer waits still");
    assert_eq!(seconds(&mut heir, &mut now, 5), [0, 0, 0, 0, 1]);
    heir.takes(4);
    // Now the worker resets.
    assert_eq!(heir.ask("c0", 0), 2, "a world of two begins");
    assert_eq!(seconds(&mut heir, &mut now, 20), [0; 20]);
}
