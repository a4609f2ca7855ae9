//! The system's table of TCP sockets. To look up one connection use `sock_diag`, which is faster.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
};

const LISTEN_STATE: &str = "0A";

/// TCP socket of any user on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    pub own: SocketAddr,
    pub other: SocketAddr,
    pub listens: bool,
    /// User id of the owner.
    pub user: u32,
    /// 0 without an owning process.
    pub inode: u64,
}

/// Lists all TCP sockets. IPv4 addresses in IPv6 sockets are converted.
pub fn sockets() -> io::Result<Vec<Socket>> {
    let mut all = parse(&fs::read_to_string("/proc/self/net/tcp")?);
    // Without IPv6 there is no such table.
    if let Ok(table) = fs::read_to_string("/proc/self/net/tcp6") {
        all.extend(parse(&table));
    }
    Ok(all)
}

/// Parses one table; malformed lines are skipped.
pub fn parse(table: &str) -> Vec<Socket> {
    let socket = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (own, other) = (address(words.next()?)?, address(words.next()?)?);
        let listens = words.next()? == LISTEN_STATE;
        let user = words.nth(3)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Socket { own, other, listens, user, inode })
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Addresses are numbers in native byte order.
fn address(word: &str) -> Option<SocketAddr> {
    let (ip, port) = word.split_once(':')?;
    let numbers = ip.as_bytes().chunks(8).map(|digits| {
        let digits = str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    });
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let bytes: Vec<_> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_table_is_parsed() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n\
             1: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000200007F:0050 06 00000000:00000000 00:00000000 00000000     0        0 0 1\n\
             2: 0100007F:1F90 0100\n\
             3: none:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n";
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let listener = Socket {
            own: at("127.0.0.1:8080"),
            other: at("0.0.0.0:0"),
            listens: true,
            user: 1000,
            inode: 4711,
        };
        let gone =
            Socket { other: at("127.0.0.2:80"), listens: false, user: 0, inode: 0, ..listener };
        assert_eq!(parse(table), [listener, gone]);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn own_sockets_are_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).unwrap();
        let own = stream.local_addr().unwrap();
        let all = sockets().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert!(all.iter().any(|it| it.own == at && it.listens && it.user == user));
        let connected = all.iter().find(|it| it.own == own && it.other == at);
        assert!(connected.is_some_and(|it| !it.listens && it.user == user && it.inode != 0));
    }
}
