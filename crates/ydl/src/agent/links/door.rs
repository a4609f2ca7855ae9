//! The port that a program is told, and what comes in by it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Once},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
    task::AbortHandle,
    time::sleep,
};

use super::{
    owner,
    passage::{Heard, Passage},
};
use crate::wire::client::Client;

/// Connections that are looked at side by side, to find out whose they are.
const LOOKS_MAX: usize = 16;

/// A port that listens, for a program that is about to start.
#[derive(Debug)]
pub(in crate::agent) struct Door {
    listener: TcpListener,
    address: SocketAddr,
}

/// The links of a program that runs. Dropped, they end.
#[derive(Debug)]
pub(in crate::agent) struct Links {
    tasks: [AbortHandle; 2],
    quiet: watch::Receiver<bool>,
}

impl Links {
    /// Until everything that was said has arrived and every connection has ended.
    pub(in crate::agent) async fn drained(&mut self) {
        // Nobody is there to say it when the round is over.
        let _ = self.quiet.wait_for(|quiet| *quiet).await;
    }
}

impl Door {
    /// A port of the loopback interface that nobody else has.
    pub(in crate::agent) fn open() -> io::Result<Door> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Door { listener, address })
    }

    /// What the program is told.
    pub(in crate::agent) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Passes on what comes, to the master that `client` leads to, in that round. The program listens on `host`.
    /// `guarded`: connections of processes that are not below this one are closed.
    pub(in crate::agent) fn pass(
        self,
        client: watch::Receiver<Arc<Client>>,
        round: u32,
        host: String,
        guarded: bool,
    ) -> Links {
        let (says, hears) = mpsc::channel(64);
        let (passage, quiet) = Passage::new(client, round, host, says.clone(), hears);
        let accepting = tokio::spawn(accept(self, says, guarded));
        let passing = tokio::spawn(passage.run());
        Links {
            tasks: [accepting.abort_handle(), passing.abort_handle()],
            quiet,
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn accept(door: Door, says: mpsc::Sender<Heard>, guarded: bool) {
    let looks = Arc::new(Semaphore::new(LOOKS_MAX));
    // Said once: strangers must not be able to fill the log.
    let stranger = Arc::new(Once::new());
    let mut noted = false;
    loop {
        let accepted = match door.listener.accept().await {
            Ok((stream, theirs)) => (stream, theirs),
            Err(error) => {
                if !std::mem::replace(&mut noted, true) {
                    tracing::warn!("a connection of the program cannot be taken: {error}");
                }
                // Out of descriptors, the system would say so again at once.
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // While so many are being looked at, the others wait in the system's queue.
        let Ok(look) = looks.clone().acquire_owned().await else {
            return;
        };
        let (says, ours, stranger) = (says.clone(), door.address, stranger.clone());
        tokio::spawn(async move {
            let (stream, theirs) = accepted;
            if !guarded || is_ours(theirs, ours, &stranger).await {
                let _ = says.send(Heard::Accepted(stream)).await;
            }
            drop(look);
        });
    }
}

async fn is_ours(theirs: SocketAddr, ours: SocketAddr, stranger: &Once) -> bool {
    let look = tokio::task::spawn_blocking(move || owner::is_of_this_tree(theirs, ours));
    let why = match look.await {
        Ok(Ok(true)) => return true,
        Ok(Ok(false)) => "it is none of the program's processes".to_owned(),
        Ok(Err(error)) => format!("whose it is cannot be told: {error}"),
        Err(error) => format!("whose it is cannot be told: {error}"),
    };
    stranger.call_once(|| {
        tracing::warn!("somebody who connected to the program's rendezvous was sent away: {why}");
    });
    false
}
