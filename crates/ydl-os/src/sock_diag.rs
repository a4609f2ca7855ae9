//! Asks the system for one TCP socket by its two ends. The table in `/proc` has all of them, and reading it takes as long as
//! there are many on the machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// What a question is called (`SOCK_DIAG_BY_FAMILY`), that it is one (`NLM_F_REQUEST`), and what a refusal is called.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// An answer comes at once, or the system has none to give.
const ANSWER_MAX: std::time::Duration = std::time::Duration::from_secs(5);
const HEADER: usize = 16;
/// Of the socket's two ends in a question, and in an answer.
const ENDS_ASKED: usize = HEADER + 8;
const ENDS_TOLD: usize = HEADER + 4;
const ENDS_BYTES: usize = 48;
/// The last of five numbers after the ends.
const INODE: usize = ENDS_TOLD + ENDS_BYTES + 16;
const NOT_THERE: i32 = 2;

/// A line to the system.
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
        set_socket_timeout(&line, Timeout::Recv, Some(ANSWER_MAX))?;
        Ok(Sockets(line))
    }

    /// The inode of the socket whose own end is `own`; nothing if there is none, or nobody has it any more. One of the new
    /// kind that leads to an address of the old one is found, too.
    pub fn inode(&self, own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<u64>> {
        let question = question(own, other);
        sendto(&self.0, &question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0; 1024];
        let (_, length) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let answer = answer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
        understood(answer, &question)
    }
}

fn question(own: SocketAddrV4, other: SocketAddrV4) -> [u8; ENDS_ASKED + ENDS_BYTES] {
    let mut asked = [0; ENDS_ASKED + ENDS_BYTES];
    let mut put = |at: usize, bytes: &[u8]| asked[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &((ENDS_ASKED + ENDS_BYTES) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(HEADER, &[AddressFamily::INET.as_raw() as u8, 6]);
    // In whatever state it is.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    put(ENDS_ASKED, &own.port().to_be_bytes());
    put(ENDS_ASKED + 2, &other.port().to_be_bytes());
    let address = |ip: &Ipv4Addr| ip.octets();
    put(ENDS_ASKED + 4, &address(own.ip()));
    put(ENDS_ASKED + 20, &address(other.ip()));
    // No particular one of those that there have been with these ends.
    put(ENDS_ASKED + 40, &[0xff; 8]);
    asked
}

fn understood(answer: &[u8], question: &[u8]) -> io::Result<Option<u64>> {
    let word = |at: usize| -> io::Result<[u8; 4]> {
        let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    let kind = u16::from_ne_bytes([word(4)?[0], word(4)?[1]]);
    if kind == ERROR {
        return match -i32::from_ne_bytes(word(HEADER)?) {
            NOT_THERE => Ok(None),
            other => Err(io::Error::from_raw_os_error(other)),
        };
    }
    // Where there is no connection, one that listens at its end is named; that is another.
    if kind != BY_FAMILY || word(ENDS_TOLD)? != question[ENDS_ASKED..ENDS_ASKED + 4] {
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
    fn a_connection_is_found_by_its_ends_and_a_listener_is_none() {
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
    fn half_an_answer_is_none_and_a_refusal_says_why() {
        let nobody = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let question = question(nobody, nobody);
        let mut whole = vec![0; INODE + 4];
        whole[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        whole[ENDS_TOLD..ENDS_TOLD + 4].copy_from_slice(&question[ENDS_ASKED..ENDS_ASKED + 4]);
        whole[INODE..].copy_from_slice(&4711_u32.to_ne_bytes());
        assert_eq!(understood(&whole, &question).unwrap(), Some(4711));
        for length in 0..whole.len() {
            assert!(understood(&whole[..length], &question).is_err(), "{length}");
        }
        let refused = |number: i32| {
            let mut answer = vec![0; HEADER + 4];
            answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
            answer[HEADER..].copy_from_slice(&(-number).to_ne_bytes());
            understood(&answer, &question)
        };
        assert_eq!(refused(NOT_THERE).unwrap(), None);
        assert_eq!(refused(13).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
