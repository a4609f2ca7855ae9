//! What is called.

use std::marker::PhantomData;

/// A protocol by the name its server knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(&'static str);

impl Protocol {
    /// Applications: submit, watch, end. Spoken by the ResourceManager's client port.
    pub const APPLICATION_CLIENT: Self =
        Self("org.apache.hadoop.yarn.api.ApplicationClientProtocolPB");
    /// A master and the scheduler. Spoken by the ResourceManager's scheduler port.
    pub const APPLICATION_MASTER: Self =
        Self("org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB");
    /// A master and the containers of one node. Spoken by NodeManagers.
    pub const CONTAINER_MANAGEMENT: Self =
        Self("org.apache.hadoop.yarn.api.ContainerManagementProtocolPB");
    /// Files. Spoken by NameNodes.
    pub const CLIENT_NAMENODE: Self = Self("org.apache.hadoop.hdfs.protocol.ClientProtocol");

    /// A protocol that has no constant here.
    pub const fn named(name: &'static str) -> Self {
        Self(name)
    }

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// What may be done when nobody knows whether a call was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// Carried out twice it does what it does once: it is tried again.
    Idempotent,
    /// It must not be carried out twice: the caller is told, and looks what has become of it.
    Once,
}

/// A method: its name, and the types of what it takes and gives.
pub(crate) struct Method<Req, Resp> {
    pub(crate) name: &'static str,
    types: PhantomData<fn(Req) -> Resp>,
}

impl<Req, Resp> Method<Req, Resp> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }
}
