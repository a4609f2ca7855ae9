//! Connection to one server, opened on demand and reopened after failures.

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

/// Settings shared by the links of a channel.
pub(crate) struct LinkSettings {
    pub(crate) protocol: Protocol,
    pub(crate) client: ClientId,
    pub(crate) options: Options,
    pub(crate) dial: Arc<dyn Dial>,
}

/// An identity with its version. Connections opened with an older version are not reused.
#[derive(Clone)]
pub(crate) struct VersionedIdentity {
    pub(crate) value: Arc<Identity>,
    pub(crate) version: u64,
}

pub(crate) struct Link {
    pub(crate) address: Address,
    /// Locked while a connection is opened, so that concurrent callers wait for it.
    current: Mutex<Option<(Connection, u64)>>,
}

impl Link {
    pub(crate) fn new(address: Address) -> Self {
        Self { address, current: Mutex::new(None) }
    }

    pub(crate) async fn call(
        &self,
        settings: &LinkSettings,
        identity: &VersionedIdentity,
        call: u32,
        frame: Zeroizing<Vec<u8>>,
        sent: impl FnOnce(),
    ) -> Result<Bytes, CallError> {
        let connection = self.connection(settings, identity).await.map_err(CallError::NotSent)?;
        connection.call(call, frame, sent).await
    }

    async fn connection(
        &self,
        settings: &LinkSettings,
        identity: &VersionedIdentity,
    ) -> Result<Connection, ConnectionError> {
        let mut current = self.current.lock().await;
        if let Some((connection, version)) = &*current
            && *version >= identity.version
            && connection.is_open()
        {
            return Ok(connection.clone());
        }
        // Calls in flight keep the old connection alive until they are answered.
        *current = None;
        let connection = timeout(settings.options.connect_timeout, self.open(settings, identity))
            .await
            .unwrap_or_else(|_| Err(ConnectionError::Io("connect timeout".into())))?;
        *current = Some((connection.clone(), identity.version));
        Ok(connection)
    }

    async fn open(
        &self,
        settings: &LinkSettings,
        identity: &VersionedIdentity,
    ) -> Result<Connection, ConnectionError> {
        let stream = settings.dial.dial(&self.address).await?;
        let setup = ConnectionSetup {
            protocol: settings.protocol,
            address: &self.address,
            client: settings.client,
            identity: &identity.value,
            options: &settings.options,
        };
        setup.open(stream).await
    }
}
