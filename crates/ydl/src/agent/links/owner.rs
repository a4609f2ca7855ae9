//! Whose connection it is: on a node where all containers belong to one user, only the process tells.

use std::{
    fs, io,
    net::{SocketAddr, SocketAddrV4},
    path::Path,
};

use crate::os::proc_tree::Tree;

/// What stands before an address of the old kind in the table of the new one.
const MAPPED: &str = "0000000000000000FFFF0000";

/// Whether the other end of a connection belongs to this process or one below it. `theirs` is that end's address, `ours`
/// this one's.
pub(super) fn is_of_this_tree(theirs: SocketAddr, ours: SocketAddr) -> io::Result<bool> {
    let (SocketAddr::V4(theirs), SocketAddr::V4(ours)) = (theirs, ours) else {
        return Ok(false);
    };
    // A program may reach an address of the old kind through a socket of the new one, as torch does.
    let found = match inode(&fs::read_to_string("/proc/self/net/tcp")?, "", theirs, ours) {
        Some(inode) => Some(inode),
        // Where the system has none of the new kind there is no such table.
        None => fs::read_to_string("/proc/self/net/tcp6")
            .ok()
            .and_then(|table| inode(&table, MAPPED, theirs, ours)),
    };
    let Some(inode) = found else {
        return Ok(false);
    };
    let socket = format!("socket:[{inode}]");
    let this = std::process::id();
    let tree = Tree::below(this)?;
    let below = tree.descendants(this).into_iter().map(|entry| entry.pid);
    Ok(below.chain([this]).any(|pid| has(pid, &socket)))
}

/// A process that has gone, or belongs to another, has nothing that is ours.
fn has(pid: u32, socket: &str) -> bool {
    let Ok(all) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    all.flatten()
        .any(|one| fs::read_link(one.path()).is_ok_and(|to| to == Path::new(socket)))
}

/// The inode of the socket with these ends, in the system's table.
fn inode(table: &str, before: &str, own: SocketAddrV4, other: SocketAddrV4) -> Option<u64> {
    let [own, other] = [own, other].map(|address| format!("{before}{}", written(address)));
    let mut lines = table.lines().skip(1).map(str::split_ascii_whitespace);
    let inode = lines.find_map(|mut words| {
        let (local, remote) = (words.nth(1)?, words.next()?);
        (local == own && remote == other).then(|| words.nth(6))?
    });
    inode?.parse().ok().filter(|inode| *inode != 0)
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
        assert_eq!(inode(table, "", at(50_000), at(8080)), Some(4712));
        assert_eq!(inode(table, "", at(8080), at(50_000)), Some(4711));
        assert_eq!(
            inode(table, "", at(50_001), at(8080)),
            None,
            "nobody has it any more"
        );
        assert_eq!(inode(table, "", at(50_002), at(8080)), None);
    }

    #[test]
    fn a_connection_of_ones_own_is_told_from_a_strangers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let ours = listener.local_addr().expect("an address");
        let own = TcpStream::connect(ours).expect("a connection");
        let theirs = own.local_addr().expect("an address");
        listener.accept().expect("a connection");
        assert!(is_of_this_tree(theirs, ours).expect("an answer"));

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
        assert!(is_of_this_tree(theirs_too, ours).expect("an answer"));

        // A child of ours has it as well, and then alone.
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(own)))
            .spawn()
            .expect("a child");
        assert!(is_of_this_tree(theirs, ours).expect("an answer"));
        child.kill().expect("a dead child");
        child.wait().expect("an end");
        assert!(!is_of_this_tree(theirs, ours).expect("an answer"));
    }
}
