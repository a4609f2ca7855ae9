//! How often a master beats: quickly while there is something to hear, slowly when it is quiet.

use std::time::Duration;
use tokio::time::Instant;

/// From one beat to the next when something has just changed. Schedulers that grant at once have granted by then.
const QUICK: Duration = Duration::from_millis(20);
/// What is wanted in one burst is said in one beat.
const TOGETHER: Duration = Duration::from_millis(2);
/// While containers are awaited, and were not for long: nodes beat once a second and grants come with their beats.
const AWAITING: Duration = Duration::from_millis(100);
/// After so long without any change nobody is in a hurry any more.
const PATIENT_AFTER: Duration = Duration::from_secs(60);
/// When it is quiet. Ends and notices are heard with a beat, too.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace {
    pause: Duration,
    /// When something changed last.
    stirred: Instant,
    /// When the last beat was over.
    beaten: Instant,
    /// When the next one is due.
    due: Instant,
    quiet: Duration,
}

impl Pace {
    /// A master that counts as dead after `expiry` without a beat.
    pub(super) fn new(expiry: Duration, now: Instant) -> Pace {
        Pace {
            pause: QUICK,
            stirred: now,
            beaten: now,
            due: now,
            quiet: QUIET.min(expiry / 3).max(QUICK),
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// There is something to say.
    pub(super) fn speak(&mut self, now: Instant) {
        self.stirred = now;
        // The beat that says it doubles this.
        self.pause = QUICK / 2;
        self.due = self.due.min((now + TOGETHER).max(self.beaten + QUICK));
    }

    /// There may be something to hear, once nodes have told it.
    pub(super) fn stir(&mut self, now: Instant) {
        self.stirred = now;
        self.pause = QUICK / 2;
        self.due = self.due.min((now + QUICK).max(self.beaten + QUICK));
    }

    /// A beat is over: `stirring` where it brought something, `awaiting` while containers are to come.
    pub(super) fn beat(&mut self, stirring: bool, awaiting: bool, now: Instant) {
        self.beaten = now;
        if stirring {
            self.stirred = now;
            self.pause = QUICK;
        } else {
            let fresh = now.saturating_duration_since(self.stirred) < PATIENT_AFTER;
            let most = match awaiting && fresh {
                true => AWAITING.min(self.quiet),
                false => self.quiet,
            };
            self.pause = (self.pause * 2).min(most);
        }
        self.due = now + self.pause;
    }

    /// A beat failed; the next one waits as long as a quiet one.
    pub(super) fn fail(&mut self, now: Instant) {
        self.beaten = now;
        self.due = now + self.quiet;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses in ms between beats that bring nothing.
    fn pauses(pace: &mut Pace, awaiting: bool, now: &mut Instant, beats: usize) -> Vec<u128> {
        let mut pauses = Vec::new();
        for _ in 0..beats {
            let began = *now;
            *now = pace.due();
            pauses.push((*now - began).as_millis());
            pace.beat(false, awaiting, *now);
        }
        pauses
    }

    #[test]
    fn a_beat_follows_an_ask_at_once_and_then_they_become_rarer() {
        let mut now = Instant::now();
        let mut pace = Pace::new(Duration::from_secs(600), now);
        pace.beat(false, false, now);
        let slower = pauses(&mut pace, false, &mut now, 8);
        assert_eq!(slower, [40, 80, 160, 320, 640, 1000, 1000, 1000]);
        now += Duration::from_millis(300);
        pace.speak(now);
        let asked = pace.due();
        assert_eq!(asked - now, TOGETHER);
        pace.beat(false, true, asked);
        now = asked;
        let waiting = pauses(&mut pace, true, &mut now, 5);
        assert_eq!(waiting, [20, 40, 80, 100, 100]);
        now += PATIENT_AFTER;
        pace.beat(false, true, now);
        assert!(pace.due() - now > AWAITING);
    }

    #[test]
    fn after_an_exit_it_listens_for_the_end_of_its_container() {
        let mut now = Instant::now();
        let mut pace = Pace::new(Duration::from_secs(600), now);
        pace.beat(false, false, now);
        pauses(&mut pace, false, &mut now, 8);
        now += Duration::from_millis(300);
        pace.stir(now);
        let listening = pauses(&mut pace, false, &mut now, 4);
        assert_eq!(listening, [20, 20, 40, 80]);
    }

    #[test]
    fn a_burst_of_words_is_one_beat_and_beats_keep_their_distance() {
        let now = Instant::now();
        let mut pace = Pace::new(Duration::from_secs(600), now);
        pace.beat(true, true, now);
        pace.speak(now + Duration::from_millis(1));
        assert_eq!(pace.due(), now + QUICK);
        let hasty = Pace::new(Duration::from_millis(900), now);
        assert_eq!(hasty.quiet, Duration::from_millis(300));
    }
}
