//! Ports for one cluster that no other cluster has.
//!
//! Ports come in blocks below the range the kernel gives to outgoing connections: a daemon that was
//! killed finds its port still free when it is started again. The first port of a block is held by
//! this process for as long as the cluster lives, which is how others see that it is taken, and the
//! kernel gives it back however the process ends.

use crate::failure::{Failure, Kind};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
};

const FIRST: u16 = 21_000;
const BLOCK: u16 = 32;
const BLOCKS: u16 = 340;

/// What listens at which place of a block. The NodeManagers have the same ports on their own hosts.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Door {
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
    DnData,
    DnWeb,
    DnIpc,
    Zookeeper,
    Kdc,
    NmRpc,
    NmLocalizer,
    NmWeb,
}

const COMMON: Range<u16> = Door::RmClient as u16..Door::NmRpc as u16;
const OF_NODES: Range<u16> = Door::NmRpc as u16..Door::NmWeb as u16 + 1;

/// A block that is ours.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    _claim: TcpListener,
}

/// Where everything but the NodeManagers lives.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The host of the NodeManager of that index, counted from 0.
pub(crate) fn node_host(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + index as u8)
}

impl Ports {
    /// The first block in which everything is free.
    pub(crate) fn claim(nodes: usize) -> Result<Ports, Failure> {
        let claimed = (0..BLOCKS).find_map(|block| {
            let first = FIRST + block * BLOCK;
            let claim = TcpListener::bind((HOST, first)).ok()?;
            // Daemons of a cluster that is just being torn down, or a stranger, may be there.
            let free = |host: Ipv4Addr, doors: Range<u16>| {
                doors.into_iter().all(|door| TcpListener::bind((host, first + door)).is_ok())
            };
            let all = free(HOST, COMMON) && (0..nodes).all(|n| free(node_host(n), OF_NODES));
            all.then_some(Ports { first, _claim: claim })
        });
        claimed.ok_or_else(|| {
            let last = FIRST + BLOCKS * BLOCK;
            let what = format!("no free ports are left between {FIRST} and {last}");
            Failure::new(Kind::Trouble, what)
        })
    }

    pub(crate) fn port(&self, door: Door) -> u16 {
        self.first + door as u16
    }

    /// On the host of everything but the NodeManagers.
    pub(crate) fn at(&self, door: Door) -> SocketAddr {
        (HOST, self.port(door)).into()
    }

    /// On the host of a NodeManager.
    pub(crate) fn on_node(&self, index: usize, door: Door) -> SocketAddr {
        (node_host(index), self.port(door)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_share_a_port() {
        let (one, two) = (Ports::claim(2).unwrap(), Ports::claim(2).unwrap());
        assert!(one.first.abs_diff(two.first) >= BLOCK);
        assert!((Door::NmWeb as u16) < BLOCK);
    }

    #[test]
    fn a_block_with_a_stranger_in_it_is_passed_over() {
        let one = Ports::claim(1).unwrap();
        let stranger = TcpListener::bind(one.on_node(0, Door::NmWeb)).unwrap();
        let first = one.first;
        drop(one);
        assert_ne!(Ports::claim(1).unwrap().first, first);
        drop(stranger);
    }
}
