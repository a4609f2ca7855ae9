//! The network interfaces of this node, and their addresses.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    io,
    net::Ipv4Addr,
    ptr,
};

/// `AF_INET`.
const INET: u16 = 2;

/// `struct ifaddrs`; unused fields keep its layout.
#[repr(C)]
struct IfAddrs {
    next: *mut IfAddrs,
    name: *mut c_char,
    flags: c_uint,
    address: *mut SockAddrIn,
    mask: *mut SockAddrIn,
    _peer: *mut c_void,
    _data: *mut c_void,
}

/// `struct sockaddr_in`.
#[repr(C)]
struct SockAddrIn {
    family: u16,
    _port: u16,
    ip: [u8; 4],
}

unsafe extern "C" {
    fn getifaddrs(list: *mut *mut IfAddrs) -> c_int;
    fn freeifaddrs(list: *mut IfAddrs);
}

/// IPv4 address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Netmask.
    pub mask: Ipv4Addr,
}

impl Interface {
    /// Returns whether `ip` is in the network of this interface.
    pub fn contains(&self, ip: Ipv4Addr) -> bool {
        ip & self.mask == self.ip & self.mask
    }

    /// Lists the IPv4 addresses of this node in system order; an interface with several addresses appears several times.
    pub fn all() -> io::Result<Vec<Interface>> {
        let mut list = ptr::null_mut();
        // SAFETY: the call writes one pointer, which is freed below.
        if unsafe { getifaddrs(&mut list) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut all = Vec::new();
        let mut at = list;
        // SAFETY: the list ends with a null pointer and does not change until it is freed.
        while let Some(entry) = unsafe { at.as_ref() } {
            at = entry.next;
            let (Some(ip), Some(mask)) = (ip(entry.address), ip(entry.mask)) else {
                continue;
            };
            if entry.name.is_null() {
                continue;
            }
            // SAFETY: a non-null name ends with a zero byte.
            let name = unsafe { CStr::from_ptr(entry.name) };
            let name = name.to_string_lossy().into_owned();
            all.push(Interface { name, ip, mask });
        }
        // SAFETY: the list came from the system, and no reference into it is left.
        unsafe { freeifaddrs(list) };
        Ok(all)
    }
}

fn ip(address: *mut SockAddrIn) -> Option<Ipv4Addr> {
    // SAFETY: a non-null address has at least its family, and one of this family has four bytes behind its port. Only the
    // family is read before that is known.
    let family = unsafe { address.as_ref().map(|_| (*address).family) }?;
    if family != INET {
        return None;
    }
    // SAFETY: as above.
    Some(Ipv4Addr::from(unsafe { (*address).ip }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_loopback_interface() {
        let all = Interface::all().expect("interfaces");
        let lo = all.iter().find(|one| one.ip == Ipv4Addr::LOCALHOST);
        let lo = lo.expect("a loopback interface");
        assert!(lo.contains(Ipv4Addr::new(127, 0, 0, 11)));
        assert!(!lo.contains(Ipv4Addr::new(10, 0, 0, 1)));
    }
}
