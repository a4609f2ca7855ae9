//! Reserves the ports that a program will listen on, before they are announced.
//!
//! A reserved port is bound by a socket that does not listen. It is bound *without* SO_REUSEADDR, so only one process
//! can have it. SO_REUSEADDR is set *afterwards*: from then on Linux lets a program that sets it too (as servers do)
//! listen on the reserved port, and refuses all others, other agents included. For a program that does not set it, the
//! port is released just before the start.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use ydl_os::reason;

/// One requested port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortRequest {
    pub name: String,
    /// Keeps the reservation while the program runs, which must then set SO_REUSEADDR; otherwise it is released at the
    /// start.
    pub keep: bool,
}

/// Part of the range that a task may use: the `index`th of `of` equal parts, in ascending order. So the ports of the
/// tasks on one machine ascend with their indexes, by which MXNet ranks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortSlot {
    pub index: u32,
    pub of: u32,
}

/// Reserved ports of one task.
#[derive(Debug)]
pub(super) struct PortReservation {
    host: IpAddr,
    range: RangeInclusive<u16>,
    slot: PortSlot,
    held: Vec<ReservedPort>,
}

#[derive(Debug)]
struct ReservedPort {
    need: PortRequest,
    port: u16,
    /// `None` after the release to the program.
    socket: Option<OwnedFd>,
}

impl PortReservation {
    pub(super) fn take(
        host: IpAddr,
        needs: &[PortRequest],
        range: RangeInclusive<u16>,
        slot: PortSlot,
    ) -> Result<PortReservation, PortsExhausted> {
        let mut hold = PortReservation { host, range, slot, held: Vec::with_capacity(needs.len()) };
        for need in needs {
            let (port, socket) = hold.take_one(needs.len())?;
            hold.held.push(ReservedPort { need: need.clone(), port, socket: Some(socket) });
        }
        Ok(hold)
    }

    /// Returns the port of each name.
    pub(super) fn ports(&self) -> BTreeMap<String, u16> {
        self.held.iter().map(|held| (held.need.name.clone(), held.port)).collect()
    }

    /// Releases the ports that the program binds without SO_REUSEADDR.
    pub(super) fn release_for_start(&mut self) {
        for held in self.held.iter_mut().filter(|held| !held.need.keep) {
            held.socket = None;
        }
    }

    /// Returns a released port of the ended program that another process has taken. Remaining connections of the
    /// program itself do not count.
    pub(super) fn taken(&self) -> Option<u16> {
        let gone = self.held.iter().filter(|held| held.socket.is_none());
        let mut ports = gone.map(|held| held.port);
        ports.find(|port| {
            let address = SocketAddr::new(self.host, *port);
            let shared = socket(self.host).and_then(|socket| {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                bind(&socket, &address)
            });
            // A listening socket conflicts with all others. A port reserved by another agent can be shared, as can one
            // blocked by old connections, which the system lists.
            let is_in_use = |tried: rustix::io::Result<()>| tried == Err(Errno::ADDRINUSE);
            let held = || is_in_use(socket(self.host).and_then(|socket| bind(&socket, &address)));
            is_in_use(shared) || held() && !has_connections(*port)
        })
    }

    /// Reserves released ports again for a new round: the same ports where possible. If old connections or another
    /// process block one, it is replaced by another of the slot.
    pub(super) fn retake(&mut self) -> Result<(), PortsExhausted> {
        for at in 0..self.held.len() {
            if self.held[at].socket.is_some() {
                continue;
            }
            let (port, socket) = match hold_port(self.host, self.held[at].port) {
                Ok(socket) => (self.held[at].port, socket),
                Err(_) => self.take_one(self.held.len())?,
            };
            (self.held[at].port, self.held[at].socket) = (port, Some(socket));
        }
        Ok(())
    }

    fn take_one(&self, needed: usize) -> Result<(u16, OwnedFd), PortsExhausted> {
        let exhausted = |why| PortsExhausted {
            host: self.host,
            range: self.range.clone(),
            slot: self.slot,
            needed,
            why,
        };
        let (first, width) =
            self.bounds().ok_or_else(|| exhausted(ExhaustedReason::Narrow { width: 0 }))?;
        if (width as usize) < needed {
            return Err(exhausted(ExhaustedReason::Narrow { width }));
        }
        // A random start reduces conflicts between agents that start together.
        let offset = (RandomState::new().hash_one(first) % u64::from(width)) as u32;
        let mut last = None;
        for step in 0..width {
            let port = first + ((offset + step) % width) as u16;
            match hold_port(self.host, port) {
                Ok(socket) => return Ok((port, socket)),
                // In use, or privileged: the next may be free.
                Err(rustix::io::Errno::ADDRINUSE | rustix::io::Errno::ACCESS) => {}
                Err(errno) => {
                    last = Some(reason(&errno.into()));
                    break;
                }
            }
        }
        Err(exhausted(match last {
            Some(reason) => ExhaustedReason::Refused { reason },
            None => ExhaustedReason::Taken { first, last: first + (width - 1) as u16 },
        }))
    }

