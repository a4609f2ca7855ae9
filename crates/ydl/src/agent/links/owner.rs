//! Whose connection it is: on a node where all containers belong to one user, only the process tells.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    net::{SocketAddr, SocketAddrV4},
};

use crate::os::{proc_tree::Tree, sock_diag::Sockets};

/// What stands before an address of the old kind in the table of the new one.
const MAPPED: &str = "0000000000000000FFFF0000";

/// Of connections to `ours`, by the other end's address, those whose other end belongs to this process or one below it.
/// Many cost little more than one: a crowd of strangers is looked at together.
pub(super) fn of_this_tree(
    theirs: &[SocketAddr],
    ours: SocketAddr,
) -> io::Result<HashSet<SocketAddr>> {
    let SocketAddr::V4(ours) = ours else {
        return Ok(HashSet::new());
    };
    // A system that cannot answer such questions says that there is no such socket, too; but it has a table.
    let mut inodes = asked(theirs, ours).unwrap_or_default();
    if inodes.len() < theirs.len() {
        inodes.extend(looked_up(theirs, ours)?);
    }
    let mut found = HashSet::new();
    if inodes.is_empty() {
        return Ok(found);
    }
    let this = std::process::id();
    let tree = Tree::below(this)?;
    let below = tree.descendants(this).into_iter().map(|entry| entry.pid);
    for pid in below.chain([this]) {
        found.extend(sockets(pid).filter_map(|inode| inodes.get(&inode)));
    }
    Ok(found)
}

type Inodes = HashMap<u64, SocketAddr>;

fn asked(theirs: &[SocketAddr], ours: SocketAddrV4) -> io::Result<Inodes> {
    let sockets = Sockets::open()?;
    let mut inodes = Inodes::new();
    for address in theirs {
        if let SocketAddr::V4(their) = address
            && let Some(inode) = sockets.inode(*their, ours)?
        {
            inodes.insert(inode, *address);
        }
    }
    Ok(inodes)
}

fn looked_up(theirs: &[SocketAddr], ours: SocketAddrV4) -> io::Result<Inodes> {
    let mut wanted = HashMap::new();
    for address in theirs {
        if let SocketAddr::V4(their) = address {
            wanted.insert(written(*their), *address);
        }
    }
    let mut inodes = Inodes::new();
    let table = fs::read_to_string("/proc/self/net/tcp")?;
    find(&table, "", &wanted, ours, &mut inodes);
    // A program may reach an address of the old kind through a socket of the new one, as torch does. Where the system
    // has none of the new kind there is no such table.
    if let Ok(table) = fs::read_to_string("/proc/self/net/tcp6") {
        find(&table, MAPPED, &wanted, ours, &mut inodes);
    }
    Ok(inodes)
}

/// The inodes of a process's sockets. One that has gone, or belongs to another, has nothing that is ours.
fn sockets(pid: u32) -> impl Iterator<Item = u64> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    all.flatten().filter_map(|one| {
        let to = fs::read_link(one.path()).ok()?;
        let inode = to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    })
}

/// The inodes of the sockets with one of these ends and `other`, in the system's table.
fn find(
    table: &str,
    before: &str,
    wanted: &HashMap<String, SocketAddr>,
    other: SocketAddrV4,
    inodes: &mut Inodes,
) {
    let other = format!("{before}{}", written(other));
    for line in table.lines().skip(1) {
        let mut words = line.split_ascii_whitespace();
        let (Some(local), Some(remote)) = (words.nth(1), words.next()) else {
            continue;
        };
        let own = local.strip_prefix(before).and_then(|own| wanted.get(own));
        let (Some(own), true) = (own, remote == other) else {
            continue;
        };
        // Nobody has one without a number any more.
        let inode = words.nth(6).and_then(|word| word.parse().ok());
        if let Some(inode) = inode.filter(|inode| *inode != 0) {
            inodes.insert(inode, *own);
        }
    }
}

/// As the table has it: the address is a number in the machine's own order.
fn written(address: SocketAddrV4) -> String {
    let ip = u32::from_ne_bytes(address.ip().octets());
    format!("{ip:08X}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    use std::{
        net::{Ipv4Addr, TcpListener, TcpStream},
        process::{Command, Stdio},
    };

    #[test]
    fn a_socket_is_found_in_the_table_by_both_ends() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n\
             1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n\
             2: 0100007F:C351 0100007F:1F90 06 00000000:00000000 00:00000000 00000000  1000        0 0 3 0\n";
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let found = |own: &[u16], other| {
            let of = |port: &u16| (written(at(*port)), SocketAddr::V4(at(*port)));
            let mut inodes = HashMap::new();
            find(
                table,
                "",
                &own.iter().map(of).collect(),
                at(other),
                &mut inodes,
            );
            let mut inodes: Vec<_> = inodes
                .into_iter()
                .map(|(inode, own)| (own.port(), inode))
                .collect();
            inodes.sort_unstable();
            inodes
        };
        // Nobody has the one of 50,001 any more, and there is none of 50,002.
        let ports = [8080, 50_000, 50_001, 50_002];
        assert_eq!(found(&ports, 8080), [(50_000, 4712)]);
        assert_eq!(found(&ports, 50_000), [(8080, 4711)]);
    }

    #[test]
    fn a_connection_of_ones_own_is_told_from_a_strangers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let ours = listener.local_addr().expect("an address");
        let own = TcpStream::connect(ours).expect("a connection");
        let theirs = own.local_addr().expect("an address");
        listener.accept().expect("a connection");
        let is_ours = |theirs| {
            let both = [theirs, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))];
            let found = of_this_tree(&both, ours).expect("an answer");
            // Both ways to ask say the same.
            let SocketAddr::V4(ours) = ours else {
                panic!("{ours}")
            };
            let table = looked_up(&both, ours).expect("a table");
            assert_eq!(asked(&both, ours).expect("an answer"), table);
            assert!(found.iter().all(|address| *address == theirs), "{found:?}");
            !found.is_empty()
        };
        assert!(is_ours(theirs));

        // A socket of the new kind that leads to the same place.
        let new = socket_with(
            AddressFamily::INET6,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let new = new.expect("a socket");
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), ours.port()));
        connect(&new, &mapped).expect("a connection");
        let (_, theirs_too) = listener.accept().expect("a connection");
        assert!(is_ours(theirs_too));

        // A child of ours has it as well, and then alone.
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(own)))
            .spawn()
            .expect("a child");
        assert!(is_ours(theirs));
        child.kill().expect("a dead child");
        child.wait().expect("an end");
        assert!(!is_ours(theirs));
    }
}
