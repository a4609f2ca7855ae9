//! One server, and the connection to it: made when needed, and made again when it broke.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::rpc::connection::{CallError, Connection, ConnectionError};
use crate::rpc::frame::ClientId;
use crate::rpc::open::ConnectionSetup;
use crate::rpc::{Address, Dial, Options, Protocol};
use crate::security::Identity;

/// What all links of a channel have in common.
pub(crate) struct Caller {
    pub(crate) protocol: Protocol,
    pub(crate) client: ClientId,
    pub(crate) options: Options,
    pub(crate) dial: Arc<dyn Dial>,
}

/// An identity; a connection made with an older one is not used again.
#[derive(Clone)]
pub(crate) struct Badge {
    pub(crate) identity: Arc<Identity>,
    pub(crate) edition: u64,
}

pub(crate) struct Link {
    pub(crate) address: Address,
    /// Held while a connection is made, so that callers who come meanwhile wait for it.
    current: Mutex<Option<(Connection, u64)>>,
}

impl Link {
    pub(crate) fn new(address: Address) -> Self {
        Self { address, current: Mutex::new(None) }
    }

    pub(crate) async fn call(
        &self,
        caller: &Caller,
        badge: &Badge,
        call: u32,
        frame: Zeroizing<Vec<u8>>,
        sent: impl FnOnce(),
    ) -> Result<Bytes, CallError> {
        let connection = self.connection(caller, badge).await.map_err(CallError::NotSent)?;
        connection.call(call, frame, sent).await
    }

    async fn connection(
        &self,
        caller: &Caller,
        badge: &Badge,
    ) -> Result<Connection, ConnectionError> {
        let mut current = self.current.lock().await;
        if let Some((connection, edition)) = &*current
            && *edition >= badge.edition
            && connection.is_open()
        {
            return Ok(connection.clone());
        }
        // Calls under way on the old connection keep it until they are answered.
        *current = None;
        let connection = timeout(caller.options.connect_timeout, self.open(caller, badge))
            .await
            .unwrap_or_else(|_| Err(ConnectionError::Io("it took too long to connect".into())))?;
        *current = Some((connection.clone(), badge.edition));
        Ok(connection)
    }

    async fn open(&self, caller: &Caller, badge: &Badge) -> Result<Connection, ConnectionError> {
        let dialed = caller.dial.dial(&self.address).await?;
        let opening = ConnectionSetup {
            protocol: caller.protocol,
            address: &self.address,
            client: caller.client,
            identity: &badge.identity,
            options: &caller.options,
        };
        opening.open(dialed).await
    }
}