    /// Returns the slot's first port and its width; `None` if there is no such slot.
    fn bounds(&self) -> Option<(u16, u32)> {
        let (start, end) = (u32::from(*self.range.start()), u32::from(*self.range.end()));
        let width = (end + 1).checked_sub(start)?.checked_div(self.slot.of)?;
        if width == 0 || self.slot.index >= self.slot.of {
            return None;
        }
        let first = start + self.slot.index * width;
        // Port 0 means any port.
        if first == 0 {
            return (width > 1).then_some((1, width - 1));
        }
        Some((first as u16, width))
    }
}

fn socket(host: IpAddr) -> rustix::io::Result<OwnedFd> {
    let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Returns the address that stands for all addresses of the family.
fn any_address(host: IpAddr) -> IpAddr {
    if host.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Returns true if the system lists connections from that port, including those in TIME_WAIT.
fn has_connections(port: u16) -> bool {
    let own = format!(":{port:04X}");
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let mut tables = tables.map(std::fs::read_to_string).into_iter().flatten();
    tables.any(|table| {
        let mut locals = table.lines().filter_map(|line| line.split_ascii_whitespace().nth(1));
        locals.any(|local| local.ends_with(&own))
    })
}

fn hold_port(host: IpAddr, port: u16) -> rustix::io::Result<OwnedFd> {
    // Servers such as TensorFlow's listen on all addresses, so another process must not have the port on any of them.
    bind(&socket(host)?, &SocketAddr::new(any_address(host), port))?;
    let socket = socket(host)?;
    bind(&socket, &SocketAddr::new(host, port))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// Error of a port reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortsExhausted {
    pub host: IpAddr,
    pub range: RangeInclusive<u16>,
    pub slot: PortSlot,
    /// Number of ports that the task needs.
    pub needed: usize,
    why: ExhaustedReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExhaustedReason {
    Narrow { width: u32 },
    Taken { first: u16, last: u16 },
    Refused { reason: String },
}

impl fmt::Display for PortsExhausted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.range.start(), self.range.end());
        let PortsExhausted { host, needed, slot: PortSlot { index, of }, .. } = self;
        write!(out, "cannot reserve {needed} port(s) on `{host}`: ")?;
        match &self.why {
            ExhaustedReason::Narrow { width } => {
                write!(out, "slot {index} of {of} of the range `{start}-{end}` has {width}")
            }
            ExhaustedReason::Taken { first, last } => write!(
                out,
                "`{first}-{last}`, slot {index} of {of} of the range `{start}-{end}`, are all in use"
            ),
            ExhaustedReason::Refused { reason } => out.write_str(reason),
        }
    }
}

impl std::error::Error for PortsExhausted {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::listen;
    use std::net::{TcpListener, TcpStream};

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// Below the range from which Linux takes ports for outgoing connections.
    const RANGE: RangeInclusive<u16> = 20_000..=32_767;

    fn needs(names: &[(&str, bool)]) -> Vec<PortRequest> {
        names.iter().map(|(name, keep)| PortRequest { name: (*name).into(), keep: *keep }).collect()
    }

    fn take(names: &[(&str, bool)], index: u32, of: u32) -> PortReservation {
        PortReservation::take(HOST, &needs(names), RANGE, PortSlot { index, of }).unwrap()
    }

