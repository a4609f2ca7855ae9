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
/// Interval of the first lookups, their number, and the interval of later ones.
const PROBES: (Duration, u32, Duration) = (Duration::from_secs(1), 15, Duration::from_secs(5));

/// Connection to the master.
#[derive(Debug)]
pub(super) struct MasterConnection {
    pub(super) client: Arc<Client>,
    /// Current client, for tasks outside the agent's loop.
    shared: watch::Sender<Arc<Client>>,
    pin: Pin,
    token: Token,
    master_watch: Option<MasterWatch>,
}

/// Looks for a new master while the current one does not reply. Runs outside the agent's loop, and reports only a move.
#[derive(Debug)]
struct MasterWatch {
    schedule: watch::Sender<ProbeSchedule>,
    found: mpsc::Receiver<String>,
}

#[derive(Clone, Debug)]
struct ProbeSchedule {
    address: String,
    /// Time of the next lookup, unless a reply arrives before.
    due: Instant,
}

impl MasterConnection {
    pub(super) fn new(
        bootstrap: &Bootstrap,
        pin: Pin,
        token: Token,
    ) -> Result<MasterConnection, String> {
        let client =
            Client::new(bootstrap.master.clone(), pin, &token).map_err(|e| e.to_string())?;
        let client = Arc::new(client);
        Ok(MasterConnection {
            shared: watch::Sender::new(Arc::clone(&client)),
            client,
            pin,
            token,
            master_watch: None,
        })
    }

    /// Starts watching for a new master. This container was started by the master with number `attempt`.
    pub(super) fn watch_for_successor(
        &mut self,
        worker: Arc<HdfsWorker>,
        layout: JobLayout,
        attempt: u32,
    ) {
        let (schedule, scheduled) = watch::channel(ProbeSchedule {
            address: self.client.address().to_owned(),
            due: Instant::now() + OVERDUE,
        });
        let (found_tx, found) = mpsc::channel(1);
        tokio::spawn(probe(worker, layout, attempt, scheduled, found_tx));
        self.master_watch = Some(MasterWatch { schedule, found });
    }

    /// Returns the client, updated after each move.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<Client>> {
        self.shared.subscribe()
    }

    /// Records a reply of the master; the next one is expected within `interval`.
    pub(super) fn on_reply(&self, interval: Duration) {
        self.expect(Instant::now() + interval + OVERDUE);
    }

    /// Records that the master could not be reached.
    pub(super) fn on_error(&self) {
        let now = Instant::now();
        if let Some(master_watch) = &self.master_watch
            && master_watch.schedule.borrow().due > now
        {
            self.expect(now);
        }
    }

    fn expect(&self, due: Instant) {
        if let Some(master_watch) = &self.master_watch {
            master_watch.schedule.send_modify(|schedule| schedule.due = due);
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

    /// Splits the connection into client and address channel, for concurrent use.
    pub(super) fn split(&mut self) -> (&Client, NewAddress<'_>) {
        let found = self.master_watch.as_mut().map(|master_watch| &mut master_watch.found);
        (&self.client, found)
    }

    pub(super) fn connect_to(&mut self, address: String) -> Result<(), String> {
        let client = Client::new(address.clone(), self.pin, &self.token);
        self.client = Arc::new(client.map_err(|e| e.to_string())?);
        self.shared.send_replace(Arc::clone(&self.client));
        if let Some(master_watch) = &self.master_watch {
            let due = Instant::now() + OVERDUE;
            master_watch.schedule.send_replace(ProbeSchedule { address, due });
        }
        Ok(())
    }
}

/// Channel of new master addresses.
pub(super) type NewAddress<'a> = Option<&'a mut mpsc::Receiver<String>>;

async fn probe(
    worker: Arc<HdfsWorker>,
    layout: JobLayout,
    mut attempt: u32,
    mut schedule: watch::Receiver<ProbeSchedule>,
    found_tx: mpsc::Sender<String>,
) {
    let jitter = jitter();
    let mut probes = 0;
    let mut next_probe = Instant::now();
    loop {
        let ProbeSchedule { address, due } = schedule.borrow_and_update().clone();
        tokio::select! {
            changed = schedule.changed() => match changed {
                Ok(()) => {
                    // Reachable again: the next lookups start with the short interval.
                    if schedule.borrow().due > Instant::now() {
                        probes = 0;
                    }
                    continue;
                }
                Err(_) => return,
            },
            () = sleep_until(due.max(next_probe)) => {}
        }
        let found = worker.find_master(layout.clone()).await;
        probes += 1;
        let pause = if probes > PROBES.1 { PROBES.2 } else { PROBES.0 };
        next_probe = Instant::now() + pause.mul_f64(jitter);
        if let Some(found) = found.filter(|found| has_moved(found, attempt, &address)) {
            attempt = found.attempt;
            if found_tx.send(found.address).await.is_err() {
                return;
            }
        }
    }
}

/// Returns a jitter factor for the pauses: all agents of a job lose their master at the same moment, and there may be
/// thousands.
fn jitter() -> f64 {
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
