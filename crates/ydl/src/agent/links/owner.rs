//! Finds the process of a connection. Needed on nodes where all containers run as the same user.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    net::{SocketAddr, SocketAddrV4},
};

use ydl_os::{
    proc_tree::Tree,
    sock_diag::Sockets,
    tcp_table::{self, Socket},
};

/// Number of scans of the processes for the owner of a connection.
const SCANS: usize = 2;

/// Returns the remote addresses among `remotes` of connections to `local` that belong to this process or a descendant.
/// A batch costs little more than a single connection.
pub(super) fn of_this_tree(
    remotes: &[SocketAddr],
    local: SocketAddr,
) -> io::Result<HashSet<SocketAddr>> {
    let SocketAddr::V4(local) = local else {
        return Ok(HashSet::new());
    };
    // A kernel without socket diagnostics reports no socket either, but it has the table.
    let mut inodes = diagnosed(remotes, local).unwrap_or_default();
    if inodes.len() < remotes.len() {
        inodes.extend(from_table(remotes, local)?);
    }
    of_processes(&inodes, || {
        let this = std::process::id();
        let tree = Tree::below(this)?;
        let descendants = tree.descendants(this).into_iter().map(|entry| entry.pid);
        Ok(descendants.chain([this]).collect())
    })
}

/// Returns the sockets that these processes have open. A process list can be incomplete if another process ends during
/// the scan, so sockets without an owner are searched again.
fn of_processes(
    inodes: &Inodes,
    mut processes: impl FnMut() -> io::Result<Vec<u32>>,
) -> io::Result<HashSet<SocketAddr>> {
    let mut found = HashSet::new();
    for _ in 0..SCANS {
        if found.len() >= inodes.len() {
            break;
        }
        for pid in processes()? {
            found.extend(sockets(pid).filter_map(|inode| inodes.get(&inode)));
        }
    }
    Ok(found)
}

type Inodes = HashMap<u64, SocketAddr>;

fn diagnosed(remotes: &[SocketAddr], local: SocketAddrV4) -> io::Result<Inodes> {
    let sockets = Sockets::open()?;
    let mut inodes = Inodes::new();
    for address in remotes {
        if let SocketAddr::V4(remote) = address
            && let Some(inode) = sockets.inode(*remote, local)?
        {
            inodes.insert(inode, *address);
        }
    }
    Ok(inodes)
}

fn from_table(remotes: &[SocketAddr], local: SocketAddrV4) -> io::Result<Inodes> {
    // A program can connect to an IPv4 address through an IPv6 socket, as torch does. The table has both.
    Ok(find(&tcp_table::sockets()?, remotes, local))
}

/// Returns the inodes of a process's sockets. Empty for a process that has ended or belongs to another user.
fn sockets(pid: u32) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    entries.flatten().filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    })
}

/// Returns the inodes of the sockets between one of `remotes` and `local`.
fn find(entries: &[Socket], remotes: &[SocketAddr], local: SocketAddrV4) -> Inodes {
    let remotes: HashSet<&SocketAddr> = remotes.iter().collect();
    // A socket without an inode has no owner any more.
    let is_of_program =
        |it: &&Socket| it.inode != 0 && it.other == local.into() && remotes.contains(&it.own);
    entries.iter().filter(is_of_program).map(|it| (it.inode, it.own)).collect()
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
        let all = tcp_table::parse(table);
        let found = |own: &[u16], other| {
            let peer: Vec<_> = own.iter().map(|port| SocketAddr::V4(at(*port))).collect();
            let inodes = find(&all, &peer, at(other));
            let mut inodes: Vec<_> =
                inodes.into_iter().map(|(inode, own)| (own.port(), inode)).collect();
            inodes.sort_unstable();
            inodes
        };
        // The socket on 50,001 has no owner any more, and there is none on 50,002.
        let ports = [8080, 50_000, 50_001, 50_002];
        assert_eq!(found(&ports, 8080), [(50_000, 4712)]);
        assert_eq!(found(&ports, 50_000), [(8080, 4711)]);
    }

    #[test]
    fn a_process_that_is_missing_in_one_list_is_found_in_the_next() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let local = listener.local_addr().expect("an address");
        let own = TcpStream::connect(local).expect("a connection");
        let peer = own.local_addr().expect("an address");
        let SocketAddr::V4(local) = local else { panic!("{local}") };
        let inodes = from_table(&[peer], local).expect("a table");
        let mut lists = vec![vec![std::process::id()], Vec::new()];
        let mut next = || Ok(lists.pop().expect("not more than two are made"));
        let found = of_processes(&inodes, &mut next).expect("an answer");
        assert_eq!(found, HashSet::from([peer]));
        let mut empty_lists = vec![Vec::new(); SCANS];
        let found = of_processes(&inodes, || Ok(empty_lists.pop().expect("no more scans")));
        assert!(found.expect("an answer").is_empty());
    }

    #[test]
    fn own_connections_are_distinguished_from_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let local = listener.local_addr().expect("an address");
        let own = TcpStream::connect(local).expect("a connection");
        let peer = own.local_addr().expect("an address");
        listener.accept().expect("a connection");
        let is_own = |peer| {
            let both = [peer, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))];
            let found = of_this_tree(&both, local).expect("an answer");
            // Both lookups have the same result.
            let SocketAddr::V4(local) = local else { panic!("{local}") };
            let table = from_table(&both, local).expect("a table");
            assert_eq!(diagnosed(&both, local).expect("an answer"), table);
            assert!(found.iter().all(|address| *address == peer), "{found:?}");
            !found.is_empty()
        };
        assert!(is_own(peer));

        // An IPv6 socket to the same address.
        let new = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let new = new.expect("a socket");
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), local.port()));
        connect(&new, &mapped).expect("a connection");
        let (_, theirs_too) = listener.accept().expect("a connection");
        assert!(is_own(theirs_too));

        // A child inherits it, and then is its only owner.
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(own)))
            .spawn()
            .expect("a child");
        assert!(is_own(peer));
        child.kill().expect("a dead child");
        child.wait().expect("an end");
        assert!(!is_own(peer));
    }
}
