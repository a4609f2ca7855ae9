//! Protocols and methods.

use std::marker::PhantomData;

/// An RPC protocol, by its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(&'static str);

impl Protocol {
    /// Application client protocol, served by the ResourceManager's client port.
    pub const APPLICATION_CLIENT: Self =
        Self("org.apache.hadoop.yarn.api.ApplicationClientProtocolPB");
    /// ApplicationMaster protocol, served by the ResourceManager's scheduler port.
    pub const APPLICATION_MASTER: Self =
        Self("org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB");
    /// Container management protocol, served by NodeManagers.
    pub const CONTAINER_MANAGEMENT: Self =
        Self("org.apache.hadoop.yarn.api.ContainerManagementProtocolPB");
    /// HDFS client protocol, served by NameNodes.
    pub const CLIENT_NAMENODE: Self = Self("org.apache.hadoop.hdfs.protocol.ClientProtocol");

    /// Creates a protocol without a constant here.
    pub const fn named(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// Retry safety of a call that may or may not have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// Repeating the call has no further effect: it is retried.
    Idempotent,
    /// The call must not be repeated: the caller receives an error and checks the state.
    Once,
}

/// A method with its name, request type and response type.
pub(crate) struct Method<Req, Resp> {
    pub(crate) name: &'static str,
    types: PhantomData<fn(Req) -> Resp>,
}

impl<Req, Resp> Method<Req, Resp> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }
}
