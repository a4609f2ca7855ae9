//! Determines the address of a node's tasks, and its network interface.

use super::yarn_container::is_of_this_node;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use ydl_os::interfaces::Interface;

/// Returns the address of this node for its peers, given only its name. Prefers the address from which this node
/// reaches the job's master, which needs no name resolution; then the resolved address; then the name itself.
pub(super) fn address_of(name: &str, master: &str) -> String {
    if name.parse::<IpAddr>().is_ok() {
        return name.to_owned();
    }
    let found = (name, 0).to_socket_addrs().ok();
    let found = found.into_iter().flatten().map(|address| address.ip());
    let is_usable = |ip: &IpAddr| ip.is_ipv4() && !ip.is_loopback() && is_of_this_node(*ip);
    let address = source_address_to(master).into_iter().chain(found).find(is_usable);
    address.map_or_else(|| name.to_owned(), |ip| ip.to_string())
}

/// Returns the source address of packets to that destination. No packet is sent.
pub(super) fn source_address_to(destination: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(destination).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns this node's address in the job's network, which is named by interface or range.
pub(super) fn address_in(network: &str) -> Result<String, String> {
    let all =
        Interface::all().map_err(|e| format!("cannot list this node's network interfaces: {e}"))?;
    let mut matching = all.iter().filter(|one| match range(network) {
        Some((first, mask)) => one.ip & mask == first & mask,
        None => one.name == network,
    });
    let found = matching.next().map(|one| one.ip.to_string());
    found.ok_or_else(|| format!("this node has no address in the network `{network}`"))
}

/// Parses a range such as `10.1.0.0/16`.
fn range(text: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, bits) = text.split_once('/')?;
    let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Some((first.parse().ok()?, Ipv4Addr::from(mask)))
}

/// Returns the interface with that address, or else the one whose network contains it.
pub(super) fn interface_of(host: &str) -> Option<String> {
    let ip: Ipv4Addr = host.parse().ok()?;
    let all = Interface::all().ok()?;
    let exact = all.iter().find(|one| one.ip == ip);
    // A node may own all addresses of a network without listing them, as with the loopback interface.
    let containing = || {
        let own = is_of_this_node(ip.into());
        all.iter().find(|one| own && one.contains(ip))
    };
    exact.or_else(containing).map(|one| one.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_address_matches_the_destination() {
        assert_eq!(source_address_to("127.0.0.1:1"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(source_address_to("nowhere"), None);
    }

    #[test]
    fn a_node_is_named_by_an_address_reachable_by_peers() {
        let master = "127.0.0.1:1";
        assert_eq!(address_of("127.0.0.11", master), "127.0.0.11");
        assert_eq!(address_of("localhost", master), "localhost");
        let unknown = "no.such.node.invalid";
        assert_eq!(address_of(unknown, master), unknown);
        assert!(is_of_this_node(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_of_this_node(IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn a_network_is_named_by_its_interface_or_its_range() {
        let lo = Interface::all().unwrap().into_iter();
        let lo = lo.filter(|one| one.ip.is_loopback()).map(|one| one.name);
        let lo = lo.collect::<Vec<_>>().swap_remove(0);
        for network in [lo.as_str(), "127.0.0.0/8", "127.0.0.1/32"] {
            assert_eq!(address_in(network).as_deref(), Ok("127.0.0.1"), "{network}");
        }
        let absent = address_in("198.51.100.0/24").unwrap_err();
        assert_eq!(absent, "this node has no address in the network `198.51.100.0/24`");
        assert_eq!(interface_of("127.0.0.11"), Some(lo));
        assert_eq!(interface_of("node17"), None);
    }
}
