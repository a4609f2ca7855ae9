//! Idle connections of a client.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::ClientConnection;

/// Idle connections kept: one for a long poll, one for calls made meanwhile.
const IDLE_MAX: usize = 2;

/// Connections that wait for the next call.
pub(super) struct Pool {
    idle: Mutex<Vec<IdleConnection>>,
    /// Idle time after which a connection is dropped.
    idle_max: Duration,
}

struct IdleConnection {
    connection: ClientConnection,
    /// Time of the last use.
    since: Instant,
}

impl Pool {
    pub(super) fn new(idle_max: Duration) -> Self {
        Self { idle: Mutex::default(), idle_max }
    }

    /// Takes a connection that still looks open.
    pub(super) async fn take(&self) -> Option<ClientConnection> {
        let now = Instant::now();
        {
            let mut idle = self.idle();
            idle.retain(|it| now < it.since + self.idle_max);
            if idle.is_empty() {
                return None;
            }
        }
        // Lets the runtime poll the sockets for a close by the server.
        tokio::task::yield_now().await;
        loop {
            let IdleConnection { mut connection, .. } = self.idle().pop()?;
            if connection.is_open().await {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next call, if it can be reused and there is room.
    pub(super) fn put(&self, connection: ClientConnection) {
        let mut idle = self.idle();
        if connection.is_reusable() && idle.len() < IDLE_MAX {
            idle.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