    /// Listens like a program that does not set SO_REUSEADDR.
    fn listen_plainly(port: u16) -> Result<OwnedFd, Errno> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddr::new(HOST, port))?;
        listen(&socket, 8)?;
        Ok(socket)
    }

    #[test]
    fn a_reserved_port_is_available_only_with_so_reuseaddr() {
        let reservation = take(&[("main", true)], 0, 1);
        let port = reservation.ports()["main"];
        assert_eq!(listen_plainly(port).unwrap_err(), Errno::ADDRINUSE);
        assert_eq!(hold_port(HOST, port).unwrap_err(), Errno::ADDRINUSE);
        // The standard library sets SO_REUSEADDR, as zmq, grpc and Python's servers do.
        let server = TcpListener::bind((HOST, port)).unwrap();
        TcpStream::connect((HOST, port)).unwrap();
        server.accept().unwrap();
        assert!(TcpListener::bind((HOST, port)).is_err());
    }

    #[test]
    fn a_port_in_use_on_another_address_is_not_reserved() {
        let port = take(&[("main", true)], 0, 1).ports()["main"];
        let server = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), port)).unwrap();
        assert_eq!(hold_port(HOST, port).unwrap_err(), Errno::ADDRINUSE);
        drop(server);
        hold_port(HOST, port).unwrap();
    }

    #[test]
    fn a_port_taken_by_another_process_is_distinguished_from_time_wait() {
        let mut reservation = take(&[("plain", false)], 0, 1);
        let port = reservation.ports()["plain"];
        assert_eq!(reservation.taken(), None, "an own port is reported as taken");
        reservation.release_for_start();
        assert_eq!(reservation.taken(), None);
        let listener = listen_plainly(port).unwrap();
        assert_eq!(reservation.taken(), Some(port));
        drop(listener);
        let other = hold_port(HOST, port).unwrap();
        assert_eq!(reservation.taken(), Some(port), "the port of another agent is not detected");
        drop(other);
        // The program's own connections, one end of which is in TIME_WAIT.
        let server = TcpListener::bind((HOST, port)).unwrap();
        let client = TcpStream::connect((HOST, port)).unwrap();
        drop(server.accept().unwrap());
        drop((server, client));
        assert_eq!(reservation.taken(), None);
    }

    #[test]
    fn a_port_without_keep_is_released_at_the_start_and_reserved_again() {
        let mut reservation = take(&[("plain", false), ("shared", true)], 3, 8);
        let before = reservation.ports();
        reservation.release_for_start();
        let program = listen_plainly(before["plain"]).unwrap();
        assert_eq!(listen_plainly(before["shared"]).unwrap_err(), Errno::ADDRINUSE);

        // The old program still has it: the new round gets another one of the same slot.
        reservation.retake().unwrap();
        let after = reservation.ports();
        assert_ne!(after["plain"], before["plain"]);
        assert_eq!(after["shared"], before["shared"]);

        reservation.release_for_start();
        drop(program);
        reservation.retake().unwrap();
        assert_eq!(reservation.ports(), after);
        assert_eq!(listen_plainly(after["plain"]).unwrap_err(), Errno::ADDRINUSE);
    }

    #[test]
    fn ports_ascend_with_the_tasks_indexes() {
        let reservations: Vec<PortReservation> =
            (0..50).map(|index| take(&[("a", true), ("b", true)], index, 50)).collect();
        let highest_and_lowest = reservations.iter().map(|reservation| {
            let ports = reservation.ports();
            (ports["a"].min(ports["b"]), ports["a"].max(ports["b"]))
        });
        let mut before = 0;
        for (low, high) in highest_and_lowest {
            assert!(before < low && low < high, "{before} {low} {high}");
            assert!(RANGE.contains(&high));
            before = high;
        }
    }

    #[test]
    fn an_exhausted_range_is_named() {
        // Probed once, so that the test does not depend on other processes.
        let probe = take(&[("probe", true)], 0, 1);
        let port = probe.ports()["probe"];
        let slot = PortSlot { index: 0, of: 1 };
        let taken =
            PortReservation::take(HOST, &needs(&[("a", true)]), port..=port, slot).unwrap_err();
        assert_eq!(
            taken.to_string(),
            format!(
                "cannot reserve 1 port(s) on `127.0.0.1`: `{port}-{port}`, slot 0 of 1 of the range \
                 `{port}-{port}`, are all in use"
            )
        );
        let two = needs(&[("a", true), ("b", true)]);
        let narrow =
            PortReservation::take(HOST, &two, 20_000..=20_009, PortSlot { index: 3, of: 8 });
        assert_eq!(
            narrow.unwrap_err().to_string(),
            "cannot reserve 2 port(s) on `127.0.0.1`: slot 3 of 8 of the range `20000-20009` has 1"
        );
        let none =
            PortReservation::take(HOST, &two, 20_000..=20_009, PortSlot { index: 30, of: 80 });
        assert!(none.is_err());
        let other_address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let refused = PortReservation::take(other_address, &two, RANGE, slot).unwrap_err();
        assert!(refused.to_string().ends_with("cannot assign requested address"), "{refused}");
    }

    #[test]
    fn odd_ranges_and_slots_do_not_panic() {
        let one = needs(&[("a", true)]);
        for (range, index, of) in [
            (0..=u16::MAX, 0, 1),
            (65_535..=65_535, 0, 1),
            (0..=0, 0, 1),
            (RangeInclusive::new(1, 0), 0, 1),
            (5..=9, 0, 0),
        ] {
            // Must not panic; as root the first of them succeeds.
            let _ = PortReservation::take(HOST, &one, range, PortSlot { index, of });
        }
    }
}
