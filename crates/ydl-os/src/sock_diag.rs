//! Looks up one TCP socket by its two ends through netlink. Reading the table in `/proc` instead costs as much as there are
//! sockets on the machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// Message types and flags: `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST`, `NLMSG_ERROR`.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// Timeout of a reply; the kernel answers at once or not at all.
const REPLY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
const HEADER: usize = 16;
/// Offset of the socket's ends in a request and in a reply.
const REQUEST_ENDS: usize = HEADER + 8;
const REPLY_ENDS: usize = HEADER + 4;
const ENDS_BYTES: usize = 48;
/// Offset of the inode, the last of five numbers after the ends.
const INODE: usize = REPLY_ENDS + ENDS_BYTES + 16;
const ENOENT: i32 = 2;

/// Netlink socket.
#[derive(Debug)]
pub struct Sockets(OwnedFd);

impl Sockets {
    pub fn open() -> io::Result<Sockets> {
        let line = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(SOCK_DIAG),
        )?;
        set_socket_timeout(&line, Timeout::Recv, Some(REPLY_TIMEOUT))?;
        Ok(Sockets(line))
    }

    /// Returns the inode of the socket whose own end is `own`; `None` if there is none or it has no owner. An IPv6 socket that
    /// connects to an IPv4 address is found, too.
    pub fn inode(&self, own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<u64>> {
        let request = request(own, other);
        sendto(&self.0, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut reply = [0; 1024];
        let (_, length) = recv(&self.0, &mut reply, RecvFlags::empty())?;
        let reply = reply.get(..length).ok_or(io::ErrorKind::InvalidData)?;
        parse_reply(reply, &request)
    }
}

fn request(own: SocketAddrV4, other: SocketAddrV4) -> [u8; REQUEST_ENDS + ENDS_BYTES] {
    let mut asked = [0; REQUEST_ENDS + ENDS_BYTES];
    let mut put = |at: usize, bytes: &[u8]| asked[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &((REQUEST_ENDS + ENDS_BYTES) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(HEADER, &[AddressFamily::INET.as_raw() as u8, 6]);
    // In any state.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    put(REQUEST_ENDS, &own.port().to_be_bytes());
    put(REQUEST_ENDS + 2, &other.port().to_be_bytes());
    let address = |ip: &Ipv4Addr| ip.octets();
    put(REQUEST_ENDS + 4, &address(own.ip()));
    put(REQUEST_ENDS + 20, &address(other.ip()));
    // Any socket cookie.
    put(REQUEST_ENDS + 40, &[0xff; 8]);
    asked
}

fn parse_reply(reply: &[u8], request: &[u8]) -> io::Result<Option<u64>> {
    let word = |at: usize| -> io::Result<[u8; 4]> {
        let bytes = reply.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    let kind = u16::from_ne_bytes([word(4)?[0], word(4)?[1]]);
    if kind == ERROR {
        return match -i32::from_ne_bytes(word(HEADER)?) {
            ENOENT => Ok(None),
            other => Err(io::Error::from_raw_os_error(other)),
        };
    }
    // Without a connection the kernel returns a listener at its end, which is another socket.
    if kind != BY_FAMILY || word(REPLY_ENDS)? != request[REQUEST_ENDS..REQUEST_ENDS + 4] {
        return Ok(None);
    }
    let inode = u64::from(u32::from_ne_bytes(word(INODE)?));
    Ok(Some(inode).filter(|inode| *inode != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("{address}"),
        }
    }

    #[test]
    fn a_connection_is_found_by_its_ends_and_a_listener_is_not() {
        let sockets = Sockets::open().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ours = v4(listener.local_addr().unwrap());
        let stream = TcpStream::connect(ours).unwrap();
        let theirs = v4(stream.local_addr().unwrap());
        let (accepted, _) = listener.accept().unwrap();
        let inode = |file: &dyn std::os::fd::AsRawFd| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            Some(std::fs::metadata(path).unwrap().ino())
        };
        assert_eq!(sockets.inode(theirs, ours).unwrap(), inode(&stream));
        assert_eq!(sockets.inode(ours, theirs).unwrap(), inode(&accepted));
        let nobody = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        assert_eq!(sockets.inode(ours, nobody).unwrap(), None);
        assert_eq!(sockets.inode(nobody, ours).unwrap(), None);
    }

    #[test]
    fn a_truncated_reply_is_none_and_an_error_is_reported() {
        let nobody = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let request = request(nobody, nobody);
        let mut whole = vec![0; INODE + 4];
        whole[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        whole[REPLY_ENDS..REPLY_ENDS + 4].copy_from_slice(&request[REQUEST_ENDS..REQUEST_ENDS + 4]);
        whole[INODE..].copy_from_slice(&4711_u32.to_ne_bytes());
        assert_eq!(parse_reply(&whole, &request).unwrap(), Some(4711));
        for length in 0..whole.len() {
            assert!(parse_reply(&whole[..length], &request).is_err(), "{length}");
        }
        let refused = |number: i32| {
            let mut reply = vec![0; HEADER + 4];
            reply[4..6].copy_from_slice(&ERROR.to_ne_bytes());
            reply[HEADER..].copy_from_slice(&(-number).to_ne_bytes());
            parse_reply(&reply, &request)
        };
        assert_eq!(refused(ENOENT).unwrap(), None);
        assert_eq!(refused(13).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
