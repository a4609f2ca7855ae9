//! The network interfaces of this node, and their addresses.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    io,
    net::Ipv4Addr,
    ptr,
};

/// The kernel's number for addresses of four bytes.
const INET: u16 = 2;

/// As C has it; what is not looked at is only there for its size.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    name: *mut c_char,
    flags: c_uint,
    address: *mut Address,
    mask: *mut Address,
    _peer: *mut c_void,
    _data: *mut c_void,
}

/// An address of four bytes, behind its kind.
#[repr(C)]
struct Address {
    family: u16,
    _port: u16,
    ip: [u8; 4],
}

unsafe extern "C" {
    fn getifaddrs(list: *mut *mut Entry) -> c_int;
    fn freeifaddrs(list: *mut Entry);
}

/// An address of four bytes that an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// `eth0`.
    pub name: String,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Which part of it is its network's.
    pub mask: Ipv4Addr,
}

impl Interface {
    /// Whether that address is in its network.
    pub fn leads_to(&self, ip: Ipv4Addr) -> bool {
        ip & self.mask == self.ip & self.mask
    }

    /// All of this node, in the system's order; one with several addresses is there several times.
    pub fn all() -> io::Result<Vec<Interface>> {
        let mut list = ptr::null_mut();
        // SAFETY: the call writes one pointer, which is given back to the system below.
        if unsafe { getifaddrs(&mut list) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut all = Vec::new();
        let mut at = list;
        // SAFETY: the list ends with a null pointer and stays as it is until it is freed.
        while let Some(entry) = unsafe { at.as_ref() } {
            at = entry.next;
            let (Some(ip), Some(mask)) = (ip(entry.address), ip(entry.mask)) else {
                continue;
            };
            if entry.name.is_null() {
                continue;
            }
            // SAFETY: a name that is there ends with a zero byte.
            let name = unsafe { CStr::from_ptr(entry.name) };
            let name = name.to_string_lossy().into_owned();
            all.push(Interface { name, ip, mask });
        }
        // SAFETY: the list is the system's, and nothing of it is used any more.
        unsafe { freeifaddrs(list) };
        Ok(all)
    }
}

fn ip(address: *mut Address) -> Option<Ipv4Addr> {
    // SAFETY: an address that is there has at least its kind, and one of this kind has four bytes behind its port.
    // Only the kind is read before that is known.
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
        assert!(lo.leads_to(Ipv4Addr::new(127, 0, 0, 11)));
        assert!(!lo.leads_to(Ipv4Addr::new(10, 0, 0, 1)));
    }
}
