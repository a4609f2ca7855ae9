//! Heartbeat interval: short while changes are expected, long when idle.

use std::time::Duration;
use tokio::time::Instant;

/// Interval right after a change. Schedulers that allocate at once have done so by then.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// Delay to combine a burst of requests into one heartbeat.
const COALESCE: Duration = Duration::from_millis(2);
/// Interval while containers are awaited. Nodes heartbeat once a second and grants come with their heartbeats.
const AWAITING_INTERVAL: Duration = Duration::from_millis(100);
/// Time without any change after which the idle interval applies.
const ACTIVE_PERIOD: Duration = Duration::from_secs(60);
/// Interval when idle. Completions and warnings also arrive with heartbeats.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct HeartbeatInterval {
    delay: Duration,
    /// Time of the last change.
    last_change: Instant,
    /// End of the last heartbeat.
    last_heartbeat: Instant,
    /// Time of the next heartbeat.
    due: Instant,
    idle: Duration,
}

impl HeartbeatInterval {
    /// Creates an interval for a master that expires after `expiry` without a heartbeat.
    pub(super) fn new(expiry: Duration, now: Instant) -> HeartbeatInterval {
        HeartbeatInterval {
            delay: MIN_INTERVAL,
            last_change: now,
            last_heartbeat: now,
            due: now,
            idle: IDLE_INTERVAL.min(expiry / 3).max(MIN_INTERVAL),
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Schedules a heartbeat to send a request.
    pub(super) fn send_soon(&mut self, now: Instant) {
        self.last_change = now;
        // `on_heartbeat` doubles this.
        self.delay = MIN_INTERVAL / 2;
        self.due = self.due.min((now + COALESCE).max(self.last_heartbeat + MIN_INTERVAL));
    }

    /// Schedules a heartbeat to receive an update that nodes report first.
    pub(super) fn poll_soon(&mut self, now: Instant) {
        self.last_change = now;
        self.delay = MIN_INTERVAL / 2;
        self.due = self.due.min((now + MIN_INTERVAL).max(self.last_heartbeat + MIN_INTERVAL));
    }

    /// Schedules the next heartbeat. `changed`: this one brought events. `awaiting`: containers are
    /// outstanding.
    pub(super) fn on_heartbeat(&mut self, changed: bool, awaiting: bool, now: Instant) {
        self.last_heartbeat = now;
        if changed {
            self.last_change = now;
            self.delay = MIN_INTERVAL;
        } else {
            let active = now.saturating_duration_since(self.last_change) < ACTIVE_PERIOD;
            let max = match awaiting && active {
                true => AWAITING_INTERVAL.min(self.idle),
                false => self.idle,
            };
            self.delay = (self.delay * 2).min(max);
        }
        self.due = now + self.delay;
    }

    /// Schedules the next heartbeat after a failure.
    pub(super) fn on_failure(&mut self, now: Instant) {
        self.last_heartbeat = now;
        self.due = now + self.idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the delays in ms between heartbeats without events.
    fn delays(
        interval: &mut HeartbeatInterval,
        awaiting: bool,
        now: &mut Instant,
        heartbeats: usize,
    ) -> Vec<u128> {
        let mut delays = Vec::new();
        for _ in 0..heartbeats {
            let began = *now;
            *now = interval.due();
            delays.push((*now - began).as_millis());
            interval.on_heartbeat(false, awaiting, *now);
        }
        delays
    }

    #[test]
    fn an_ask_is_sent_at_once_and_idle_heartbeats_slow_down() {
        let mut now = Instant::now();
        let mut interval = HeartbeatInterval::new(Duration::from_secs(600), now);
        interval.on_heartbeat(false, false, now);
        let idle_delays = delays(&mut interval, false, &mut now, 8);
        assert_eq!(idle_delays, [40, 80, 160, 320, 640, 1000, 1000, 1000]);
        now += Duration::from_millis(300);
        interval.send_soon(now);
        let due_after_ask = interval.due();
        assert_eq!(due_after_ask - now, COALESCE);
        interval.on_heartbeat(false, true, due_after_ask);
        now = due_after_ask;
        let awaiting_delays = delays(&mut interval, true, &mut now, 5);
        assert_eq!(awaiting_delays, [20, 40, 80, 100, 100]);
        now += ACTIVE_PERIOD;
        interval.on_heartbeat(false, true, now);
        assert!(interval.due() - now > AWAITING_INTERVAL);
    }

    #[test]
    fn an_exit_speeds_up_heartbeats_to_receive_the_completion() {
        let mut now = Instant::now();
        let mut interval = HeartbeatInterval::new(Duration::from_secs(600), now);
        interval.on_heartbeat(false, false, now);
        delays(&mut interval, false, &mut now, 8);
        now += Duration::from_millis(300);
        interval.poll_soon(now);
        let delays_after_exit = delays(&mut interval, false, &mut now, 4);
        assert_eq!(delays_after_exit, [20, 20, 40, 80]);
    }

    #[test]
    fn bursts_are_combined_and_heartbeats_keep_the_minimum_interval() {
        let now = Instant::now();
        let mut interval = HeartbeatInterval::new(Duration::from_secs(600), now);
        interval.on_heartbeat(true, true, now);
        interval.send_soon(now + Duration::from_millis(1));
        assert_eq!(interval.due(), now + MIN_INTERVAL);
        let short_expiry = HeartbeatInterval::new(Duration::from_millis(900), now);
        assert_eq!(short_expiry.idle, Duration::from_millis(300));
    }
}
