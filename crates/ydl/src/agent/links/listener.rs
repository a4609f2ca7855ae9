//! The rendezvous port of a program.

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
    client::{LinkClient, SocketEvent},
    owner,
};
use ydl_net::{client::Client, server::listen};

/// Maximum number of connections in one owner lookup, and in its queue.
const BATCH_MAX: usize = 256;

/// A listening port for a program that is about to start.
#[derive(Debug)]
pub(in crate::agent) struct LinkListener {
    socket: TcpListener,
    address: SocketAddr,
}

/// The links of a running program. Closed when dropped.
#[derive(Debug)]
pub(in crate::agent) struct LinkTasks {
    tasks: [AbortHandle; 2],
    idle: watch::Receiver<bool>,
}

impl LinkTasks {
    /// Waits until the master has acknowledged all bytes of the program and all connections are closed.
    pub(in crate::agent) async fn drained(&mut self) {
        // The link client is gone when the round is over.
        let _ = self.idle.wait_for(|idle| *idle).await;
    }
}

impl LinkListener {
    /// Binds a free port of the loopback interface.
    pub(in crate::agent) fn bind() -> io::Result<LinkListener> {
        let socket = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        Ok(LinkListener { socket, address })
    }

    /// Returns the port.
    pub(in crate::agent) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Accepts connections and forwards their bytes to the current master, in this round. The master may ask for
    /// connections to ports of the program, on `host`. `guarded`: closes connections of processes that are not
    /// descendants of this one.
    pub(in crate::agent) fn serve(
        self,
        client: watch::Receiver<Arc<Client>>,
        round: u32,
        host: String,
        guarded: bool,
    ) -> LinkTasks {
        let (events, inbox) = mpsc::channel(64);
        let (client_task, idle) = LinkClient::new(client, round, host, events.clone(), inbox);
        let accepting = tokio::spawn(accept(self, events, guarded));
        let passing = tokio::spawn(client_task.run());
        LinkTasks { tasks: [accepting.abort_handle(), passing.abort_handle()], idle }
    }
}

impl Drop for LinkTasks {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn accept(listener: LinkListener, events: mpsc::Sender<SocketEvent>, guarded: bool) {
    let (batch, queue) = mpsc::channel(BATCH_MAX);
    let checking = check_owners(queue, listener.address, events, guarded);
    let accepting = async {
        let mut warned = false;
        loop {
            match listener.socket.accept().await {
                // While the queue is full, further connections wait in the backlog.
                Ok(accepted) => {
                    if batch.send(accepted).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!("cannot accept a connection of the program: {error}");
                    }
                    // Out of descriptors, the next accept would fail at once.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    };
    tokio::join!(checking, accepting);
}

/// Looks up the owners of new connections, in batches, and forwards those of the program.
async fn check_owners(
    mut queue: mpsc::Receiver<(TcpStream, SocketAddr)>,
    local: SocketAddr,
    events: mpsc::Sender<SocketEvent>,
    guarded: bool,
) {
    let mut batch = Vec::new();
    // One warning: other processes must not be able to fill the log.
    let mut warned = false;
    while queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let known = if guarded {
            let remote: Vec<SocketAddr> = batch.iter().map(|(_, remote)| *remote).collect();
            let lookup = tokio::task::spawn_blocking(move || owner::of_this_tree(&remote, local));
            match lookup.await {
                Ok(Ok(known)) => Ok(Some(known)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        } else {
            Ok(None)
        };
        for (stream, remote) in batch.drain(..) {
            let why = match &known {
                Ok(known) if known.as_ref().is_none_or(|known| known.contains(&remote)) => {
                    if events.send(SocketEvent::Accepted(stream)).await.is_err() {
                        return;
                    }
                    continue;
                }
                Ok(_) => "not a process of the program".to_owned(),
                Err(error) => format!("cannot determine the owner: {error}"),
            };
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!("rejected a connection to the program's rendezvous: {why}");
            }
        }
    }
}
