//! The way to the master, who may move.
//!
//! When a job's master dies, another takes its place on another node and says where it is in the job's directory in
//! HDFS. The certificate and the tokens stay the same.

use crate::agent::{bootstrap::Bootstrap, shipping::HdfsWorker};
use ring::rand::{SecureRandom, SystemRandom};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use ydl_net::{client::Client, secret::Token, tls::Pin};
use ydl_proto::files::Whereabouts;
use ydl_storage::hdfs::JobPlace;

/// An answer so late is reason enough to look elsewhere, though nothing has failed.
const OVERDUE: Duration = Duration::from_secs(3);
/// Between two looks, at first and after so many of them.
const LOOKS: (Duration, u32, Duration) = (Duration::from_secs(1), 15, Duration::from_secs(5));

/// The way to the master.
#[derive(Debug)]
pub(super) struct MasterLink {
    pub(super) client: Arc<Client>,
    /// The same, for those who go on beside the agent's loop.
    shared: watch::Sender<Arc<Client>>,
    pin: Pin,
    token: Token,
    lookout: Option<MasterWatch>,
}

/// Looks for the master elsewhere while it does not answer. It goes on beside the agent's loop, and says a word only
/// when the master has moved.
#[derive(Debug)]
struct MasterWatch {
    told: watch::Sender<ProbeSchedule>,
    found: mpsc::Receiver<String>,
}

#[derive(Clone, Debug)]
struct ProbeSchedule {
    address: String,
    /// When to look, unless something is heard before.
    due: Instant,
}

impl MasterLink {
    pub(super) fn new(setting: &Bootstrap, pin: Pin, token: Token) -> Result<MasterLink, String> {
        let client = Client::new(setting.master.clone(), pin, &token).map_err(|e| e.to_string())?;
        let client = Arc::new(client);
        Ok(MasterLink {
            shared: watch::Sender::new(Arc::clone(&client)),
            client,
            pin,
            token,
            lookout: None,
        })
    }

    /// From now on the master may move. The one that started this container was the job's `attempt`th.
    pub(super) fn look_out(&mut self, carrier: Arc<HdfsWorker>, place: JobPlace, attempt: u32) {
        let (told, hears) = watch::channel(ProbeSchedule {
            address: self.client.address().to_owned(),
            due: Instant::now() + OVERDUE,
        });
        let (says, found) = mpsc::channel(1);
        tokio::spawn(look(carrier, place, attempt, hears, says));
        self.lookout = Some(MasterWatch { told, found });
    }

    /// The way, and every new one.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<Client>> {
        self.shared.subscribe()
    }

    /// The master has answered; the next answer is expected within `beat`.
    pub(super) fn heard(&self, beat: Duration) {
        self.expect(Instant::now() + beat + OVERDUE);
    }

    /// The master cannot be reached.
    pub(super) fn missed(&self) {
        let now = Instant::now();
        if let Some(lookout) = &self.lookout
            && lookout.told.borrow().due > now
        {
            self.expect(now);
        }
    }

    fn expect(&self, due: Instant) {
        if let Some(lookout) = &self.lookout {
            lookout.told.send_modify(|told| told.due = due);
        }
    }

    /// Waits until the master is found elsewhere, and goes there.
    pub(super) async fn moved(found: &mut NewAddress<'_>) -> String {
        match found {
            Some(found) => match found.recv().await {
                Some(address) => address,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Both halves of it, for whoever asks and listens at once.
    pub(super) fn split(&mut self) -> (&Client, NewAddress<'_>) {
        let found = self.lookout.as_mut().map(|lookout| &mut lookout.found);
        (&self.client, found)
    }

    pub(super) fn go(&mut self, address: String) -> Result<(), String> {
        let client = Client::new(address.clone(), self.pin, &self.token);
        self.client = Arc::new(client.map_err(|e| e.to_string())?);
        self.shared.send_replace(Arc::clone(&self.client));
        if let Some(lookout) = &self.lookout {
            let due = Instant::now() + OVERDUE;
            lookout.told.send_replace(ProbeSchedule { address, due });
        }
        Ok(())
    }
}

/// Where news of a move comes from.
pub(super) type NewAddress<'a> = Option<&'a mut mpsc::Receiver<String>>;

async fn look(
    carrier: Arc<HdfsWorker>,
    place: JobPlace,
    mut attempt: u32,
    mut told: watch::Receiver<ProbeSchedule>,
    says: mpsc::Sender<String>,
) {
    let spread = spread();
    let mut looks = 0;
    let mut not_before = Instant::now();
    loop {
        let ProbeSchedule { address, due } = told.borrow_and_update().clone();
        tokio::select! {
            changed = told.changed() => match changed {
                Ok(()) => {
                    // Heard again: the next time it is looked for often again.
                    if told.borrow().due > Instant::now() {
                        looks = 0;
                    }
                    continue;
                }
                Err(_) => return,
            },
            () = sleep_until(due.max(not_before)) => {}
        }
        let found = carrier.find_master(place.clone()).await;
        looks += 1;
        let pause = if looks > LOOKS.1 { LOOKS.2 } else { LOOKS.0 };
        not_before = Instant::now() + pause.mul_f64(spread);
        if let Some(found) = found.filter(|found| has_moved(found, attempt, &address)) {
            attempt = found.attempt;
            if says.send(found.address).await.is_err() {
                return;
            }
        }
    }
}

/// How much longer or shorter this agent's pauses are: all agents of a job lose their master in the same moment, and
/// there may be thousands.
fn spread() -> f64 {
    let mut byte = [0];
    // Without randomness all look at once, which is no more than unkind.
    let _ = SystemRandom::new().fill(&mut byte);
    0.75 + f64::from(byte[0]) / 512.0
}

/// Whether that is where the master is now. What an earlier one has written, whom a later one has not overwritten yet,
/// leads nowhere.
fn has_moved(found: &Whereabouts, attempt: u32, address: &str) -> bool {
    found.attempt >= attempt && found.address != address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_back_to_an_earlier_master() {
        let found = |attempt, address: &str| Whereabouts {
            address: address.to_owned(),
            attempt,
            pid: 1,
            pid_started: 1,
        };
        assert!(has_moved(&found(3, "new:1"), 2, "old:1"));
        assert!(has_moved(&found(2, "new:1"), 2, "old:1"));
        assert!(!has_moved(&found(2, "old:1"), 2, "old:1"));
        assert!(!has_moved(&found(1, "dead:1"), 2, "old:1"));
    }
}
