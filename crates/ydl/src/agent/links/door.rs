//! The port that a program is told, and what comes in by it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::AbortHandle,
    time::sleep,
};

use super::{
    owner,
    passage::{Heard, Passage},
};
use ydl_net::{client::Client, server::listen};

/// Connections that are looked at together, to find out whose they are, and as many again may wait for that.
const LOOKS_MAX: usize = 256;

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
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = listener.local_addr()?;
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
        Links { tasks: [accepting.abort_handle(), passing.abort_handle()], quiet }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn accept(door: Door, says: mpsc::Sender<Heard>, guarded: bool) {
    let (came, coming) = mpsc::channel(LOOKS_MAX);
    let looking = look(coming, door.address, says, guarded);
    let accepting = async {
        let mut noted = false;
        loop {
            match door.listener.accept().await {
                // While many are being looked at, the others wait in the system's queue.
                Ok(accepted) => {
                    if came.send(accepted).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut noted, true) {
                        tracing::warn!("a connection of the program cannot be taken: {error}");
                    }
                    // Out of descriptors, the system would say so again at once.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    };
    tokio::join!(looking, accepting);
}

/// Looks whose the connections are that have come since it looked last, and passes on the program's.
async fn look(
    mut coming: mpsc::Receiver<(TcpStream, SocketAddr)>,
    ours: SocketAddr,
    says: mpsc::Sender<Heard>,
    guarded: bool,
) {
    let mut came = Vec::new();
    // Said once: strangers must not be able to fill the log.
    let mut noted = false;
    while coming.recv_many(&mut came, LOOKS_MAX).await > 0 {
        let known = if guarded {
            let theirs: Vec<SocketAddr> = came.iter().map(|(_, theirs)| *theirs).collect();
            let look = tokio::task::spawn_blocking(move || owner::of_this_tree(&theirs, ours));
            match look.await {
                Ok(Ok(known)) => Ok(Some(known)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        } else {
            Ok(None)
        };
        for (stream, theirs) in came.drain(..) {
            let why = match &known {
                Ok(known) if known.as_ref().is_none_or(|known| known.contains(&theirs)) => {
                    if says.send(Heard::Accepted(stream)).await.is_err() {
                        return;
                    }
                    continue;
                }
                Ok(_) => "it is none of the program's processes".to_owned(),
                Err(error) => format!("whose it is cannot be told: {error}"),
            };
            if !std::mem::replace(&mut noted, true) {
                tracing::warn!(
                    "somebody who connected to the program's rendezvous was sent away: {why}"
                );
            }
        }
    }
}
