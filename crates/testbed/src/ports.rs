//! Port allocation: each cluster has its own block of ports.
//!
//! Blocks lie below the kernel's ephemeral port range, so that a killed daemon can bind its port
//! again after a restart. This process listens on the first port of its block as a reservation; the
//! kernel releases it when the process exits.

use crate::error::{Error, ErrorKind};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
};

const FIRST_PORT: u16 = 21_000;
const BLOCK_SIZE: u16 = 32;
const BLOCKS: u16 = 340;

/// Offset of a service's port in a block. All NodeManagers use the same ports on their own hosts.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Port {
    RmClient = 1,
    RmScheduler,
    RmTracker,
    RmAdmin,
    RmWeb,
    Rm2Client,
    Rm2Scheduler,
    Rm2Tracker,
    Rm2Admin,
    Rm2Web,
    NnRpc,
    NnWeb,
    Nn2Rpc,
    Nn2Web,
    Nn3Rpc,
    Nn3Web,
    DnData,
    DnWeb,
    DnIpc,
    Zookeeper,
    Kdc,
    NmRpc,
    NmLocalizer,
    NmWeb,
}

const COMMON_PORTS: Range<u16> = Port::RmClient as u16..Port::NmRpc as u16;
const NODE_PORTS: Range<u16> = Port::NmRpc as u16..Port::NmWeb as u16 + 1;

/// A block of ports reserved for one cluster.
#[derive(Debug)]
pub(crate) struct PortBlock {
    first: u16,
    _reservation: TcpListener,
}

/// Host of all daemons except NodeManagers.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Returns the host of a NodeManager by its index, counted from 0.
pub(crate) fn node_host(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + index as u8)
}

impl PortBlock {
    /// Reserves the first block whose ports are all free.
    pub(crate) fn reserve(nodes: usize) -> Result<PortBlock, Error> {
        let block = (0..BLOCKS).find_map(|block| {
            let first = FIRST_PORT + block * BLOCK_SIZE;
            let reservation = TcpListener::bind((HOST, first)).ok()?;
            // Daemons of a cluster that is shutting down, or unrelated processes, may use some ports.
            let free = |host: Ipv4Addr, ports: Range<u16>| {
                ports.into_iter().all(|port| TcpListener::bind((host, first + port)).is_ok())
            };
            let all =
                free(HOST, COMMON_PORTS) && (0..nodes).all(|n| free(node_host(n), NODE_PORTS));
            all.then_some(PortBlock { first, _reservation: reservation })
        });
        block.ok_or_else(|| {
            let last = FIRST_PORT + BLOCKS * BLOCK_SIZE;
            let message = format!("no free block of ports between {FIRST_PORT} and {last}");
            Error::new(ErrorKind::System, message)
        })
    }

    pub(crate) fn port(&self, port: Port) -> u16 {
        self.first + port as u16
    }

    /// Returns the address of a daemon that is no NodeManager.
    pub(crate) fn address(&self, port: Port) -> SocketAddr {
        (HOST, self.port(port)).into()
    }

    /// Returns an address of a NodeManager.
    pub(crate) fn node_address(&self, index: usize, port: Port) -> SocketAddr {
        (node_host(index), self.port(port)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reservations_never_share_a_port() {
        let (one, two) = (PortBlock::reserve(2).unwrap(), PortBlock::reserve(2).unwrap());
        assert!(one.first.abs_diff(two.first) >= BLOCK_SIZE);
        assert!((Port::NmWeb as u16) < BLOCK_SIZE);
    }

    #[test]
    fn a_block_with_a_port_in_use_is_skipped() {
        let one = PortBlock::reserve(1).unwrap();
        let listener = TcpListener::bind(one.node_address(0, Port::NmWeb)).unwrap();
        let first = one.first;
        drop(one);
        assert_ne!(PortBlock::reserve(1).unwrap().first, first);
        drop(listener);
    }
}
