//! One device is one task's.
//!
//! A claim is a socket bound to a name in Linux's abstract space. Only one process of the machine can have a name there,
//! it goes with the process however that ends, and it needs no directory that all users may write to. What it is not: a
//! wall. Who computes without claiming is noticed, not hindered.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

#[derive(Debug)]
pub(super) struct DeviceLock {
    /// Nobody connects: that it is bound is all.
    _socket: UnixListener,
}

impl DeviceLock {
    /// The claim to a device; nothing if somebody has it.
    pub(super) fn take(key: &str) -> io::Result<Option<DeviceLock>> {
        let name = SocketAddr::from_abstract_name(format!("ydl/gpu/{key}"))?;
        match UnixListener::bind_addr(&name) {
            Ok(_socket) => Ok(Some(DeviceLock { _socket })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}
