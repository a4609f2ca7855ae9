//! Whose connection it is: on a node where all containers belong to one user, only the process tells.

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

/// So often the processes are looked through for the owner of a connection.
const LOOKS: usize = 2;

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
    of_processes(&inodes, || {
        let this = std::process::id();
        let tree = Tree::below(this)?;
        let below = tree.descendants(this).into_iter().map(|entry| entry.pid);
        Ok(below.chain([this]).collect())
    })
}

/// Those of the sockets that these processes have. A list of processes may lack one that is there, if another ends while it
/// is made: who is not found at once is looked for again.
fn of_processes(
    inodes: &Inodes,
    mut processes: impl FnMut() -> io::Result<Vec<u32>>,
) -> io::Result<HashSet<SocketAddr>> {
    let mut found = HashSet::new();
    for _ in 0..LOOKS {
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
    // A program may reach an address of the old kind through a socket of the new one, as torch does: the table has both.
    Ok(find(&tcp_table::sockets()?, theirs, ours))
}

/// The inodes of a process's sockets. One that has gone, or belongs to another, has nothing that is ours.
fn sockets(pid: u32) -> impl Iterator<Item = u64> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    all.flatten().filter_map(|one| {
        let to = fs::read_link(one.path()).ok()?;
        let inode = to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    })
}

/// The inodes of the sockets with one of these ends and `other`.
fn find(all: &[Socket], theirs: &[SocketAddr], other: SocketAddrV4) -> Inodes {
    let theirs: HashSet<&SocketAddr> = theirs.iter().collect();
    // Nobody has one without a number any more.
    let ours = |it: &&Socket| it.inode != 0 && it.other == other.into() && theirs.contains(&it.own);
    all.iter().filter(ours).map(|it| (it.inode, it.own)).collect()
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
            let theirs: Vec<_> = own.iter().map(|port| SocketAddr::V4(at(*port))).collect();
            let inodes = find(&all, &theirs, at(other));
            let mut inodes: Vec<_> =
                inodes.into_iter().map(|(inode, own)| (own.port(), inode)).collect();
            inodes.sort_unstable();
            inodes
        };
        // Nobody has the one of 50,001 any more, and there is none of 50,002.
        let ports = [8080, 50_000, 50_001, 50_002];
        assert_eq!(found(&ports, 8080), [(50_000, 4712)]);
        assert_eq!(found(&ports, 50_000), [(8080, 4711)]);
    }

    #[test]
    fn a_process_that_is_missing_in_one_list_is_found_in_the_next() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let ours = listener.local_addr().expect("an address");
        let own = TcpStream::connect(ours).expect("a connection");
        let theirs = own.local_addr().expect("an address");
        let SocketAddr::V4(ours) = ours else { panic!("{ours}") };
        let inodes = looked_up(&[theirs], ours).expect("a table");
        let mut lists = vec![vec![std::process::id()], Vec::new()];
        let mut next = || Ok(lists.pop().expect("not more than two are made"));
        let found = of_processes(&inodes, &mut next).expect("an answer");
        assert_eq!(found, HashSet::from([theirs]));
        let mut strangers = vec![Vec::new(); LOOKS];
        let found = of_processes(&inodes, || Ok(strangers.pop().expect("no more looks")));
        assert!(found.expect("an answer").is_empty());
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
            let SocketAddr::V4(ours) = ours else { panic!("{ours}") };
            let table = looked_up(&both, ours).expect("a table");
            assert_eq!(asked(&both, ours).expect("an answer"), table);
            assert!(found.iter().all(|address| *address == theirs), "{found:?}");
            !found.is_empty()
        };
        assert!(is_ours(theirs));

        // A socket of the new kind that leads to the same place.
        let new = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None);
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
