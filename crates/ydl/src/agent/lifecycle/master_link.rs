//! Connection to the master, which may move.
//!
//! When a job's master dies, its successor starts on another node and writes its address to the job's directory in
//! HDFS. The certificate and the tokens stay the same.

use crate::agent::{bootstrap::Bootstrap, shipping::HdfsWorker};
use ring::rand::{SecureRandom, SystemRandom};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use ydl_net::{client::Client, secret::Token, tls::Pin};
use ydl_proto::files::MasterAddress;
use ydl_storage::hdfs::JobLayout;

/// Delay of a reply after which the agent looks for a new master, even without an error.
const OVERDUE: Duration = Duration::from_secs(3);
/// Interval of lookups: at first, and after that many of them.
const LOOKS: (Duration, u32, Duration) = (Duration::from_secs(1), 15, Duration::from_secs(5));

/// Connection to the master.
#[derive(Debug)]
pub(super) struct MasterLink {
    pub(super) client: Arc<Client>,
    /// Current client, for tasks outside the agent's loop.
    shared: watch::Sender<Arc<Client>>,
    pin: Pin,
    token: Token,
    lookout: Option<MasterWatch>,
}

/// Looks for a new master while the current one does not reply. Runs outside the agent's loop, and reports only a move.
#[derive(Debug)]
struct MasterWatch {
    told: watch::Sender<ProbeSchedule>,
    found: mpsc::Receiver<String>,
}

#[derive(Clone, Debug)]
struct ProbeSchedule {
    address: String,
    /// Time of the next lookup, unless a reply arrives before.
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

    /// Starts watching for a new master. This container was started by the job's `attempt`th.
    pub(super) fn look_out(&mut self, carrier: Arc<HdfsWorker>, place: JobLayout, attempt: u32) {
        let (told, hears) = watch::channel(ProbeSchedule {
            address: self.client.address().to_owned(),
            due: Instant::now() + OVERDUE,
        });
        let (says, found) = mpsc::channel(1);
        tokio::spawn(look(carrier, place, attempt, hears, says));
        self.lookout = Some(MasterWatch { told, found });
    }

    /// Returns the client, updated after each move.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<Client>> {
        self.shared.subscribe()
    }

    /// Records a reply of the master; the next one is expected within `beat`.
    pub(super) fn heard(&self, beat: Duration) {
        self.expect(Instant::now() + beat + OVERDUE);
    }

    /// Records that the master could not be reached.
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

    /// Waits for the address of a new master.
    pub(super) async fn moved(found: &mut NewAddress<'_>) -> String {
        match found {
            Some(found) => match found.recv().await {
                Some(address) => address,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Splits the link into client and address channel, for concurrent use.
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

/// Channel of new master addresses.
pub(super) type NewAddress<'a> = Option<&'a mut mpsc::Receiver<String>>;

async fn look(
    carrier: Arc<HdfsWorker>,
    place: JobLayout,
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
                    // Reachable again: the next lookups start with the short interval.
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

/// Returns a jitter factor for the pauses: all agents of a job lose their master at the same moment, and there may be
/// thousands.
fn spread() -> f64 {
    let mut byte = [0];
    // Without randomness all agents poll at once, which is harmless.
    let _ = SystemRandom::new().fill(&mut byte);
    0.75 + f64::from(byte[0]) / 512.0
}

/// Returns true if the address is that of a newer master. Ignores the address of an earlier master that was not
/// overwritten yet.
fn has_moved(found: &MasterAddress, attempt: u32, address: &str) -> bool {
    found.attempt >= attempt && found.address != address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_earlier_masters_are_ignored() {
        let found = |attempt, address: &str| MasterAddress {
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
